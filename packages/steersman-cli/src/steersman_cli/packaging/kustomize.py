"""Directories of manifests, put together by kubectl or kustomize."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest, manifests_of


def rendered(directory: Path) -> list[Manifest]:
    """The manifests that ``directory``, which has a ``kustomization.yaml``, comes to.

    Raises:
        ConfigurationError: there is neither kubectl nor kustomize, or they cannot put the files together.
    """
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        place = "/".join(directory.parts[-2:])
        raise ConfigurationError(f"{place} is put together by kubectl or kustomize, and neither is in PATH")
    ended = subprocess.run([*command, str(directory)], capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ConfigurationError(f"`{' '.join(command)}` failed: {ended.stderr.strip()}")
    return manifests_of(ended.stdout, str(directory))
