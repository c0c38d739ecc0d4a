"""HTTP client of Prometheus."""

from __future__ import annotations

import asyncio
import http.client

import msgspec

from monitoring_operator.servers.report import ServerReport, Unreachable, parse_report

_TIMEOUT_SECONDS = 5.0
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


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
            content = response.read(_MAX_RESPONSE_BYTES + 1)
        finally:
            connection.close()
        if response.status != http.client.OK:
            raise ValueError(f"{path} has the status {response.status}")
        if len(content) > _MAX_RESPONSE_BYTES:
            raise ValueError(f"{path} has over {_MAX_RESPONSE_BYTES} bytes")
        return content
