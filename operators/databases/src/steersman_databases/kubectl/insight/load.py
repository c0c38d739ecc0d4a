"""Load of a server: sessions, and the increase of statement counters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from steersman.meta import FrozenStruct

STATEMENT_LIMIT = 10_000
"""Most statements in a sample, those with the most total time."""

CALLS, SECONDS = "calls", "seconds"


class SessionGroup(FrozenStruct):
    """Number of sessions in the same state. `wait` is None for sessions that work."""

    count: int
    state: str
    wait: str | None = None


class RunningStatement(FrozenStruct):
    """A statement that has not ended. `seconds` is its duration so far."""

    session: int
    seconds: float
    user: str | None = None
    database: str | None = None
    wait: str | None = None
    statement: str | None = None


class StatementCounters(FrozenStruct, array_like=True):
    """Totals of a statement since the last reset, by user and database.

    `id` is the query id or the digest. `totals` are in the order of the names in the sample.
    """

    id: str
    user: str
    database: str
    totals: tuple[float, ...]


class LoadSample(FrozenStruct):
    """State and counters of a server at one moment.

    Attributes:
        at: time of the server in seconds since 1970.
        names: names of the totals. The first are `calls` and `seconds`.
        statements: None if the server does not count statements.
    """

    at: float
    sessions: tuple[SessionGroup, ...] = ()
    running: tuple[RunningStatement, ...] = ()
    names: tuple[str, ...] = (CALLS, SECONDS)
    statements: tuple[StatementCounters, ...] | None = None


class StatementLoad(FrozenStruct):
    """Load by a statement between two samples. `increases` are by name, and `seconds` are of all sessions."""

    id: str
    user: str
    database: str
    increases: Mapping[str, float]
    statement: str | None = None


class Load(FrozenStruct):
    """Load of an instance.

    Attributes:
        interval_seconds: time between the two samples.
        totals: sum of all statements. None if the server does not count statements.
        statements: those with the most time.
        note: why there are no statements, and what to do.
    """

    instance: str
    interval_seconds: float
    sessions: tuple[SessionGroup, ...]
    running: tuple[RunningStatement, ...]
    totals: Mapping[str, float] | None = None
    statements: tuple[StatementLoad, ...] = ()
    note: str = ""


def measure(instance: str, before: LoadSample, after: LoadSample, *, limit: int) -> Load:
    """Return the load between two samples, most expensive statements first.

    Raises:
        ValueError: the clock of the server did not advance between the samples.
    """
    elapsed = after.at - before.at
    if elapsed <= 0:
        raise ValueError("the clock of the server did not advance between two samples")
    sessions = tuple(sorted(after.sessions, key=lambda one: (-one.count, one.state, one.wait or "")))
    running = tuple(sorted(after.running, key=lambda one: -one.seconds)[:limit])
    if before.statements is None or after.statements is None:
        return Load(instance=instance, interval_seconds=elapsed, sessions=sessions, running=running)
    loads = statement_loads(after.names, before.statements, after.statements)
    return Load(
        instance=instance,
        interval_seconds=elapsed,
        sessions=sessions,
        running=running,
        totals={name: sum(one.increases[name] for one in loads) for name in after.names},
        statements=tuple(loads[:limit]),
    )


def statement_loads(
    names: Sequence[str], before: Iterable[StatementCounters], after: Iterable[StatementCounters]
) -> list[StatementLoad]:
    """Return the statements that were called between two samples, most time first.

    A counter that is lower than before was reset: all that it shows happened since. The same holds for a statement
    that was not counted before, unless the earlier sample was full, since then its total may be old.
    """
    known = {(one.id, one.user, one.database): one.totals for one in before}
    is_complete = len(known) < STATEMENT_LIMIT
    loads: list[StatementLoad] = []
    for one in after:
        previous = known.get((one.id, one.user, one.database))
        if previous is None and not is_complete:
            continue
        increases = dict(zip(names, _increases(previous, one.totals), strict=True))
        if increases[CALLS] > 0:
            loads.append(StatementLoad(id=one.id, user=one.user, database=one.database, increases=increases))
    return sorted(loads, key=lambda one: (-one.increases[SECONDS], -one.increases[CALLS], one.id))


def _increases(previous: Sequence[float] | None, totals: Sequence[float]) -> Sequence[float]:
    """Return the increases. One counter that is lower than before means that all were reset."""
    if previous is None or any(now < then for now, then in zip(totals, previous, strict=True)):
        return totals
    return [now - then for now, then in zip(totals, previous, strict=True)]
