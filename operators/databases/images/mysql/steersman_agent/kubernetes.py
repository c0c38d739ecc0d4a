"""What the agent reads and writes at the API server, as its pod's ServiceAccount. Every call has an end."""

from __future__ import annotations

import json
import os
import ssl
from collections.abc import Mapping
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_ANSWER = 3.0  # seconds that the API server has for a request


class Unavailable(Exception):
    """The API server did not answer, or not with what was asked for."""


class Conflict(Exception):
    """Somebody else has written since it was read."""


class ApiServer:
    """The API server of this pod's cluster. Not for several threads at once."""

    def __init__(self) -> None:
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Python 3.13 wants extensions of certificates that many clusters' authorities do not give.
        self._trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._connection: HTTPSConnection | None = None

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object, None where there is none. Raises Unavailable."""
        status, body = self._ask("GET", path)
        if status == 404:
            return None
        return self._accept(path, status, body)

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object after a merge patch. Raises Conflict, Unavailable."""
        status, body = self._ask("PATCH", f"{path}?fieldManager=steersman-agent", change)
        if status == 409:
            raise Conflict(str(body.get("message", "")))
        return self._accept(path, status, body)

    def _accept(self, path: str, status: int, body: Mapping[str, Any]) -> Mapping[str, Any]:
        if status != 200:
            raise Unavailable(f"{path}: {status} {body.get('message', '')}")
        return body

    def _ask(self, method: str, path: str, change: Mapping[str, Any] | None = None) -> tuple[int, Mapping[str, Any]]:
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Accept": "application/json"}
        if change is not None:
            headers["Content-Type"] = "application/merge-patch+json"
        try:
            if self._connection is None:
                self._connection = HTTPSConnection(self._host, self._port, timeout=_ANSWER, context=self._trust)
            self._connection.request(method, path, None if change is None else json.dumps(change), headers)
            response = self._connection.getresponse()
            return response.status, json.loads(response.read() or b"{}")
        except (OSError, HTTPException, ValueError) as error:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            raise Unavailable(f"{path}: {error!r}") from error


def named(kind: str, namespace: str, name: str, group: str = "api/v1") -> str:
    """The path of one object."""
    return f"/{group}/namespaces/{namespace}/{kind}/{name}"


def labelled(kind: str, namespace: str, selector: str) -> str:
    """The path of a list, as it is in etcd and at one moment."""
    return f"/api/v1/namespaces/{namespace}/{kind}?labelSelector={quote(selector)}"
