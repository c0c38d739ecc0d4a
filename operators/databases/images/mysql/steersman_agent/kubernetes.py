"""What the agent reads and writes at the API server, as its pod's ServiceAccount. Every call has an end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from steersman_pod import api_server
from steersman_pod.api_server import Answer, Request, Unavailable


class Conflict(Exception):
    """Somebody else has written since it was read."""


class ApiServer:
    """The API server of this pod's cluster. Not for several threads at once."""

    def __init__(self) -> None:
        self._server = api_server.ApiServer("steersman-agent")

    def get(self, path: str) -> Mapping[str, Any] | None:
        """The object, None where there is none. Raises Unavailable."""
        answer = self.answer(Request(path))
        return None if answer.status == 404 else answer.body

    def patch(self, path: str, change: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object after a merge patch. Raises Conflict, Unavailable."""
        answer = self.answer(Request(path, change))
        if answer.status == 409:
            raise Conflict(str(answer.body.get("message", "")))
        if answer.status == 404:
            raise Unavailable(f"{path}: {answer.problem}")
        return answer.body

    def answer(self, request: Request) -> Answer:
        """Of status 200, 404 or 409. Raises Unavailable."""
        answer = self._server.ask(request)
        if answer.status not in (200, 404, 409):
            raise Unavailable(f"{request.path}: {answer.problem}")
        return answer


def named(kind: str, namespace: str, name: str, group: str = "api/v1") -> str:
    """The path of one object."""
    return f"/{group}/namespaces/{namespace}/{kind}/{name}"


def labelled(kind: str, namespace: str, selector: str) -> str:
    """The path of a list, as it is in etcd and at one moment."""
    return f"/api/v1/namespaces/{namespace}/{kind}?labelSelector={quote(selector)}"
