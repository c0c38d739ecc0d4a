"""Writes of a primary, by a clock of the test."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from steersman_instance.write_check.check import (
    IDLE_SECONDS,
    INTERVAL_SECONDS,
    RETRY_SECONDS,
    UNANSWERED_SECONDS,
    WriteCheck,
    WriteNotTried,
    WriteRejected,
)


@dataclass
class FakeServer:
    """A server that counts transactions. `failure` is raised by each write."""

    now: float = 1000.0
    transactions: int = 0
    rows: list[float] = field(default_factory=list[float])
    failure: Exception | None = None
    login_failure: Exception | None = None
    during_write: Callable[[], None] = lambda: None
    is_open: bool = False

    def connect(self) -> FakeServer:
        assert not self.is_open, "one session at a time"
        if self.login_failure is not None:
            raise self.login_failure
        self.is_open = True
        return self

    def position(self) -> str:
        return str(self.transactions)

    def write(self, *, with_row: bool) -> None:
        self.during_write()
        if self.failure is not None:
            raise self.failure
        if with_row:
            self.transactions += 1
            self.rows.append(self.now)

    def close(self) -> None:
        self.is_open = False

    def check(self) -> WriteCheck:
        return WriteCheck(self.connect, lambda: "no replica confirms it", lambda: self.now)

    def pass_time(self, check: WriteCheck, seconds: float) -> None:
        """Repeat the write as the thread does."""
        end = self.now + seconds
        while self.now < end:
            self.now += check.step()


def test_idle_server_commits_once_an_hour() -> None:
    server = FakeServer()
    check = server.check()
    server.pass_time(check, 2.5 * IDLE_SECONDS)
    assert len(server.rows) == 3 and check.error == ""


def test_busy_server_commits_each_time() -> None:
    server = FakeServer()
    check = server.check()
    for _ in range(20):
        server.transactions += 1
        server.now += check.step()
    assert len(server.rows) == 20


@pytest.mark.parametrize("at_login", [False, True])
def test_rejection_is_reported_after_second_failure(at_login: bool) -> None:
    server = FakeServer()
    check = server.check()
    check.step()
    rejected = WriteRejected("cannot execute INSERT in a read-only transaction")
    server.failure, server.login_failure = (None, rejected) if at_login else (rejected, None)
    assert check.step() == RETRY_SECONDS and check.error == ""
    check.step()
    assert check.error == "cannot execute INSERT in a read-only transaction"
    server.failure = server.login_failure = None
    assert check.step() == INTERVAL_SECONDS and check.error == ""


def test_failure_of_own_account_keeps_result() -> None:
    server = FakeServer()
    check = server.check()
    server.login_failure = WriteNotTried("the database system is starting up")
    for _ in range(5):
        assert check.step() == INTERVAL_SECONDS and check.error == ""
    server.login_failure, server.failure = None, WriteRejected("read-only")
    server.pass_time(check, 10)
    server.login_failure = WriteNotTried("the database system is shutting down")
    check.step()
    assert check.error == "read-only"


def test_hanging_write_is_reported_while_it_hangs() -> None:
    server = FakeServer()
    check, reported = server.check(), list[str]()

    def hang() -> None:
        for _ in range(2):
            reported.append(check.error)
            server.now += UNANSWERED_SECONDS

    server.during_write = hang
    check.step()
    assert reported == ["", "a write was not acknowledged in 15 s: no replica confirms it"]
    assert check.error == "", "it was acknowledged at last"


def test_replica_reports_nothing() -> None:
    server, stop = FakeServer(failure=WriteRejected("read-only")), threading.Event()
    check, states = server.check(), [True, True, True, False]

    def is_primary() -> bool:
        if len(states) == 1:
            stop.set()
        return states.pop(0)

    stop.wait = lambda timeout=None: stop.is_set()  # type: ignore[method-assign]
    check.run(is_primary, stop)
    assert check.error == "" and not states
