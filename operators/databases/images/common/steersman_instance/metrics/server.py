"""HTTPS server of metrics and history, with the instance's certificate."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qs

from prometheus_client import CollectorRegistry, MetricsHandler

from ..tls_server import CONNECTION_TIMEOUT_SECONDS, TlsServer
from .history.recorder import DEFAULT_RESOLUTION, RESOLUTIONS, History
from .snapshot import Snapshot

PORT = 9187
HISTORY_PATH = "/history"


class MetricsServer:
    """An HTTPS server with the paths ``/metrics`` and ``/history``.

    Args:
        snapshot: the values.
        history: recorded values. The query parameter `resolution` selects the spacing of points.
        certificates: directory with `tls.crt` and `tls.key`. Changed files apply to new connections.
        host: address to listen on. Defaults to all addresses of both families that the node has.
        port: TCP port. Defaults to 9187; 0 chooses a free one.
    """

    def __init__(
        self, snapshot: Snapshot, history: History, certificates: Path, host: str = "", port: int = PORT
    ) -> None:
        registry = CollectorRegistry()
        registry.register(snapshot)
        self._server = TlsServer(_handler(registry, history), certificates, host, port)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._server.port

    def start(self) -> None:
        """Serve in a background thread."""
        self._server.start("metrics-server")

    def stop(self) -> None:
        """Stop serving and close the port."""
        self._server.stop()


def _handler(registry: CollectorRegistry, history: History) -> type[MetricsHandler]:
    class Handler(MetricsHandler):
        timeout = CONNECTION_TIMEOUT_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the name is that of http.server
            path, _, query = self.path.partition("?")
            if path == "/metrics":
                return super().do_GET()
            if path == HISTORY_PATH:
                return self._send_history(query)
            return self.send_error(404, f"the paths are /metrics and {HISTORY_PATH}")

        def _send_history(self, query: str) -> None:
            [resolution] = parse_qs(query).get("resolution", [DEFAULT_RESOLUTION])[-1:]
            if resolution not in RESOLUTIONS:
                self.send_error(400, f"the parameter resolution is {' or '.join(RESOLUTIONS)}")
                return
            body = json.dumps(history.to_json(resolution), separators=(",", ":")).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    Handler.registry = registry
    return Handler
