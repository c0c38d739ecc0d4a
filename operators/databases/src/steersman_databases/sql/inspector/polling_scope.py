"""Scope and time limit of one inspection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from steersman_databases.engines.sql.inspection import NOT_INSPECTED, Inspection, InspectionScope
from steersman_databases.sql.inspector.inspected_server import InspectedServer
from steersman_databases.sql.inspector.sql_drift import (
    Desired,
    databases_with_privileges,
    with_rotation_logins,
)

DATABASES_PER_POLL = 12
"""Databases inspected in one poll. Each needs a connection of its own: 10 to 20 ms at both ends."""
POLLS_PER_CYCLE = 3
"""Polls in which each database is inspected once.

Drift in one of them is found within 21 s.
"""
TIMEOUT_SECONDS = 15.0
_DATABASE_TIMEOUT_SECONDS = 0.5


_VISIT_INTERVAL_SECONDS = 600.0
"""Interval of inspections inside a database without writes."""


def scope_of_poll(
    inspected: InspectedServer, desired: Iterable[Desired], write_counters: Mapping[str, int], now: float
) -> InspectionScope:
    """Return the scope of a poll.

    It covers everything outside of databases, and the inside of some databases in turn. Databases without writes
    since their last inspection are left out, because each costs a connection.
    """
    full = InspectionScope.of(desired)
    with_privileges = (
        databases_with_privileges(inspected.last, with_rotation_logins(inspected.sql_engine, full))
        if inspected.last is not None
        else set[str]()
    )
    inside = {**dict.fromkeys(with_privileges, frozenset[str]()), **full.contents}
    required = {d for one in inspected.subscriptions.values() for d in one.uninspected or ()}
    unwritten = {
        name
        for name in inside.keys() & inspected.visits.keys() - required
        if inspected.visits[name].write_counter == write_counters.get(name)
        and now - inspected.visits[name].time < _VISIT_INTERVAL_SECONDS
    }
    # Those count as inspected now, so that they take turns if a change of a role counts as a write in all.
    inspected.last_round_of = {
        name: inspected.round if name in unwritten else inspected.last_round_of.get(name, 0)
        for name in sorted(inside)
    }
    last_rounds = {name: round for name, round in inspected.last_round_of.items() if name not in unwritten}
    rounds = max(1, min(POLLS_PER_CYCLE, -(-len(last_rounds) // DATABASES_PER_POLL)))
    # Databases without any inspection come at once, because there is no state to compare with.
    due = sum(not round or round <= inspected.round - rounds for round in last_rounds.values())
    share = -(-len(last_rounds) // rounds)
    waiting = sorted(last_rounds, key=last_rounds.__getitem__)
    chosen = {name: inside[name] for name in waiting[: max(due, share)]}
    full = replace(full, databases=full.databases | with_privileges)
    return replace(full, contents=chosen, users=frozenset[str](), without_contents=full.all_users)


def timeout_for(scope: InspectionScope) -> float:
    return TIMEOUT_SECONDS + _DATABASE_TIMEOUT_SECONDS * len(scope.contents)


def merged(found: Inspection, previous: Inspection | None) -> Inspection:
    if previous is None:
        return found
    # A database that was left out keeps its last known state.
    inspected = {
        d: reason for d, reason in found.uninspected.items() if reason != NOT_INSPECTED or d not in previous.contents
    }
    retained = {d: i for d, i in previous.contents.items() if d in found.databases and d not in inspected}
    uninspected = {
        d: why for d, why in previous.uninspected.items() if d in found.databases and d not in found.contents
    }
    return replace(found, contents={**retained, **found.contents}, uninspected={**uninspected, **inspected})
