"""Directories of manifests, put together by kubectl or kustomize."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest, parse_manifests


def build_kustomization(directory: Path) -> list[Manifest]:
    """The manifests that ``directory``, which has a ``kustomization.yaml``, comes to.

    Raises:
        ConfigurationError: there is neither kubectl nor kustomize, or they cannot put the files together.
    """
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        short_path = "/".join(directory.parts[-2:])
        raise ConfigurationError(f"{short_path} is put together by kubectl or kustomize, and neither is in PATH")
    completed = subprocess.run([*command, str(directory)], capture_output=True, text=True, check=False)
    if completed.returncode:
        raise ConfigurationError(f"`{' '.join(command)}` failed: {completed.stderr.strip()}")
    return parse_manifests(completed.stdout, str(directory))
