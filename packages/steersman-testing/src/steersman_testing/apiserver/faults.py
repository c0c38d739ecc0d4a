"""Faults that a test asks for: refused requests, lost answers, broken watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError, ConnectionFailed, Status, error_from_status

Predicate = Callable[[HttpRequest], bool]
Failure = ApiError | ConnectionFailed
Moment = Literal["before", "after"]

_REASONS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: a test asked for it"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
}


def matching(method: str = "", path: str = "") -> Predicate:
    """Requests of ``method`` whose path contains ``path``; empty means any."""
    return lambda request: (not method or request.method == method) and path in request.path


def failure_for(code: int) -> ApiError:
    """The API server's refusal with an HTTP status code, such as 409 or 503."""
    reason, message = _REASONS.get(code, ("", f"HTTP {code}"))
    return error_from_status(Status(message=message, reason=reason, code=code))


@dataclass(slots=True)
class _Planned:
    matches: Predicate
    failure: Failure
    moment: Moment
    left: int


@dataclass(slots=True)
class Faults:
    """What is planned to go wrong."""

    _planned: list[_Planned] = field(default_factory=list[_Planned])

    def plan(self, matches: Predicate, failure: Failure, moment: Moment, times: int) -> None:
        """Lets the next ``times`` requests that match fail."""
        self._planned.append(_Planned(matches, failure, moment, times))

    def take(self, request: HttpRequest) -> tuple[Failure | None, Failure | None]:
        """What is to be raised before and after carrying out ``request``."""
        for planned in self._planned:
            if not planned.matches(request):
                continue
            planned.left -= 1
            if planned.left <= 0:
                self._planned.remove(planned)
            return (planned.failure, None) if planned.moment == "before" else (None, planned.failure)
        return None, None
