"""How far a reconcile came, and the status that says so."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from datetime import datetime
from random import Random

from steersman.meta import Condition, find_condition, set_condition
from steersman_databases.api import Database, DatabaseStatus
from steersman_databases.api.conditions import DATABASE
from steersman_databases.api.database import Phase
from steersman_databases.engines import Endpoint, EngineError, masked_uri
from steersman_databases.resources import Names

READY = "Ready"
# A DatabaseUser says them in its message: it has one reason for all that is wrong.
_STEPS = DATABASE[READY]

# Words of schedulers, webhooks and servers have no bound of their own; the API server's is 32768.
_LONGEST_MESSAGE = 1024

# Truth is checked again this often: what was changed behind our back must be healed within 30 s.
RECHECK_SECONDS = 10.0

# Reconciles wait for servers most of their time: so many may hang at once, of each kind, and nobody else waits for
# them.
WORKERS = 256


def jittered(seconds: float, random: Random) -> float:
    """Up to a tenth earlier, so that objects do not keep step; never later, since messages promise a time."""
    return seconds * (0.9 + 0.1 * random.random())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What to tell the user: ``reason`` in one CamelCase word, ``message`` with what to do where something is wrong.

    ``retry_after`` is in seconds; None waits for a change. With ``backs_off`` it is tried again after 2 s instead,
    and again after longer and longer, 30 s at most.
    """

    phase: Phase
    reason: str
    message: str
    retry_after: float | None = RECHECK_SECONDS
    backs_off: bool = False


class Blocked(Exception):
    """The database cannot be made ready at the moment; ``outcome`` says why.

    ``endpoint`` is where something may have been made nevertheless; None where that is not known now.
    """

    def __init__(
        self,
        phase: Phase,
        reason: str,
        message: str,
        *,
        retry_after: float | None = RECHECK_SECONDS,
        backs_off: bool = False,
    ) -> None:
        super().__init__(message)
        self.endpoint: Endpoint | None = None
        self.outcome = Outcome(
            phase=phase, reason=reason, message=message, retry_after=retry_after, backs_off=backs_off
        )


def reason_of(error: EngineError, known: Container[str]) -> str:
    """The reason of a condition that knows these reasons: they are called as the errors are."""
    return next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in known), "SqlFailed")


def with_next_step(error: EngineError) -> str:
    """What the error says, and what to do about it."""
    if error.next_step is None:
        return advised(str(error), reason_of(error, _STEPS))
    return f"{error}: {error.next_step}" if error.next_step else str(error)


def advised(message: str, reason: str) -> str:
    """A message, and what to do about what has this reason."""
    step = _STEPS.get(reason, "")
    return f"{message}: {step}" if step else message


def status_of(
    database: Database, outcome: Outcome, endpoint: Endpoint | None, uri_scheme: str, now: datetime
) -> DatabaseStatus:
    """The whole status for ``outcome``; equal to the present one when nothing is new.

    Args:
        endpoint: where applications connect to; None where that is not known now, and what was known stays.
    """
    former = database.status
    connection = former.connection_string
    if endpoint is not None:
        connection = masked_uri(uri_scheme, endpoint, database.username, database.database_name)
    condition = Condition(
        type=READY,
        status="True" if outcome.phase == "Ready" else "False",
        reason=outcome.reason,
        message=shortened(outcome.message),
        observed_generation=database.metadata.generation,
    )
    return DatabaseStatus(
        observed_generation=database.metadata.generation,
        conditions=set_condition(former.conditions, condition, now),
        phase=outcome.phase,
        engine=database.engine,
        connection_string=connection,
        secret_name=None if database.spec.owner else Names(database.key).application_secret.name,
    )


def is_news(former: DatabaseStatus | None, status: DatabaseStatus) -> bool:
    """Whether a user who reads Events has not been told yet what ``status`` says."""
    old = find_condition(former.conditions, READY) if former else None
    new = find_condition(status.conditions, READY)
    assert new is not None
    return old is None or (old.status, old.reason, old.message) != (new.status, new.reason, new.message)


def shortened(message: str) -> str:
    """``message``, cut where it is longer than a condition should be."""
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[: _LONGEST_MESSAGE - 1]}…"
