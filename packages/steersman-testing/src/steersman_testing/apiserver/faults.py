"""Faults that tests inject: rejected requests, lost responses and broken watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError, ApiStatus, ConnectionFailed, error_from_status

RequestMatcher = Callable[[HttpRequest], bool]
InjectedFailure = ApiError | ConnectionFailed
FaultTiming = Literal["before", "after"]

_REASONS = {
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: injected by a test"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "request did not complete within the allotted timeout"),
}


def matching(method: str = "", path: str = "") -> RequestMatcher:
    """Return a predicate for requests.

    Args:
        method: the HTTP method. Empty for any.
        path: a part of the path. Empty for any.
    """
    return lambda request: (not method or request.method == method) and path in request.path


def error_for_status(code: int) -> ApiError:
    """Create the API server's typical error for an HTTP status code.

    Codes without a typical error get an empty reason and the message ``HTTP <code>``.
    """
    reason, message = _REASONS.get(code, ("", f"HTTP {code}"))
    return error_from_status(ApiStatus(message=message, reason=reason, code=code))


@dataclass(slots=True)
class _PlannedFault:
    matches: RequestMatcher
    failure: InjectedFailure
    timing: FaultTiming
    remaining: int


@dataclass(slots=True)
class Faults:
    """Queue of injected faults."""

    _planned: list[_PlannedFault] = field(default_factory=list[_PlannedFault])

    def inject(self, matches: RequestMatcher, failure: InjectedFailure, timing: FaultTiming, times: int) -> None:
        """Inject a failure into the next ``times`` matching requests."""
        self._planned.append(_PlannedFault(matches, failure, timing, times))

    def take_matching(self, request: HttpRequest) -> tuple[InjectedFailure | None, InjectedFailure | None]:
        """Return the failures to raise before and after ``request``."""
        for fault in self._planned:
            if not fault.matches(request):
                continue
            fault.remaining -= 1
            if fault.remaining <= 0:
                self._planned.remove(fault)
            return (fault.failure, None) if fault.timing == "before" else (None, fault.failure)
        return None, None
