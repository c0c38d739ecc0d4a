"""Processes that outlive this one, identified by id and start time.

The kernel reuses process ids, so a process is identified by its id and the start time from `/proc/PID/stat`, see
proc(5), field 22.
"""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import CommandFailed, NotReady

# Components get this environment only, without the caller's proxy variables and locale.
ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/nonexistent",
    "LANG": "C.UTF-8",
}


def _stat(pid: int) -> list[str] | None:
    """Return the fields of `/proc/PID/stat` after the command name, or None."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return text.rpartition(")")[2].split()


@dataclass(frozen=True)
class Process:
    """A process of this system.

    `start_time` is in clock ticks since boot.
    """

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> "Process | None":
        """Return the process with this id, or None."""
        stat = _stat(pid)
        return None if stat is None else cls(pid, int(stat[19]))

    def alive(self) -> bool:
        """Return True if it runs and is not a zombie."""
        stat = _stat(self.pid)
        if stat is not None and stat[0] in "ZX":
            # Reap it, so that its id is free.
            self._reap()
            return False
        return stat is not None and int(stat[19]) == self.start_time

    def terminate(self, grace: float = 10.0) -> None:
        """Send SIGTERM, then SIGKILL after `grace` seconds; wait for its end.

        Raises NotReady if even SIGKILL does not end it within 10 s.
        """
        for number, timeout in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
            self._signal(number)
            if self.wait(timeout):
                return
        raise NotReady(f"process {self.pid} does not end")

    def kill(self) -> None:
        """Send SIGKILL, without waiting."""
        self._signal(signal.SIGKILL)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return True if it ended within `seconds`."""
        deadline = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def executable(self) -> Path | None:
        """Return its executable; None for ended processes and kernel threads."""
        try:
            return Path(f"/proc/{self.pid}/exe").readlink()
        except OSError:
            return None

    def child(self) -> "Process | None":
        """Return its only child (nsenter and unshare have one), or None."""
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                stat = _stat(int(entry.name))
                if stat is not None and int(stat[1]) == self.pid and stat[0] not in "ZX":
                    return Process(int(entry.name), int(stat[19]))
        return None

    def _signal(self, number: signal.Signals) -> None:
        if self.alive():
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def _reap(self) -> None:
        try:
            os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return


def _keep_descriptors_private() -> None:
    """Exclude descriptors of this process's parent from its children.

    A lock of flock(1) would otherwise be held for as long as the children run.
    """
    for entry in Path("/proc/self/fd").iterdir():
        if int(entry.name) > 2:
            with suppress(OSError):  # closed meanwhile
                os.set_inheritable(int(entry.name), False)


def start(arguments: Sequence[str], log: Path) -> Process:
    """Start a program in its own session, with output appended to `log`.

    Raises FileNotFoundError if there is no such program in `ENVIRONMENT`'s PATH.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    _keep_descriptors_private()
    pid = os.posix_spawnp(
        arguments[0],
        list(arguments),
        ENVIRONMENT,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
    )
    process = Process.of(pid)
    if process is None:
        raise CommandFailed(f"{arguments[0]} ended at once; see {log}")
    return process


def run(
    arguments: Sequence[str], *, stdin: str = "", seconds: float = 60.0, extra: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end and return its standard output.

    `extra` is added to the bare environment. Raises CommandFailed with the command's output.
    """
    try:
        done = subprocess.run(
            arguments,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env={**ENVIRONMENT, **(extra or {})},
        )
    except subprocess.TimeoutExpired as error:
        raise CommandFailed(f"{' '.join(arguments)}: no end after {seconds:.0f} s") from error
    if done.returncode != 0:
        output = (done.stderr or done.stdout).strip()
        raise CommandFailed(f"{' '.join(arguments)} ended with {done.returncode}: {output}")
    return done.stdout
