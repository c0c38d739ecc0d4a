"""What tests ask of etcd itself."""

from __future__ import annotations

import http.client
import json
import socket
from pathlib import Path
from typing import Any

from steersman.errors import SteersmanError


class EtcdConnection(http.client.HTTPConnection):
    """etcd's JSON gateway, on its Unix socket ``path``."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def __enter__(self) -> EtcdConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def connect(self) -> None:
        """Called by the first request."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))

    def call(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer to ``body``. Raises SteersmanError where etcd refuses."""
        self.request("POST", path, json.dumps(body))
        response = self.getresponse()
        document = json.loads(response.read())
        if response.status != http.client.OK:
            raise SteersmanError(f"etcd refused {path}: {document.get('message', document)}")
        return document
