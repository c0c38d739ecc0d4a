"""HTTPS server of the page, with the instance's certificate."""

from __future__ import annotations

from pathlib import Path

from prometheus_client import CollectorRegistry, MetricsHandler

from ..tls_server import CONNECTION_TIMEOUT_SECONDS, TlsServer
from .snapshot import Snapshot

PORT = 9187


class MetricsServer:
    """An HTTPS server with the page at ``/metrics``.

    Args:
        snapshot: the values.
        certificates: directory with `tls.crt` and `tls.key`. Changed files apply to new connections.
        host: address to listen on. Defaults to all addresses of both families that the node has.
        port: TCP port. Defaults to 9187; 0 chooses a free one.
    """

    def __init__(self, snapshot: Snapshot, certificates: Path, host: str = "", port: int = PORT) -> None:
        registry = CollectorRegistry()
        registry.register(snapshot)
        self._server = TlsServer(_handler(registry), certificates, host, port)

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


def _handler(registry: CollectorRegistry) -> type[MetricsHandler]:
    class Handler(MetricsHandler):
        timeout = CONNECTION_TIMEOUT_SECONDS

        def do_GET(self) -> None:  # noqa: N802 - the name is that of http.server
            if self.path.partition("?")[0] != "/metrics":
                return self.send_error(404, "the metrics are at /metrics")
            return super().do_GET()

    Handler.registry = registry
    return Handler
