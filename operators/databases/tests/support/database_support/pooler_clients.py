"""Clients of a pooler that read, many at once, each over one connection for as long as it lasts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from database_support.cluster_under_test import Client, ClusterUnderTest

READERS = 6
"""Through each pooler: enough that a pod of it has some, and of replicas each has some, nearly always."""


class Answer(NamedTuple):
    """When it came, whether from a replica, and from which address."""

    moment: float
    recovery: bool
    server: str


@dataclass
class Reading:
    """What they have seen.

    Attributes:
        recovery: whether it is replicas that should answer.
    """

    client: Client
    recovery: bool
    answers: list[Answer] = field(default_factory=list[Answer])
    errors: list[str] = field(default_factory=list[str])

    def look(self) -> None:
        """Reads their log."""
        lines = self.client.cluster.place.kubectl("logs", self.client.name, seconds=30).splitlines()
        self.errors = [line for line in lines if line.startswith("error: ")]
        told = (line.split() for line in lines if not line.startswith("error: "))
        self.answers = [Answer(float(moment), recovery == "t", server) for moment, recovery, server in told]

    def is_right(self, since: float, seconds: float = 5) -> bool:
        """Whether answers came for so long after ``since``, the latest of so many seconds from the right servers."""
        if not self.goes_on(since + seconds):
            return False
        latest = (answer for answer in self.answers if answer.moment > self.answers[-1].moment - seconds)
        return all(answer.recovery == self.recovery for answer in latest)

    def goes_on(self, since: float) -> bool:
        """Whether somebody was answered after ``since``."""
        self.look()
        return bool(self.answers) and self.answers[-1].moment > since

    @property
    def strayed(self) -> float:
        """For how many seconds somebody was answered by a server of the other role."""
        moments = [answer.moment for answer in self.answers if answer.recovery != self.recovery]
        return max(moments) - min(moments) if moments else 0.0


@contextmanager
def reading(cluster: ClusterUnderTest, secret: str, host: str, *, recovery: bool) -> Generator[Reading]:
    """Clients that read meanwhile; they have all begun."""
    client = Client(cluster, secret, host, name=f"readers-{secrets.token_hex(3)}")
    client.start(("python3", "/source/reader.py", client.login, str(READERS)))
    seen, began = Reading(client, recovery), time.time()
    try:
        cluster.until("they are answered", lambda: seen.is_right(began, 2), 60)
        yield seen
    finally:
        client.stop()
