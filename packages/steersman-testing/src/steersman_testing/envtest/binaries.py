"""Location of the etcd and kube-apiserver binaries.

Source: the documentation of ``sigs.k8s.io/controller-runtime/tools/setup-envtest`` and of ``pkg/envtest``.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from steersman.errors import ConfigurationError

REQUIRED_BINARIES = ("etcd", "kube-apiserver")
_GO_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def find_binaries(assets: str | os.PathLike[str] | None = None, *, version: str = "") -> Path:
    """Return the directory with ``etcd`` and ``kube-apiserver``.

    Args:
        assets: the directory. Defaults to ``$KUBEBUILDER_ASSETS``, then the newest version in the store of
            setup-envtest, then the latest build of the devcluster.
        version: Kubernetes version, such as ``1.36`` or ``1.36.2``. Empty: any version.

    Raises:
        ConfigurationError: if no directory has both programs in the requested version.
    """
    if assets:
        return _check_directory(Path(assets), version, "")
    if from_environment := os.environ.get("KUBEBUILDER_ASSETS"):
        return _check_directory(Path(from_environment), version, "KUBEBUILDER_ASSETS: ")
    store, builds = setup_envtest_store(), Path(_xdg("XDG_CACHE_HOME", ".cache"), "steersman", "binaries")
    found = [*_store_directories(store), *_devcluster_directories(builds)]
    for directory in found:
        if not version or _has_version(directory, version):
            return directory
    if found:
        available = ", ".join(sorted({_detect_version(d) for d in found}))
        raise ConfigurationError(
            f"there is no Kubernetes {version} in {store} or {builds}, only {available}: "
            f"run `setup-envtest use {version}`"
        )
    raise ConfigurationError(
        f"etcd and kube-apiserver were not found: neither in setup-envtest's store, {store}, nor in {builds}. "
        f"Run `setup-envtest use{' ' + version if version else ''}` or `python -m devcluster build` in a checkout of "
        "Steersman, or set KUBEBUILDER_ASSETS to a directory that has both"
    )


def setup_envtest_store() -> Path:
    """Store of setup-envtest, with one directory ``version-os-arch`` per download."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "io.kubebuilder.envtest" / "k8s"
    return Path(_xdg("XDG_DATA_HOME", ".local/share"), "kubebuilder-envtest", "k8s")


def _xdg(variable: str, default: str) -> Path:
    return Path(os.environ.get(variable) or Path.home() / default)


def _check_directory(directory: Path, version: str, origin: str) -> Path:
    if not directory.is_dir():
        raise ConfigurationError(
            f"{origin}{directory} is not a directory; it should have {' and '.join(REQUIRED_BINARIES)}"
        )
    for name in REQUIRED_BINARIES:
        if not (directory / name).exists():
            raise ConfigurationError(f"{origin}{directory} has no {name}: point KUBEBUILDER_ASSETS at a complete set")
    if version and not _has_version(directory, version):
        raise ConfigurationError(f"{origin}{directory} has Kubernetes {_detect_version(directory)}, not {version}")
    return directory.resolve()


def _store_directories(store: Path) -> list[Path]:
    """Complete sets for this machine, the newest version first."""
    machine = _GO_ARCHITECTURES.get(platform.machine(), platform.machine())
    pattern = re.compile(rf"(\d+)\.(\d+)\.(\d+)(-\w[\w.]*)?-{sys.platform}-{machine}")
    versions: list[tuple[tuple[int, int, int, bool, str], Path]] = []
    for directory in store.glob(f"*-{sys.platform}-{machine}"):
        if (found := pattern.fullmatch(directory.name)) and _is_complete(directory):
            major, minor, patch, rest = found.groups()
            # A pre-release such as 1.36.0-rc.1 is older than 1.36.0.
            versions.append(((int(major), int(minor), int(patch), not rest, rest or ""), directory))
    return [directory for _, directory in sorted(versions, reverse=True)]


def _devcluster_directories(builds: Path) -> list[Path]:
    found = [d for d in builds.glob("*/bin") if _is_complete(d)]
    return sorted(found, key=lambda d: d.stat().st_mtime, reverse=True)


def _is_complete(directory: Path) -> bool:
    return all((directory / name).exists() for name in REQUIRED_BINARIES)


def _has_version(directory: Path, version: str) -> bool:
    prefix = version.removeprefix("v").removesuffix(".x")
    return f"{_detect_version(directory)}.".startswith(f"{prefix}.")


def _detect_version(directory: Path) -> str:
    """Version from the directory name or the program, such as ``1.36.2``."""
    if found := re.match(r"\d+\.\d+\.\d+", directory.name):
        return found[0]
    try:
        completed = subprocess.run(
            [directory / "kube-apiserver", "--version"], capture_output=True, text=True, check=True, timeout=30
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(f"{directory / 'kube-apiserver'} does not print its version: {error}") from None
    return completed.stdout.strip().rpartition(" v")[2]
