"""Client of the API server with the pod's ServiceAccount.

Each request has a deadline.
"""

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
RESPONSE_TIMEOUT_SECONDS = 3.0  # seconds that the API server has for a request
_RETRY_DELAYS = (0.1, 0.2, 0.5, 1.0)  # seconds before each retry; the last one repeats


@dataclass(frozen=True)
class ApiRequest:
    """A request to the API server.

    With `body` it is a merge patch.
    """

    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class ApiResponse:
    """A response of the API server."""

    status: int
    body: Mapping[str, Any]

    @property
    def error_message(self) -> str:
        """Message of a refusal."""
        return f"{self.status} {self.body.get('message', '')}"


class ApiUnavailable(Exception):
    """The API server did not respond, or not as expected."""


class ApiClient:
    """The API server of this pod's cluster. Not thread-safe.

    Args:
        manager: field manager of its writes.
    """

    def __init__(self, manager: str) -> None:
        self.manager = manager
        self._host = os.environ["KUBERNETES_SERVICE_HOST"]
        self._port = int(os.environ.get("KUBERNETES_SERVICE_PORT", "443"))
        self._trust = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
        # Python 3.13 requires extensions of certificates that the authorities of many clusters lack.
        self._trust.verify_flags &= ~ssl.VERIFY_X509_STRICT
        self._connection: HTTPSConnection | None = None

    def send(self, request: ApiRequest) -> ApiResponse:
        """Return any response. Raises ApiUnavailable."""
        reused = self._connection is not None
        try:
            return self._send(request)
        except (OSError, HTTPException, ValueError) as error:
            self._close()
            # The server may have closed an idle connection.
            if reused and not isinstance(error, TimeoutError):
                return self.send(request)
            raise ApiUnavailable(f"{request.path}: {error!r}") from error

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def _send(self, request: ApiRequest) -> ApiResponse:
        if self._connection is None:
            self._connection = HTTPSConnection(
                self._host, self._port, timeout=RESPONSE_TIMEOUT_SECONDS, context=self._trust
            )
        headers = {"Authorization": f"Bearer {(ACCOUNT / 'token').read_text()}", "Accept": "application/json"}
        if request.body is None:
            self._connection.request("GET", request.path, headers=headers)
        else:
            headers["Content-Type"] = "application/merge-patch+json"
            path = f"{request.path}?fieldManager={self.manager}"
            self._connection.request("PATCH", path, json.dumps(request.body), headers)
        response = self._connection.getresponse()
        return ApiResponse(response.status, json.loads(response.read() or b"{}"))


def send_with_retries(
    server: ApiClient, expected_statuses: Collection[int], deadline: float, request: ApiRequest
) -> ApiResponse:
    """Retry until a response has one of the expected statuses.

    Args:
        deadline: of the monotonic clock. A running request still has its own timeout.

    Raises:
        ApiUnavailable: the deadline has passed.
    """
    for attempt in range(sys.maxsize):
        try:
            answer = server.send(request)
            if answer.status in expected_statuses:
                return answer
            last_error = f"{request.path}: {answer.error_message}"
        except ApiUnavailable as error:
            last_error = str(error)
        sys.stderr.write(f"{server.manager}: {last_error}\n")
        if time.monotonic() >= deadline:
            raise ApiUnavailable(last_error)
        time.sleep(_RETRY_DELAYS[min(attempt, len(_RETRY_DELAYS) - 1)])
    raise AssertionError


def run_requests(requests: Generator[ApiRequest, ApiResponse, T], send: Callable[[ApiRequest], ApiResponse]) -> T:
    """Send the requests of a generator and return its result."""
    try:
        request = next(requests)
        while True:
            request = requests.send(send(request))
    except StopIteration as end:
        return end.value
