"""Build kustomizations with kubectl or kustomize."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from steersman.errors import ConfigurationError
from steersman_manifests.manifest_files import Manifest, parse_manifests


def build_kustomization(directory: Path) -> list[Manifest]:
    """Return the manifests of a directory with a ``kustomization.yaml``.

    Raises:
        ConfigurationError: kubectl and kustomize are missing, or the build failed.
    """
    if shutil.which("kubectl"):
        command = ["kubectl", "kustomize"]
    elif shutil.which("kustomize"):
        command = ["kustomize", "build"]
    else:
        short_path = "/".join(directory.parts[-2:])
        raise ConfigurationError(f"{short_path} cannot be built: install kubectl or kustomize, neither is in PATH")
    completed = subprocess.run([*command, str(directory)], capture_output=True, text=True, check=False)
    if completed.returncode:
        raise ConfigurationError(f"`{' '.join(command)}` failed: {completed.stderr.strip()}")
    return parse_manifests(completed.stdout, str(directory))
