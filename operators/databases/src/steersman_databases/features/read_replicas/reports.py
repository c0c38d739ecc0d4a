"""Requests of the state of read replicas, which their program reports."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # The request goes to an address, so the authority identifies the server. It signs for this cluster only.
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=authorities)
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            return parse_report(await _get(endpoint, context))
    except (OSError, TimeoutError, ValueError) as error:
        raise ServerUnreachable(endpoint, str(error) or "no response") from error


async def _get(endpoint: ServerEndpoint, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context)
    try:
        writer.write(f"GET /status HTTP/1.0\r\nHost: {endpoint.host}\r\n\r\n".encode())
        await writer.drain()
        response = await reader.read(_LIMIT_BYTES)
        while chunk := await reader.read(_LIMIT_BYTES):
            response += chunk
            if len(response) > _LIMIT_BYTES:
                raise ValueError("the response is too large")
        return response.partition(b"\r\n\r\n")[2]
    finally:
        writer.close()


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
