"""Result of a reconcile, and the status that reports it."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import TypeVar

from steersman.meta import Condition, Object, find_condition, set_condition
from steersman_databases.api import Database, DatabaseStatus
from steersman_databases.api.database import DatabasePhase
from steersman_databases.api.kstatus import READY, SetCondition, with_kstatus
from steersman_databases.api.reasons import DATABASE_REASONS, advice_for, with_next_step
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.engines import EngineError, ServerEndpoint, masked_uri

C = TypeVar("C", bound=Condition)

# DatabaseUser reports them in its message, because it has one reason for all problems.
_NEXT_STEPS = DATABASE_REASONS[READY]

WEBHOOKS_DISABLED = "WebhooksDisabled"
NOT_SERVED = "NotServed"
NOT_ENFORCED = (
    "the operator serves no webhooks: it does not check the rights of users to the Secrets, images, Services and "
    "volumes that they declare"
)
"""Message of the condition, without the next step."""

# Messages of schedulers, webhooks and servers have no limit. The API server's limit is 32768.
_MAX_MESSAGE_LENGTH = 1024

# Interval of checks: external changes must be corrected within 30 s.
RESYNC_SECONDS = 10.0

# Reconciles mostly wait for servers. This many of each kind may hang at once without blocking others.
MAX_CONCURRENT_RECONCILES = 256


def jittered(seconds: float, random: Random) -> float:
    """Return up to a tenth less, so that reconciles spread.

    Never more, because messages promise a time.
    """
    return seconds * (0.9 + 0.1 * random.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseOutcome:
    """Result for the user.

    Attributes:
        reason: one word in CamelCase.
        message: includes the next step if there is a problem.
        retry_after: seconds, or None to wait for a change.
        backoff: retry after 2 s instead, then with growing delays up to 30 s.
    """

    phase: DatabasePhase
    reason: str
    message: str
    retry_after: float | None = RESYNC_SECONDS
    backoff: bool = False


class ReconcileBlocked(Exception):
    """The object cannot become ready at the moment. `outcome` says why.

    `endpoint` is a server that may already have objects, or None if unknown.
    """

    def __init__(
        self,
        phase: DatabasePhase,
        reason: str,
        message: str,
        *,
        retry_after: float | None = RESYNC_SECONDS,
        backoff: bool = False,
    ) -> None:
        super().__init__(message)
        self.endpoint: ServerEndpoint | None = None
        self.outcome = DatabaseOutcome(
            phase=phase, reason=reason, message=message, retry_after=retry_after, backoff=backoff
        )


def reason_of(error: EngineError, known: Container[str]) -> str:
    """Return the condition's reason of an error, which has the error's name."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in known), "SqlFailed")


def error_reason(error: EngineError) -> str:
    """Return the reason of an error on a server."""
    return reason_of(error, _NEXT_STEPS)


def error_with_advice(error: EngineError) -> str:
    """Return the error's message with the next step."""
    if error.advice is None:
        return with_advice(str(error), error_reason(error))
    return with_next_step(str(error), error.advice)


def with_advice(message: str, reason: str) -> str:
    """Return a message with the next step of its reason."""
    return with_next_step(message, _NEXT_STEPS.get(reason, ""))


def status_of(
    database: Database, outcome: DatabaseOutcome, endpoint: ServerEndpoint | None, uri_scheme: str, now: datetime
) -> DatabaseStatus:
    """Return the complete status, equal to the present one without a change.

    Args:
        endpoint: server for applications. With None the known one stays.
    """
    previous = database.status
    connection = previous.connection_string
    if endpoint is not None:
        connection = masked_uri(uri_scheme, endpoint, database.username, database.database_name)
    # A client that waits for the new generation waits until the pause ends.
    generation = previous.observed_generation if outcome.reason == "Paused" else database.metadata.generation
    condition = Condition(
        type=READY,
        status="True" if outcome.phase == "Ready" else "False",
        reason=outcome.reason,
        message=truncated(outcome.message),
        observed_generation=generation,
    )
    return DatabaseStatus(
        observed_generation=generation,
        conditions=with_kstatus(set_condition(previous.conditions, condition, now), now),
        phase=outcome.phase,
        engine=database.engine,
        connection_string=connection,
        secret_name=None if database.spec.owner else DatabaseNames(database.key).application_secret.name,
        backup=previous.backup,
    )


def is_changed(previous: DatabaseStatus | None, status: DatabaseStatus) -> bool:
    """Return True if readers of Events do not know this status yet."""
    old = find_condition(previous.conditions, READY) if previous else None
    new = find_condition(status.conditions, READY)
    assert new is not None
    return old is None or (old.status, old.reason, old.message) != (new.status, new.reason, new.message)


def truncated(message: str) -> str:
    """Return the message, shortened to the limit of a condition."""
    return message if len(message) <= _MAX_MESSAGE_LENGTH else f"{message[: _MAX_MESSAGE_LENGTH - 1]}…"


def with_webhooks_condition(
    conditions: Iterable[C],
    condition: type[C],
    obj: Object,
    now: datetime,
    *,
    served: bool,
    setter: SetCondition[C] = set_condition,
) -> tuple[C, ...]:
    """Return the conditions of ``obj`` with ``WebhooksDisabled``, or without it.

    Args:
        condition: type of the conditions.
        now: the time of transitions.
        served: True if this operator serves its admission webhooks.
        setter: sets a condition.
    """
    if served:
        return tuple(each for each in conditions if each.type != WEBHOOKS_DISABLED)
    advice = advice_for(type(obj).api_resource.kind, WEBHOOKS_DISABLED, NOT_SERVED)
    disabled = condition(
        type=WEBHOOKS_DISABLED,
        status="True",
        reason=NOT_SERVED,
        message=with_next_step(NOT_ENFORCED, advice),
        observed_generation=obj.metadata.generation,
    )
    return setter(conditions, disabled, now)
