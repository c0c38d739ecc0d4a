"""Processor architecture of the images: the host's, or an emulated one.

`$DEVCLUSTER_ARCHITECTURE` is Go's name of the architecture, such as `arm64`. Caches are separate per architecture.
"""

import contextlib
import os
import platform
import subprocess
from pathlib import Path

from devcluster import apt, layout
from devcluster.errors import Unsupported
from devcluster.progress import Progress

MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Kernel names of the architectures, by Go's names."""
NATIVE = {machine: name for name, machine in MACHINES.items()}.get(platform.machine(), platform.machine())
TARGET = os.environ.get("DEVCLUSTER_ARCHITECTURE") or NATIVE
if TARGET not in (*MACHINES, NATIVE):
    raise ValueError(f"DEVCLUSTER_ARCHITECTURE={TARGET}: {' or '.join(MACHINES)}")
IS_EMULATED = TARGET != NATIVE
TARGET_MACHINE = MACHINES.get(TARGET, TARGET)
"""Kernel name of the selected architecture."""

_BINFMT = Path("/proc/sys/fs/binfmt_misc")


def cache_directory(name: str) -> Path:
    """Return the cache directory of the selected architecture."""
    return layout.cache_directory() / (f"{name}-{TARGET}" if IS_EMULATED else name)


def ensure_emulation(progress: Progress) -> None:
    """Register QEMU with the kernel if the architecture is not the host's.

    The registration is machine-wide and lasts until the next boot. Raises Unsupported without root or where
    the kernel cannot, CommandFailed with apt's output.
    """
    if not IS_EMULATED:
        return
    apt.ensure(progress, ("qemu-user-static", "arch-test"))
    if not (_BINFMT / "register").exists():
        subprocess.run(["mount", "-t", "binfmt_misc", "binfmt_misc", str(_BINFMT)], check=False)
    name = f"qemu-{TARGET_MACHINE}"
    if (_BINFMT / name).exists():
        return
    try:
        # Another process may have registered it meanwhile.
        with contextlib.suppress(FileExistsError):
            (_BINFMT / "register").write_text((Path("/usr/lib/binfmt.d") / f"{name}.conf").read_text())
    except OSError as error:
        raise Unsupported(f"programs for {TARGET} cannot be run here: {error}") from error
