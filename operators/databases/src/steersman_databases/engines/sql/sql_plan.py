"""Plan for a server: ordered steps as plain values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from ..errors import ConcurrentChange, EngineError, ServerUnreachable, SqlFailed
from .sql_actions import SqlAction


@dataclass(frozen=True, slots=True)
class SqlChange:
    """Change on the server, in the form of an Event.

    `reason` is an Event reason (`DatabaseCreated`), `message` a sentence part (`created database orders`).
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class SqlStep:
    """One atomic action and the change that it reports, if any.

    `independent`: no later step needs it, so later steps run although the server rejects this one.
    `always_run`: it revokes something and needs no earlier step, so it runs although the server rejects earlier
    steps. A failed grant must not prevent a revocation.
    """

    action: SqlAction
    change: SqlChange | None = None
    independent: bool = False
    always_run: bool = False


@dataclass(frozen=True, slots=True)
class SqlPlan:
    """Steps, and what could not be planned.

    `missing` are sentence parts about absent objects (`table shop.public.orders is not there yet`). `inspect_again`:
    these steps may reveal more to do. `failure` is raised after the steps and says why there are no more.
    """

    steps: tuple[SqlStep, ...] = ()
    missing: tuple[str, ...] = ()
    inspect_again: bool = False
    failure: EngineError | None = None

    def __bool__(self) -> bool:
        """Return True if there are steps."""
        return bool(self.steps)

    def __add__(self, other: SqlPlan) -> SqlPlan:
        again, failure = self.inspect_again or other.inspect_again, self.failure or other.failure
        return SqlPlan(self.steps + other.steps, self.missing + other.missing, again, failure)


Executor = AbstractAsyncContextManager[Callable[[SqlAction], Awaitable[None]]]
"""Context manager whose value executes actions on a server."""


async def execute(plan: SqlPlan, executor: Executor) -> tuple[SqlChange, ...]:
    """Execute the steps in order and return the changes.

    Raises:
        EngineError: all rejected steps in one error, after the last step. `changes` are those made.
    """
    changes: list[SqlChange] = []
    rejected: list[SqlFailed] = []
    has_stopped = False
    try:
        async with executor as run:
            for step in plan.steps:
                if has_stopped and not step.always_run:
                    continue
                try:
                    await run(step.action)
                except SqlFailed as failure:
                    rejected.append(failure)
                    has_stopped = has_stopped or not step.independent
                except ServerUnreachable:
                    # The step that used up the time explains more than the timeout.
                    if rejected:
                        raise SqlFailed.from_failures(rejected) from None
                    raise
                except ConcurrentChange:
                    # The conflict may follow from the rejected step, so another inspection would not help.
                    if not has_stopped:
                        raise
                else:
                    changes += [step.change] if step.change else []
            if rejected:
                raise SqlFailed.from_failures(rejected)
        if plan.failure is not None:
            raise plan.failure
    except EngineError as error:
        error.changes = tuple(changes)
        raise
    return tuple(changes)
