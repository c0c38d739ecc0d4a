"""Reports of a read replica: probes, and state for the operator."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler
from typing import Literal

PORT = 8008
"""The members' own port, which the cluster's NetworkPolicy opens for the operator."""
_ALIVE_SECONDS = 120.0

State = Literal["Waiting", "Copying", "Starting", "Streaming", "Disconnected", "Stopping"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """State of a read replica.

    Attributes:
        at: time of the report, in seconds of the monotonic clock.
        lag_seconds: None before it has caught up once.
        connections: of clients.
        cpu_cores: average use in the last minute.
        message: what it waits for, or the last failure.
    """

    at: float
    state: State = "Waiting"
    lag_seconds: float | None = None
    max_lag_seconds: float = 0.0
    connections: int | None = None
    cpu_cores: float | None = None
    message: str = ""

    @property
    def ready(self) -> bool:
        """Return True if it may serve reads."""
        return (
            self.state in ("Streaming", "Disconnected")
            and self.lag_seconds is not None
            and self.lag_seconds <= self.max_lag_seconds
        )

    def to_json(self) -> bytes:
        """Return the body of ``/status``."""
        return json.dumps({**asdict(self), "ready": self.ready}).encode()


def handler(latest: Callable[[], Report], clock: Callable[[], float]) -> type[BaseHTTPRequestHandler]:
    """Return the handler of ``/liveness``, ``/readiness`` and ``/status``.

    Args:
        latest: returns the last report.
        clock: the clock of its time.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            report = latest()
            served = {
                "/liveness": clock() - report.at < _ALIVE_SECONDS,
                "/readiness": report.ready and clock() - report.at < _ALIVE_SECONDS,
                "/status": True,
            }
            if self.path not in served:
                return self.send_error(404)
            body = report.to_json()
            self.send_response(200 if served[self.path] else 503)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes are frequent."""

    return Handler
