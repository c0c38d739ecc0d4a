"""An HTTPS server with the instance's changeable certificate."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

CONNECTION_TIMEOUT_SECONDS = 10.0
_CONNECTION_LIMIT = 16


class TlsServer:
    """Serves in threads, with a limit of connections.

    Args:
        handler: of requests.
        certificates: directory with `tls.crt` and `tls.key`. Changed files apply to new connections.
        host: address to listen on. Defaults to all addresses of both families that the node has.
        port: TCP port; 0 chooses a free one.
    """

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], certificates: Path, host: str = "", port: int = 0
    ) -> None:
        # A node without IPv6 has no address of that family.
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104
        self._http = _Server((host, port), handler, certificates)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._http.server_address[1])

    def start(self, name: str) -> None:
        """Serve in a background thread of this name."""
        threading.Thread(target=self._http.serve_forever, name=name, daemon=True).start()

    def stop(self) -> None:
        """Stop serving and close the port."""
        self._http.shutdown()
        self._http.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], certificates: Path) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._certificates = certificates
        self._context: ssl.SSLContext | None = None
        self._version: tuple[int, int] | None = None
        self._connections = threading.BoundedSemaphore(_CONNECTION_LIMIT)
        super().__init__(address, handler)

    def server_bind(self) -> None:
        if self.address_family == socket.AF_INET6:
            # One socket for both families, whatever the default of the node is.
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._connections.acquire(blocking=False):
            return self.shutdown_request(request)
        return super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        # The handshake waits for the client, so it runs in the thread of the connection.
        try:
            request.settimeout(CONNECTION_TIMEOUT_SECONDS)
            try:
                encrypted = self._current_context().wrap_socket(request, server_side=True)
            except (OSError, ValueError):
                return self.shutdown_request(request)
            return super().process_request_thread(encrypted, client_address)
        finally:
            self._connections.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            sys.stderr.write(f"steersman-instance: a request failed: {error!r}\n")

    def _current_context(self) -> ssl.SSLContext:
        files = (self._certificates / "tls.crt", self._certificates / "tls.key")
        version = (files[0].stat().st_mtime_ns, files[1].stat().st_mtime_ns)
        if self._context is None or version != self._version:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*files)
            self._context, self._version = context, version
        return self._context
