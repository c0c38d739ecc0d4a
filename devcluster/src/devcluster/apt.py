"""Debian packages: those that the nodes need, and others by name."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from devcluster.errors import CommandFailed, Unsupported
from devcluster.progress import Progress

NODE_PACKAGES = (
    "containerd",
    "runc",
    "containernetworking-plugins",
    "iptables",
    "iproute2",
    "util-linux",
    "xfsprogs",
)
APT_LISTS = Path("/var/lib/apt/lists")
LISTS_MAX_AGE_SECONDS = 24 * 3600.0  # seconds for which the package lists are good


def missing(packages: tuple[str, ...] = NODE_PACKAGES) -> list[str]:
    """Return the packages that are not installed."""
    output = subprocess.run(
        ["dpkg-query", "--show", "--showformat", "${Package} ${db:Status-Status}\n", *packages],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    installed = {line.split()[0] for line in output.splitlines() if line.endswith(" installed")}
    return [package for package in packages if package not in installed]


def ensure(progress: Progress, packages: tuple[str, ...] = NODE_PACKAGES) -> None:
    """Install missing packages without prompts.

    Raises Unsupported where there is no apt, CommandFailed with apt's output.
    """
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        raise Unsupported(f"only Debian and its kin are known here; install by hand: {' '.join(packages)}")
    to_install = missing(packages)
    if not to_install:
        return
    if os.geteuid() != 0:
        raise Unsupported(f"installing packages needs root: sudo apt-get install {' '.join(to_install)}")
    with progress.step(f"Install with apt, 1 minute at most: {' '.join(to_install)}"):
        if not _lists_are_fresh():
            _apt("update")
        try:
            _apt("install", "--yes", "--no-install-recommends", *to_install)
        except CommandFailed:
            _apt("update")  # the lists named a version that the mirror has replaced
            _apt("install", "--yes", "--no-install-recommends", *to_install)


def _lists_are_fresh() -> bool:
    times = [path.stat().st_mtime for path in APT_LISTS.glob("*_Packages*")]
    return bool(times) and time.time() - max(times) < LISTS_MAX_AGE_SECONDS


def _apt(*arguments: str) -> None:
    done = subprocess.run(
        ["apt-get", "-o", "DPkg::Lock::Timeout=300", *arguments],
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise CommandFailed(f"apt-get {' '.join(arguments)}: {(done.stderr or done.stdout).strip()[-2000:]}")
