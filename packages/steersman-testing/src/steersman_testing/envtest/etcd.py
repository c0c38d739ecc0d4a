"""Client for the JSON gateway of etcd."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from steersman.errors import SteersmanError


class EtcdConnection(http.client.HTTPConnection):
    """Connection to the JSON gateway of etcd on a Unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def __enter__(self) -> EtcdConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Connect to the Unix socket."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a POST request and return the response. Raises SteersmanError."""
        self.request("POST", path, json.dumps(body))
        response = self.getresponse()
        document = json.loads(response.read())
        if response.status != http.client.OK:
            raise SteersmanError(f"etcd rejected {path}: {document.get('message', document)}")
        return document
