"""The documented exception tree, and the class of each reason."""

from __future__ import annotations

import inspect
import pickle
import re
from typing import Any

import pytest

from steersman import errors
from steersman.errors import (
    ApiError,
    ApiStatus,
    Conflict,
    ConnectionFailed,
    EvictionBlocked,
    FieldConflict,
    Forbidden,
    NotFound,
    ServerError,
    StatusCause,
    StatusDetails,
    SteersmanError,
    TooManyRequests,
    error_from_status,
)

BRANCH = re.compile(r"^(?P<indent>[ │]*)(?:[├└]── )?(?P<name>[A-Z]\w+)\b(?P<text>.*)$")
# metav1.StatusReason of Kubernetes 1.36, with the status code of the response.
REASONS = {
    "Unauthorized": 401,
    "Forbidden": 403,
    "NotFound": 404,
    "AlreadyExists": 409,
    "Conflict": 409,
    "Gone": 410,
    "Invalid": 422,
    "ServerTimeout": 500,
    "StorageReadError": 500,
    "Timeout": 504,
    "TooManyRequests": 429,
    "BadRequest": 400,
    "MethodNotAllowed": 405,
    "NotAcceptable": 406,
    "RequestEntityTooLarge": 413,
    "UnsupportedMediaType": 415,
    "InternalError": 500,
    "Expired": 410,
    "ServiceUnavailable": 503,
}


def drawn() -> dict[str, str]:
    """Return the base class of each class in the documented tree."""
    parents: dict[str, str] = {}
    path: list[tuple[int, str]] = []
    for line in (inspect.getdoc(errors) or "").splitlines():
        found = BRANCH.match(line)
        if found is None or "defined in" in line or not line.startswith("    "):
            continue
        depth = len(line) - len(line.lstrip(" │├└─"))
        path = [(d, n) for d, n in path if d < depth]
        parents[found["name"]] = path[-1][1] if path else "Exception"
        path.append((depth, found["name"]))
    return parents


def test_documented_error_tree_matches_classes() -> None:
    defined: dict[str, Any] = {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, SteersmanError)
    }
    assert drawn() == {name: value.__base__.__name__ for name, value in defined.items()}


@pytest.mark.parametrize(("reason", "code"), REASONS.items())
def test_every_reason_has_a_class_of_its_own(reason: str, code: int) -> None:
    by_reason = error_from_status(ApiStatus(reason=reason, code=code))
    assert type(by_reason) not in (ApiError, ServerError)
    # Some proxies omit the reason. Then the status code selects the same class or its base class.
    assert isinstance(by_reason, type(error_from_status(ApiStatus(code=code)))) or reason == "ServerTimeout"


def test_connection_failed_is_sent_by_default() -> None:
    assert ConnectionFailed("reset").sent
    assert not ConnectionFailed("refused", sent=False).sent


@pytest.mark.parametrize(
    ("message", "manager"),
    [
        ('conflict with "kubectl" using v1', "kubectl"),
        ('conflict with "hpa" with subresource "scale" using apps/v1 at 2026-01-01T00:00:00Z', "hpa"),
        (r'conflict with "a \"b\" c" using v1', 'a "b" c'),
        (r'conflict with "bell \a" using v1', r"bell \a"),
        ("somebody", ""),
    ],
)
def test_conflict_error_names_field_managers(message: str, manager: str) -> None:
    causes = (
        StatusCause(field=".spec.replicas", message=message, reason="FieldManagerConflict"),
        StatusCause(field="x", message="no conflict", reason="FieldValueInvalid"),
    )
    error = error_from_status(ApiStatus(reason="Conflict", code=409, details=StatusDetails(causes=causes)))
    assert isinstance(error, Conflict)
    assert error.conflicts == (FieldConflict(manager, ".spec.replicas"),)


def test_disruption_budget_error_differs_from_throttling() -> None:
    budget = StatusDetails(causes=(StatusCause(reason="DisruptionBudget"),), retry_after_seconds=10)
    blocked = error_from_status(ApiStatus(reason="TooManyRequests", code=429, details=budget))
    assert (type(blocked), blocked.retry_after) == (EvictionBlocked, 10)
    assert type(error_from_status(ApiStatus(reason="TooManyRequests", code=429))) is TooManyRequests


@pytest.mark.parametrize(("reason", "terminating"), [("NamespaceTerminating", True), ("Other", False)])
def test_forbidden_error_names_terminating_namespace(reason: str, terminating: bool) -> None:
    details = StatusDetails(causes=(StatusCause(reason=reason),))
    refused = error_from_status(ApiStatus(message="no", reason="Forbidden", code=403, details=details))
    assert isinstance(refused, Forbidden)
    assert refused.namespace_terminating is terminating


def test_api_error_can_be_pickled() -> None:
    error = error_from_status(ApiStatus(message="gone", reason="NotFound", code=404), 2.0)
    error.uncertain = True
    found = pickle.loads(pickle.dumps(error))
    assert isinstance(found, NotFound)
    assert (str(found), found.status, found.retry_after, found.uncertain) == ("gone", error.status, 2.0, True)
