"""Clients of a pooler that read, many at once, each over one connection for as long as it lasts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from database_support.e2e.cluster import ClusterUnderTest, SqlClient

READERS = 6
"""Through each pooler: enough that a pod of it has some, and of replicas each has some, nearly always."""


class ReadResult(NamedTuple):
    """When it came, whether from a replica, and from which address."""

    moment: float
    recovery: bool
    server: str


@dataclass
class ReadLog:
    """What they have seen.

    Attributes:
        recovery: whether it is replicas that should answer.
    """

    client: SqlClient
    recovery: bool
    results: list[ReadResult] = field(default_factory=list[ReadResult])
    errors: list[str] = field(default_factory=list[str])

    def read_log(self) -> None:
        """Reads their log."""
        lines = self.client.cluster.namespace_client.kubectl("logs", self.client.name, seconds=30).splitlines()
        self.errors = [line for line in lines if line.startswith("error: ")]
        told = (line.split() for line in lines if not line.startswith("error: "))
        self.results = [ReadResult(float(moment), recovery == "t", server) for moment, recovery, server in told]

    def came_from_expected_role(self, since: float, seconds: float = 5) -> bool:
        """Whether answers came for so long after ``since``, the latest of so many seconds from the right servers."""
        if not self.has_results_since(since + seconds):
            return False
        latest = (answer for answer in self.results if answer.moment > self.results[-1].moment - seconds)
        return all(answer.recovery == self.recovery for answer in latest)

    def has_results_since(self, since: float) -> bool:
        """Whether somebody was answered after ``since``."""
        self.read_log()
        return bool(self.results) and self.results[-1].moment > since

    @property
    def wrong_role_seconds(self) -> float:
        """For how many seconds somebody was answered by a server of the other role."""
        moments = [answer.moment for answer in self.results if answer.recovery != self.recovery]
        return max(moments) - min(moments) if moments else 0.0


@contextmanager
def reading(cluster: ClusterUnderTest, secret: str, host: str, *, recovery: bool) -> Generator[ReadLog]:
    """Clients that read meanwhile; they have all begun."""
    client = SqlClient(cluster, secret, host, name=f"readers-{secrets.token_hex(3)}")
    client.start(("python3", "/source/reader.py", client.login, str(READERS)))
    seen, began = ReadLog(client, recovery), time.time()
    try:
        cluster.until("they are answered", lambda: seen.came_from_expected_role(began, 2), 60)
        yield seen
    finally:
        client.stop()
