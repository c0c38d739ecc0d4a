"""The API server, asked as the pod's ServiceAccount. Every request has an end."""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
from collections.abc import Callable, Collection, Generator, Mapping
from dataclasses import dataclass
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER = 3.0  # seconds that the API server has for a request
_PAUSES = (0.1, 0.2, 0.5, 1.0)  # seconds before a request is tried again; the last for ever


@dataclass(frozen=True)
class Request:
    """A request to the API server; `body` makes it a merge patch."""

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    status: int
    body: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """Its words, where it refused."""
        return f"{self.status} {self.body.get('message', '')}"


class Unavailable(Exception):
    """The API server did not answer, or not with what was asked for."""


class ApiServer:
    """The API server of this pod's cluster. Not for several threads at once.

    Args:
        manager: the field manager of what it writes.
    """

    def __init__(self, manager: str) -> None:
        self.manager = manager
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Python 3.13 wants extensions of certificates that many clusters' authorities do not give.
        self._trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._connection: HTTPSConnection | None = None

    def ask(self, request: Request) -> Answer:
        """Whatever it answers. Raises Unavailable where it does not."""
        kept = self._connection is not None
        try:
            return self._ask(request)
        except (OSError, HTTPException, ValueError) as error:
            self._close()
            # The server may have closed a connection on which nothing was asked for a while.
            if kept and not isinstance(error, TimeoutError):
                return self.ask(request)
            raise Unavailable(f"{request.path}: {error!r}") from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _ask(self, request: Request) -> Answer:
        if self._connection is None:
            self._connection = HTTPSConnection(self._host, self._port, timeout=ANSWER, context=self._trust)
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Accept": "application/json"}
        if request.body is None:
            self._connection.request("GET", request.path, headers=headers)
        else:
            headers["Content-Type"] = "application/merge-patch+json"
            path = f"{request.path}?fieldManager={self.manager}"
            self._connection.request("PATCH", path, json.dumps(request.body), headers)
        response = self._connection.getresponse()
        return Answer(response.status, json.loads(response.read() or b"{}"))


def persistent(server: ApiServer, understood: Collection[int], deadline: float, request: Request) -> Answer:
    """Asks until there is an answer of a status that is ``understood``. Raises Unavailable after the deadline.

    Args:
        deadline: of the monotonic clock. A request that is on its way then has its time.
    """
    for attempt in range(sys.maxsize):
        try:
            answer = server.ask(request)
            if answer.status in understood:
                return answer
            problem = f"{request.path}: {answer.problem}"
        except Unavailable as error:
            problem = str(error)
        sys.stderr.write(f"{server.manager}: {problem}\n")
        if time.monotonic() >= deadline:
            raise Unavailable(problem)
        time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
    raise AssertionError


def carry_out(requests: Generator[Request, Answer, T], answer: Callable[[Request], Answer]) -> T:
    """Has each request answered and hands the answer back; what comes of them in the end."""
    try:
        request = next(requests)
        while True:
            request = requests.send(answer(request))
    except StopIteration as end:
        return end.value
