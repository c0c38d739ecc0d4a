"""The processors that images are for: the machine's own, or others, whose programs are emulated here.

`$DEVCLUSTER_ARCHITECTURE` is Go's name of them, as in `arm64`. What is made for others is kept apart.
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
"""What the kernel calls them, by Go's names."""
NATIVE = {machine: name for name, machine in MACHINES.items()}.get(platform.machine(), platform.machine())
TARGET = os.environ.get("DEVCLUSTER_ARCHITECTURE") or NATIVE
if TARGET not in (*MACHINES, NATIVE):
    raise ValueError(f"DEVCLUSTER_ARCHITECTURE={TARGET}: {' or '.join(MACHINES)}")
IS_EMULATED = TARGET != NATIVE
TARGET_MACHINE = MACHINES.get(TARGET, TARGET)
"""What the kernel calls the chosen one."""

_BINFMT = Path("/proc/sys/fs/binfmt_misc")


def cache_directory(name: str) -> Path:
    """A directory for what is made for the chosen one."""
    return layout.cache_directory() / (f"{name}-{TARGET}" if IS_EMULATED else name)


def ensure_emulation(progress: Progress) -> None:
    """Have the kernel run the chosen one's programs, by QEMU if they are not the machine's own.

    It does so until the machine is started anew, for all that runs on it. Raises Unsupported without root or where
    the kernel cannot, CommandFailed with apt's words.
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
        # Somebody else may be faster.
        with contextlib.suppress(FileExistsError):
            (_BINFMT / "register").write_text((Path("/usr/lib/binfmt.d") / f"{name}.conf").read_text())
    except OSError as error:
        raise Unsupported(f"programs for {TARGET} cannot be run here: {error}") from error
