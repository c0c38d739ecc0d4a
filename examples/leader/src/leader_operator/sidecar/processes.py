"""Processes of the other containers of this pod.

With ``shareProcessNamespace``, /proc shows the processes of all containers. A container is a control group next to
that of the sidecar. A restarted container is another one. Source: proc(5), cgroups(7), pidfd_open(2).

The module imports the standard library only: a restarted sidecar kills the application before it imports the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

log = logging.getLogger(__name__)

_PAUSE_PID = 1
_POLL_INTERVAL_SECONDS = 0.05
_LOG_INTERVAL_SECONDS = 5.0
_HIERARCHIES = ("pids", "memory", "")
_STATES_WITHOUT_CODE = frozenset("ZX")
_THREADS_FIELD = 17
"""Position of num_threads in stat, after the name."""


ContainerOf = Callable[[Path], "str | None"]
"""Returns the container of a process, given its directory in /proc. None: it is not of the application."""


class PodProcesses:
    """The application: all processes of the pod, except those of this container.

    Args:
        now: seconds of the clock of the deadlines.
        proc: directory of the process information.
        container_of: identifies containers. Defaults to control groups.
    """

    def __init__(
        self, now: Callable[[], float], proc: Path = Path("/proc"), container_of: ContainerOf | None = None
    ) -> None:
        self._now = now
        self._proc = proc
        self._container_of = container_of or sibling_cgroup

    def containers(self) -> Mapping[str, frozenset[int]]:
        """Return the running processes of each container."""
        found: dict[str, set[int]] = {}
        for entry in self._entries():
            if (container := self._container(entry)) is not None:
                found.setdefault(container, set()).add(int(entry.name))
        return {container: frozenset(pids) for container, pids in found.items()}

    def problem(self) -> str:
        """Return why the processes could not be ended; empty if they can."""
        if os.getpid() == _PAUSE_PID:
            return "the pod does not share its process namespace: set shareProcessNamespace: true"
        try:
            os.close(os.pidfd_open(os.getpid()))
        except OSError as error:
            return (
                f"pidfd_open fails: {error.strerror}: "
                "use Linux 5.3 or later, and a container runtime that permits this system call"
            )
        for container, pids in self.containers().items():
            for pid in pids:
                try:
                    os.kill(pid, 0)
                except PermissionError:
                    return (
                        f"process {pid} of container {container} has another user: "
                        "set the same runAsUser in all containers of the pod"
                    )
                except ProcessLookupError:
                    continue
        return "" if self.containers() else self._unknown_processes()

    def _unknown_processes(self) -> str:
        """Return a problem if a process belongs to no container."""
        for entry in self._entries():
            with suppress(FileNotFoundError, ProcessLookupError):
                cgroup = _cgroup(entry)
                if cgroup.startswith("/..") and self._container_of(entry) is None:
                    return (
                        f"process {entry.name} is in the control group {cgroup}, not in a container of this pod: "
                        "remove hostPID from the pod, or use another container runtime"
                    )
        return ""

    async def kill(self) -> None:
        """Kill the application of an earlier process of this container.

        Its term is unknown, so there is no time for SIGTERM.
        """
        await self.stop(self.containers(), self._now())

    async def stop(self, containers: Iterable[str], kill_at: float) -> None:
        """End all processes of ``containers``; return when none is left.

        Args:
            containers: results of ``containers``. Processes that they start meanwhile are ended as well.
            kill_at: time of the clock for SIGKILL. Each process receives SIGTERM before.
        """
        doomed = frozenset(containers)
        terminated: set[int] = set()
        log_at = kill_at + _LOG_INTERVAL_SECONDS
        while pids := self._pids(doomed):
            now = self._now()
            for pid in pids:
                if now >= kill_at:
                    self._send(pid, doomed, signal.SIGKILL)
                elif pid not in terminated:
                    terminated.add(pid)
                    self._send(pid, doomed, signal.SIGTERM)
            if now >= log_at:
                log_at = now + _LOG_INTERVAL_SECONDS
                log.error("processes %s do not end; another pod may lead soon", sorted(pids))
            await asyncio.sleep(_POLL_INTERVAL_SECONDS)

    def _entries(self) -> Iterator[Path]:
        """Yield the directories of all processes except the pause process."""
        for entry in self._proc.iterdir():
            if entry.name.isdecimal() and int(entry.name) != _PAUSE_PID:
                yield entry

    def _pids(self, containers: frozenset[str]) -> frozenset[int]:
        found = self.containers()
        return frozenset(pid for container in containers for pid in found.get(container, ()))

    def _send(self, pid: int, containers: frozenset[str], number: signal.Signals) -> None:
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        try:
            # The number may belong to another process by now.
            if self._container(self._proc / str(pid)) in containers:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        except PermissionError:
            log.error("no permission to end process %s: set the same runAsUser in all containers", pid)
        finally:
            os.close(descriptor)

    def _container(self, entry: Path) -> str | None:
        """Return the container of a process that runs code, or None."""
        try:
            # The kernel cuts names after 15 bytes, also within a character.
            fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            # A zombie runs code if only its main thread has ended.
            has_code = fields[0] not in _STATES_WITHOUT_CODE or int(fields[_THREADS_FIELD]) > 1
            return self._container_of(entry) if has_code else None
        except (FileNotFoundError, ProcessLookupError):
            return None


def sibling_cgroup(entry: Path) -> str | None:
    """Return the control group of another container's process, or None."""
    proc = entry.parent
    pause = ""
    with suppress(FileNotFoundError):
        pause = _cgroup(proc / str(_PAUSE_PID))
    return sibling(_cgroup(proc / "self"), _cgroup(entry), pause)


def sibling(own: str, other: str, pause: str = "") -> str | None:
    """Return the control group of another container of the pod.

    Args:
        own: path of the sidecar. It is ``/`` if the container has a cgroup namespace.
        other: path of a process, as the sidecar reads it.
        pause: path of the pause process. With crun on CRI-O, processes are in a child of their container's group.

    Returns:
        None for the sidecar itself, and for processes outside the pod, which ``hostPID`` would show.
    """
    if own == "/":
        # Not init, which hostPID would show: it is in no child.
        depth = 2 if _parents(pause) == 2 and pause.count("/") >= 4 else 1
        return other.split("/")[depth + 1] if _parents(other) == depth else None
    parent, _, own_name = own.rstrip("/").rpartition("/")
    if not other.startswith(f"{parent}/"):
        return None
    name = other[len(parent) + 1 :].partition("/")[0]
    return None if name == own_name else name


def _parents(path: str) -> int:
    """Return the number of leading ``..``; 0 without another part."""
    return next((number for number, part in enumerate(path.split("/")[1:]) if part != ".."), 0)


def _cgroup(entry: Path) -> str:
    paths: dict[str, str] = {}
    for line in (entry / "cgroup").read_text(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return next((paths[name] for name in _HIERARCHIES if name in paths), "/")
