"""Comparison of two inspections for an object: is it affected by drift?

A comparison of the inspected states comes first, because it is cheap. A plan is made only if they differ.
"""

from __future__ import annotations

from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser
from steersman_databases.engines.sql.inspection import (
    DatabaseContents,
    HeldPrivilege,
    Inspection,
    InspectionScope,
    UngrantablePrivilege,
)
from steersman_databases.engines.sql.reconcile_sql import plan_for
from steersman_databases.engines.sql.sql_engine import SqlEngine

Desired = DesiredDatabase | DesiredUser


def with_rotation_logins(sql_engine: SqlEngine, scope: InspectionScope) -> frozenset[str]:
    """Return the users of a scope with their rotation roles."""
    return scope.users.union(map(sql_engine.rotation_username, scope.users))


def databases_with_privileges(inspection: Inspection, names: frozenset[str]) -> set[str]:
    """Return the databases in which these users hold anything, declared or not."""
    return {
        database for name in names & inspection.users.keys() for database in inspection.users[name].has_privileges_in
    }


def changed_grantees(previous: Inspection, latest: Inspection) -> frozenset[str]:
    """Return the users whose privileges changed, in any database.

    This is computed once per inspection, whatever the number of objects. Without owners, privileges stand for
    ownership.
    """
    changed: set[HeldPrivilege | UngrantablePrivilege] = set()
    nothing = DatabaseContents()
    for name in previous.contents.keys() | latest.contents.keys():
        changed |= (
            previous.contents.get(name, nothing).other_privileges
            ^ latest.contents.get(name, nothing).other_privileges
        )
    for before, after in ((previous.databases, latest.databases), (previous.contents, latest.contents)):
        for name in before.keys() | after.keys():
            changed |= before.get(name, nothing).privileges ^ after.get(name, nothing).privileges
    owners = {(name, state.marked_owner) for name, state in previous.databases.items()}
    owners ^= {(name, state.marked_owner) for name, state in latest.databases.items()}
    return frozenset({name for one in changed for name in (one.grantee, one.grantor)} | {name for _, name in owners})


def needs_reconcile(
    sql_engine: SqlEngine,
    desired: tuple[Desired, ...],
    previous: Inspection | None,
    latest: Inspection,
    changed_grantees: frozenset[str],
) -> bool:
    """Return True if an object has drift.

    Args:
        sql_engine: of the server.
        desired: desired state of the object.
        previous: last inspected state, or None if it is not comparable.
        latest: present state.
        changed: users whose privileges changed.
    """
    for desired_object in desired:
        scope = InspectionScope.of([desired_object])
        names = with_rotation_logins(sql_engine, scope)
        if previous is not None:
            if _uninspected(previous, scope) != _uninspected(latest, scope):
                return True
            if not names & changed_grantees and _snapshot(previous, scope, names) == _snapshot(latest, scope, names):
                continue
        try:
            plan = plan_for(sql_engine, latest, desired_object)
            if plan or (
                plan.missing
                and (previous is None or plan.missing != plan_for(sql_engine, previous, desired_object).missing)
            ):
                return True
        except EngineError:
            return True
    return False


def _snapshot(inspection: Inspection, scope: InspectionScope, names: frozenset[str]) -> tuple[object, ...]:
    """Return the state that an object's plan depends on, without privileges."""
    contents: list[DatabaseContents | None] = [
        inspection.contents.get(database) for database in sorted(scope.contents)
    ]
    users = [(inspection.users.get(name), inspection.host_accounts.get(name)) for name in sorted(names)]
    opened = {name for name in names if not inspection.login_results.get(name, True)}
    return (users, opened, [inspection.databases.get(name) for name in sorted(scope.databases)], contents)


def _uninspected(inspection: Inspection, scope: InspectionScope) -> list[str | None]:
    return [inspection.uninspected.get(database) for database in sorted(scope.contents)]
