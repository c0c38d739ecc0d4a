"""``steersman-instance read-replica``: process 1 of the container of a read replica's server.

Without a complete copy of the primary it takes one. Then it runs the server, and takes a new copy when the data
cannot follow the primary any more. A read replica has nothing that the primary does not have, so its data are never
repaired.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steersman_pod.volumes import VolumeInUse, lock_volume

from ..agent import SignalWaiter, Version, watched_version
from ..metrics.exporter import installed_postgresql_version
from ..paths import PATHS, InstancePaths
from ..recovery.server import ServerFailed, control_data
from ..tls_server import TlsServer
from .base_copy import BaseCopy, PrimaryUnavailable, set_aside, system_identifier
from .configuration import Declaration, InvalidDeclaration, Upstream, load, number_of
from .cpu import CpuMeter
from .diagnosis import Diagnosis
from .lag import LagTracker
from .report import PORT, Report, State, handler
from .server import PROGRAM, StandbyServer, data_version

DECLARATION = Path("/etc/steersman/read-replica/declaration.json")
INTERVAL_SECONDS = 1.0
_BACKOFF_SECONDS = (1.0, 2.0, 5.0, 10.0, 30.0)
RESTART_STAGGER_SECONDS = 30.0
"""Delay of a restart for parameters, times the replica's number.

So not all read replicas restart at once.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Environment of a read replica. Tests have their own.

    Attributes:
        pod: name of the pod.
        version: major version of the programs.
        program: of the server.
        listen: addresses of the server.
        port: of the server.
    """

    pod: str
    version: str
    paths: InstancePaths = PATHS
    declaration: Path = DECLARATION
    program: str = PROGRAM
    listen: str = "*"
    port: int = 5432


class ReadReplica:
    """Program that advances in steps of some seconds.

    Only a restart of the server may take longer.
    """

    def __init__(self, setup: Setup, clock: Callable[[], float] = time.monotonic) -> None:
        self._setup, self._clock = setup, clock
        self._declaration: Declaration | None = None
        self._copy: BaseCopy | None = None
        self._server: StandbyServer | None = None
        self._lag, self._diagnosis, self._cpu = LagTracker(), Diagnosis(), CpuMeter()
        self._failures, self._not_before = 0, 0.0
        self._restart_at: float | None = None
        self._watched: Version | None = None
        self.report = Report(at=clock())

    def step(self) -> None:
        """Do what is due, and update the report."""
        now = self._clock()
        self._cpu.sample(now)
        try:
            self._read_declaration()
        except InvalidDeclaration as error:
            # A server that runs keeps its configuration.
            if self._declaration is None:
                self._publish(now, "Waiting", message=str(error))
                return
        if self._copy is not None:
            self._follow_copy(self._copy, now)
        elif self._server is not None:
            self._follow_server(self._server, now)
        elif now >= self._not_before:
            self._begin(now)
        else:
            self.report = replace(self.report, at=now)

    def stop(self) -> None:
        """Stop the server or the copy."""
        self._publish(self._clock(), "Stopping")
        for process in (self._copy, self._server):
            if process is not None:
                process.stop()

    @property
    def _upstream(self) -> Upstream:
        assert self._declaration is not None
        setup = self._setup
        return Upstream(self._declaration, setup.paths, setup.pod, setup.listen, setup.port)

    def _read_declaration(self) -> None:
        """Read changed files, and have the server read them."""
        paths = self._setup.paths
        version = watched_version((self._setup.declaration, paths.tls / "tls.crt", paths.peer / "tls.crt"))
        authorities = watched_version((paths.tls / "ca.crt", paths.peer / "ca.crt"))
        if self._declaration is not None and self._watched == (*version, *authorities):
            return
        self._declaration = load(self._setup.declaration)
        self._watched = (*version, *authorities)
        if self._server is not None:
            try:
                self._server.reload(self._upstream)
            except (ServerFailed, OSError) as error:
                # The server keeps its configuration. The next step tries again.
                sys.stderr.write(f"steersman: the configuration cannot be reloaded: {error}\n")
                self._watched = None

    def _begin(self, now: float) -> None:
        """Start the server, or a copy without usable data."""
        try:
            if reason := self._unusable():
                self._begin_copy(now, reason)
                return
            self._server = StandbyServer(self._upstream, self._read_line, self._setup.program)
        except (PrimaryUnavailable, ServerFailed, OSError) as error:
            self._fail(now, str(error))
            return
        self._publish(now, "Starting")

    def _unusable(self) -> str:
        """Return why the data are of no use, or empty."""
        data = self._setup.paths.postgresql_data
        version = data_version(data)
        if not version:
            return "there is no complete copy"
        if version != self._setup.version:
            return f"the copy is PostgreSQL {version}'s"
        try:
            control = control_data(data)
        except ServerFailed as error:
            return str(error)
        if self._diagnosis.verdict:
            return self._diagnosis.verdict
        try:
            identifier = system_identifier(self._upstream)
        except PrimaryUnavailable:
            # It serves what it has, as far as its lag permits.
            return ""
        return "" if identifier == control.get("Database system identifier") else "the primary has other data"

    def _begin_copy(self, now: float, reason: str) -> None:
        sys.stderr.write(f"steersman: taking a new base copy: {reason}\n")
        self._copy = BaseCopy(self._upstream)
        self._diagnosis, self._lag = Diagnosis(), LagTracker()
        self._publish(now, "Copying", message=reason)

    def _follow_copy(self, copy: BaseCopy, now: float) -> None:
        try:
            code = copy.poll()
        except (PrimaryUnavailable, OSError) as error:
            self._copy = None
            self._fail(now, str(error))
            return
        if code is None:
            self._publish(now, "Copying", message=self.report.message)
            return
        self._copy = None
        if code == 0:
            self._succeed()
            self._publish(now, "Starting")
        else:
            self._fail(now, f"the copy failed: {copy.last_line}")

    def _follow_server(self, server: StandbyServer, now: float) -> None:
        if (code := server.poll()) is not None:
            server.close_session()
            self._server = None
            self._fail(now, f"the server ended with code {code}: {server.last_line}")
            return
        state = server.state()
        if state is None:
            self._publish(now, "Starting" if self._lag.seconds(now) is None else "Disconnected")
        elif state.promoted:
            self._discard_promoted(now)
            return
        else:
            if state.streaming:
                self._diagnosis.streams()
                self._succeed()
            heard_at = now - state.silent_seconds if state.streaming else None
            self._lag.observe(now, heard_at=heard_at, known=state.known, replayed=state.replayed)
            observed: State = "Streaming" if state.streaming else "Disconnected"
            message = "" if state.streaming else self._diagnosis.message or server.last_line
            self._publish(now, observed, message=message, connections=state.connections)
            if state.needs_restart:
                stagger = number_of(self._setup.pod) * RESTART_STAGGER_SECONDS
                self._restart_at = now + stagger if self._restart_at is None else self._restart_at
            else:
                self._restart_at = None
        if self._diagnosis.verdict:
            self._stop_server(now, self._diagnosis.verdict)
        elif self._restart_at is not None and now >= self._restart_at:
            self._stop_server(now, "parameters need a restart")

    def _discard_promoted(self, now: float) -> None:
        """Stop a server that a user promoted. Its data may have diverged, so the next step starts a copy."""
        self._stop_server(now, "it was promoted, and a read replica is never a primary")
        try:
            set_aside(self._setup.paths)
        except OSError as error:
            self._fail(now, str(error))

    def _stop_server(self, now: float, reason: str) -> None:
        """Stop the server. The next step starts it, or a copy."""
        sys.stderr.write(f"steersman: stopping the server: {reason}\n")
        assert self._server is not None
        self._publish(now, "Starting", message=reason)
        self._server.stop()
        self._server, self._restart_at = None, None

    def _read_line(self, line: str) -> None:
        self._diagnosis.read(line, self._clock())

    def _succeed(self) -> None:
        self._failures, self._not_before = 0, 0.0

    def _fail(self, now: float, message: str) -> None:
        self._not_before = now + _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS) - 1)]
        self._failures += 1
        if message != self.report.message:
            sys.stderr.write(f"steersman: {message}\n")
        self._publish(now, "Waiting", message=message)

    def _publish(self, now: float, state: State, *, message: str = "", connections: int | None = None) -> None:
        self.report = Report(
            at=now,
            state=state,
            lag_seconds=self._lag.seconds(now),
            max_lag_seconds=0.0 if self._declaration is None else self._declaration.max_lag_seconds,
            connections=connections,
            cpu_cores=self._cpu.cores,
            message=message,
        )


def run(setup: Setup, waiter: SignalWaiter, port: int = PORT) -> None:
    """Run a read replica until a signal."""
    replica = ReadReplica(setup)
    server = TlsServer(handler(lambda: replica.report, time.monotonic), setup.paths.tls, port=port)
    server.start("read-replica-report")
    while not waiter.stopping:
        replica.step()
        waiter.wait(INTERVAL_SECONDS)
    replica.stop()
    server.stop()


def main(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> int:
    """Run the program: ``read-replica``."""
    if arguments:
        sys.stderr.write("usage: steersman-instance read-replica\n")
        return 2
    os.umask(0o077)
    try:
        lock_volume(PATHS.volume)
    except VolumeInUse as error:
        sys.stderr.write(f"steersman: {error}\n")
        return 1
    version = str(installed_postgresql_version() // 10000)
    run(Setup(pod=environment["POD_NAME"], version=version), SignalWaiter())
    return 0
