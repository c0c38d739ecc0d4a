"""Reconcile one database or user: inspect, plan, execute."""

from __future__ import annotations

import asyncio

from steersman_databases.engines.connection.pool import ServerSessions

from ..errors import ConcurrentChange, EngineError, ObjectsMissing
from ..password_hashing import verify_expensive
from .desired import DesiredDatabase, DesiredUser
from .inspection import Inspection, InspectionScope
from .ownership_marks import require_references_permitted
from .sql_engine import SqlEngine
from .sql_plan import SqlChange, SqlPlan

ATTEMPTS = 5
"""Inspections after concurrent changes before the reconcile fails."""


async def reconcile(
    sql_engine: SqlEngine,
    sessions: ServerSessions,
    desired: DesiredDatabase | DesiredUser,
    inspection: Inspection | None = None,
    timeout: float = 15.0,
) -> tuple[SqlChange, ...]:
    """Bring the server to the desired state. Nothing is written if it is there already.

    Args:
        sql_engine: SQL engine of the server.
        sessions: connections to the server.
        desired: the database or user.
        inspection: a recent inspection that covers the desired object. `None` inspects again.
        timeout: seconds for each inspection and the steps after it. Some steps have minutes of their own.

    Returns:
        The changes that were made.

    Raises:
        ObjectsMissing: everything else is done, but other objects have to exist first.
        EngineError: as raised by the engine; its `changes` are those made before the failure.
    """
    loop = asyncio.get_running_loop()
    changes: tuple[SqlChange, ...] = ()
    failure: EngineError | None = None
    for _ in range(ATTEMPTS):
        deadline = loop.time() + timeout
        try:
            if inspection is None:
                inspection = await sql_engine.inspect(
                    sessions, InspectionScope.of([desired]), max(deadline - loop.time(), 0.0)
                )
            require_references_permitted(inspection, desired)
            await verify_expensive(sql_engine, inspection, (desired,))
            plan = plan_for(sql_engine, inspection, desired)
            if plan:
                changes += await sql_engine.execute(sessions, plan, max(deadline - loop.time(), 0.0))
            failure = ObjectsMissing(plan.missing) if plan.missing else None
            if not (plan and plan.inspect_again):
                break
        except ConcurrentChange as conflict:
            changes += conflict.changes
            failure = conflict.failure
        except EngineError as error:
            error.changes = changes + error.changes
            raise
        inspection = None
    if failure is not None:
        failure.changes = changes
        raise failure
    return changes


def plan_for(sql_engine: SqlEngine, inspection: Inspection, desired: DesiredDatabase | DesiredUser) -> SqlPlan:
    """Steps from the inspected to the desired state. Raises what `SqlEngine.plan_database` and `plan_user` raise."""
    if isinstance(desired, DesiredDatabase):
        return sql_engine.plan_database(inspection, desired)
    return sql_engine.plan_user(inspection, desired)
