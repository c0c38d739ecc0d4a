"""Client of toxiproxy's HTTP API, for one proxy.

Source: github.com/Shopify/toxiproxy/tree/v2.5.0#http-api
"""

import http.client
import json
import time
from dataclasses import dataclass
from typing import Any

from devcluster.errors import CommandFailed, NotReady
from devcluster.process import Process

_NAME = "store"
_DIRECTIONS = ("upstream", "downstream")
# toxiproxy's bandwidth has the unit KB/s. Below this rate, each byte is delayed instead.
_MIN_BANDWIDTH_BYTES_PER_SECOND = 1000
_REQUEST_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Toxiproxy:
    """The proxy in front of the object store.

    `host` and `port` are the address of the API.
    """

    host: str
    port: int

    def wait_until_ready(self, process: Process, seconds: float = 10.0) -> None:
        """Wait until the API responds. Raises NotReady if the process ends or time runs out."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._request("GET", "/version")
            except OSError as error:
                if not process.alive() or time.monotonic() > deadline:
                    raise NotReady("toxiproxy does not respond") from error
                time.sleep(0.01)
            else:
                return

    def create(self, listen: str, upstream: str) -> None:
        """Listen on `listen` and forward to `upstream`. Raises CommandFailed if the port is in use."""
        self._request("POST", "/proxies", {"name": _NAME, "listen": listen, "upstream": upstream, "enabled": True})

    def set_listening(self, listening: bool) -> None:
        """Listen on the port, or refuse and end all connections."""
        self._request("POST", f"/proxies/{_NAME}", {"enabled": listening})

    def is_listening(self) -> bool:
        """Return True unless connections are refused."""
        return bool(self._request("GET", f"/proxies/{_NAME}")["enabled"])

    def faults(self) -> list[str]:
        """Return the kinds of the active faults: `blackhole`, `bandwidth`, `latency`."""
        found: list[dict[str, Any]] = self._request("GET", f"/proxies/{_NAME}")["toxics"]
        return sorted({str(toxic["name"]).partition("-")[0] for toxic in found})

    def swallow_all(self) -> None:
        """Accept connections, but forward no data. Ending it closes the connections."""
        self._add("blackhole", "timeout", {"timeout": 0})

    def set_bandwidth(self, bytes_per_second: int) -> None:
        """Limit each connection in each direction."""
        if bytes_per_second >= _MIN_BANDWIDTH_BYTES_PER_SECOND:
            self._add("bandwidth", "bandwidth", {"rate": bytes_per_second // 1000})
        else:
            delay_microseconds = 1_000_000 // bytes_per_second
            self._add("bandwidth", "slicer", {"average_size": 1, "size_variation": 0, "delay": delay_microseconds})

    def set_latency(self, milliseconds: int) -> None:
        """Delay the responses."""
        self._add("latency", "latency", {"latency": milliseconds}, directions=("downstream",))

    def end_faults(self, *kinds: str) -> None:
        """End the faults of these kinds, or all."""
        for toxic in self._request("GET", f"/proxies/{_NAME}")["toxics"]:
            if not kinds or str(toxic["name"]).partition("-")[0] in kinds:
                self._request("DELETE", f"/proxies/{_NAME}/toxics/{toxic['name']}")

    def _add(
        self, kind: str, toxic: str, attributes: dict[str, int], directions: tuple[str, ...] = _DIRECTIONS
    ) -> None:
        self.end_faults(kind)
        for direction in directions:
            content = {"name": f"{kind}-{direction}", "type": toxic, "stream": direction, "attributes": attributes}
            self._request("POST", f"/proxies/{_NAME}/toxics", content)

    def _request(self, method: str, path: str, content: dict[str, Any] | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=_REQUEST_TIMEOUT_SECONDS)
        try:
            connection.request(method, path, None if content is None else json.dumps(content))
            response = connection.getresponse()
            body = response.read()
        finally:
            connection.close()
        if response.status >= 300:
            raise CommandFailed(f"toxiproxy: {method} {path}: {body.decode(errors='replace').strip()}")
        return json.loads(body) if body.startswith(b"{") else {}
