"""A collector that archives the binary log of a server during a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from database_support.servers.mysql_archive import ArchivedServer
from steersman_instance.backup.mysql_base import MysqlArchive
from steersman_instance.binlog.collector import Collector, CollectorSettings
from steersman_instance.gtids import GtidSet

_TIMEOUT_SECONDS = 60.0


@contextmanager
def collecting(primary: ArchivedServer, archive: MysqlArchive) -> Generator[None]:
    """Run a collector during the block, which begins when the archive has its first session."""
    stop = threading.Event()

    def run() -> None:
        collector = Collector(
            primary.server,
            archive.chunks,
            CollectorSettings(interval_seconds=0.2),
            paths=primary.paths,
            wait=lambda _seconds: stop.wait(0.05),
            stopped=stop.is_set,
        )
        while not stop.is_set():
            collector.step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        # A new archive leaves out what was executed before its first session.
        _wait_until(lambda: archive.chunks.sessions() != [], "the first session")
        yield
    finally:
        stop.set()
        thread.join(_TIMEOUT_SECONDS)
        assert not thread.is_alive()


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def wait_until_stored(primary: ArchivedServer, archive: MysqlArchive) -> GtidSet:
    """Wait until every transaction is in the archive. Return them."""
    executed = primary.server.state().executed

    def stored() -> bool:
        newest = archive.chunks.newest()
        return newest is not None and newest.after >= executed

    _wait_until(stored, "every transaction is stored")
    return executed
