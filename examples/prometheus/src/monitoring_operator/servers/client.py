"""HTTP client of Prometheus."""

from __future__ import annotations

import asyncio
import http.client
import time

import msgspec

from monitoring_operator.servers.report import ServerReport, Unreachable, parse_report

_TIMEOUT_SECONDS = 5.0
_RESPONSE_SECONDS = 10.0
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class _Data(msgspec.Struct):
    yaml: str


class _Response(msgspec.Struct):
    data: _Data


class HttpServers:
    """Queries servers over HTTP.

    Args:
        port: port of the servers.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    async def report(self, ip: str) -> ServerReport:
        """Return the report of the server at ``ip``.

        Raises:
            Unreachable: there is no valid response within seconds.
        """
        return await asyncio.to_thread(self._report, ip)

    def _report(self, ip: str) -> ServerReport:
        try:
            configuration = msgspec.json.decode(self._get(ip, "/api/v1/status/config"), type=_Response)
            # Read after the configuration, so that it is not older.
            metrics = self._get(ip, "/metrics").decode()
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unreachable(f"{ip}: {error}") from error
        return parse_report(configuration.data.yaml, metrics)

    def _get(self, ip: str, path: str) -> bytes:
        connection = http.client.HTTPConnection(ip, self._port, timeout=_TIMEOUT_SECONDS)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            content = _read(response)
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ValueError(f"{path} has the status {response.status}")
        if len(content) > _MAX_RESPONSE_BYTES:
            raise ValueError(f"{path} has over {_MAX_RESPONSE_BYTES} bytes")
        return content


def _read(response: http.client.HTTPResponse) -> bytes:
    """Return the content, or one byte more than the limit.

    The timeout of the connection applies to each of its bytes, so a server that trickles them needs a deadline.
    """
    deadline = time.monotonic() + _RESPONSE_SECONDS
    content = bytearray()
    while chunk := response.read1(min(_CHUNK_BYTES, _MAX_RESPONSE_BYTES + 1 - len(content))):
        content += chunk
        if time.monotonic() > deadline:
            raise TimeoutError(f"the response is not complete after {_RESPONSE_SECONDS:.0f} s")
    return bytes(content)
