"""What somebody does by hand on the servers of a cluster: it is undone within 30 s, and an Event says so."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from database_support.e2e.cluster import ClusterUnderTest

RESTORED_WITHIN_SECONDS = 30.0


class SqlDrift(NamedTuple):
    """A statement, the question that is answered otherwise since, the answer once all is well, and what is told."""

    statement: str
    query: str
    expected: str
    event: tuple[str, str]


def assert_reverted(
    cluster: ClusterUnderTest,
    name: str,
    harm: Mapping[str, SqlDrift],
    database: str,
    record: Callable[[str, object], None],
) -> None:
    """Does one after the other in a database, and waits for each to be undone, and to be told of an object."""
    for what, one in harm.items():
        with cluster.namespace_client.expecting_events(name, one.event):
            cluster.sql(one.statement, database)
            began = time.monotonic()
            cluster.until(
                f"{what} is healed",
                lambda one=one: cluster.sql(one.query, database) == one.expected,
                RESTORED_WITHIN_SECONDS,
            )
            record(f"{what}: seconds until it is healed", round(time.monotonic() - began, 1))
