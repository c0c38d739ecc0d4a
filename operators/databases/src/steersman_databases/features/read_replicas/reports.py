"""Requests of the state of read replicas, which their program reports."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from steersman_databases.engines.connection.https_get import https_get
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.features.read_replicas.model import ReadReplicaReport

GetReport = Callable[[ServerEndpoint, str], Awaitable[ReadReplicaReport]]
"""Request for the report of a read replica.

Arguments are its endpoint, and the CAs of the cluster's servers in PEM.
"""
_TIMEOUT_SECONDS = 3.0
_LIMIT_BYTES = 65536


async def get_report(endpoint: ServerEndpoint, authorities: str) -> ReadReplicaReport:
    """Return the report of a read replica.

    Raises:
        ServerUnreachable: it does not respond in 3 s, or its response is malformed.
    """
    body = await https_get(
        endpoint, "/status", authorities, limit_bytes=_LIMIT_BYTES, timeout_seconds=_TIMEOUT_SECONDS
    )
    try:
        return parse_report(body)
    except ValueError as error:
        raise ServerUnreachable(endpoint, str(error)) from error


def parse_report(body: bytes) -> ReadReplicaReport:
    """Parse a report.

    Raises:
        ValueError: it is malformed.
    """
    parsed: Any = json.loads(body)
    if not isinstance(parsed, dict):
        raise ValueError("the response is not an object")
    found = cast(Mapping[str, Any], parsed)
    return ReadReplicaReport(
        state=str(found.get("state", "")),
        cpu_cores=_number(found.get("cpu_cores")),
        connections=None if (count := _number(found.get("connections"))) is None else int(count),
    )


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
