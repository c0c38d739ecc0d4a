"""Removal of a cluster, also after a crash or a reboot."""

import shutil
from pathlib import Path

from devcluster import cgroups, layout, loop_devices, network
from devcluster.errors import NotReady
from devcluster.process import Process, run
from devcluster.state import State

CNI_STATE = Path("/var/lib/cni")  # mount point in the machines; removed only if it is empty


def cluster_exists() -> bool:
    """Return True if any part of a cluster exists."""
    return layout.STATE.exists() or layout.RUN.exists()


def remove() -> None:
    """Remove all parts of a cluster. Raises NotReady if a process does not end."""
    state = State.load()
    if state is not None and state.is_current_boot():
        for machine in state.machines.values():
            machine.kill()
    for orphan in _orphan_processes():
        orphan.terminate(grace=0)
    network.remove_link()
    cgroups.remove()
    _unmount_all()
    loop_devices.detach(layout.STATE)
    for directory in (layout.STATE, layout.RUN):
        if directory.exists():
            shutil.rmtree(directory)
    # machines of another cluster have mounts there, which would be lost with the directory
    if CNI_STATE.is_dir() and not any(CNI_STATE.iterdir()) and not _other_clusters():
        CNI_STATE.rmdir()


def _other_clusters() -> list[Path]:
    return [path for path in layout.STATE.parent.glob(f"{layout.NAME_PREFIX}*") if path != layout.STATE]


def _orphan_processes() -> list[Process]:
    """Return machine processes without a state file, left by a killed `up`.

    They run the copy of the program below `layout.STATE`, which no other process runs.
    """
    orphans: list[Process] = []
    for entry in Path("/proc").iterdir():
        process = Process.of(int(entry.name)) if entry.name.isdigit() else None
        program = None if process is None else process.executable()
        if process is not None and program is not None and program.is_relative_to(layout.STATE):
            orphans.append(process)
    return orphans


def _unmount_all() -> None:
    """Unmount foreign mounts below our directories, so that deletion spares their content."""
    for directory in (layout.STATE, layout.RUN):
        targets = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for target in sorted(filter(lambda each: Path(each).is_relative_to(directory), targets), reverse=True):
            run(["umount", target])
        remaining = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        if any(Path(target).is_relative_to(directory) for target in remaining):
            raise NotReady(f"something is still mounted below {directory}")
