"""Looking, planning and doing for one thing, and again where somebody else was at it too."""

from __future__ import annotations

import asyncio

from .claims import require_permitted
from .desired import DesiredDatabase, DesiredUser
from .errors import EngineError, ObjectsMissing, Raced
from .plan import Change, Plan
from .port import Contents
from .sessions import Sessions
from .survey import Scope, Survey

ATTEMPTS = 5
"""How often to look again when the server's state changes under our hands."""


async def settle(
    contents: Contents,
    sessions: Sessions,
    desired: DesiredDatabase | DesiredUser,
    survey: Survey | None = None,
    timeout: float = 15.0,
) -> tuple[Change, ...]:
    """Make the server hold what is desired, and say what was changed; nothing is written where all is as desired.

    Args:
        survey: a look at the server that is young enough, with the desired in its scope. `None` looks anew.
        timeout: seconds for each look and what is done after it, where some steps have minutes of their own.

    Raises `ObjectsMissing` where the rest is done but something has to be waited for, and what `Contents` raises;
    the error's `changes` are what had been changed before.
    """
    loop = asyncio.get_running_loop()
    changes: tuple[Change, ...] = ()
    failure: EngineError | None = None
    for _ in range(ATTEMPTS):
        deadline = loop.time() + timeout
        try:
            if survey is None:
                survey = await contents.survey(sessions, Scope.of([desired]), max(deadline - loop.time(), 0.0))
            require_permitted(survey, desired)
            plan = planned(contents, survey, desired)
            if plan:
                changes += await contents.carry_out(sessions, plan, max(deadline - loop.time(), 0.0))
            failure = ObjectsMissing(plan.missing) if plan.missing else None
            if not (plan and plan.again):
                break
        except Raced as raced:
            changes += raced.changes
            failure = raced.failure
        except EngineError as error:
            error.changes = changes + error.changes
            raise
        survey = None
    if failure is not None:
        failure.changes = changes
        raise failure
    return changes


def planned(contents: Contents, survey: Survey, desired: DesiredDatabase | DesiredUser) -> Plan:
    """The steps from what is there to what is desired. Raises what `Contents.plan_database` and `plan_user` raise."""
    if isinstance(desired, DesiredDatabase):
        return contents.plan_database(survey, desired)
    return contents.plan_user(survey, desired)
