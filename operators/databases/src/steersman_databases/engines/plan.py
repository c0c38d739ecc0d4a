"""What is to be done on a server: steps, in their order, as values that can be compared and shown."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from .actions import Action
from .errors import EngineError, Raced, ServerUnreachable, SqlFailed


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that was changed on the server, ready to become an Event.

    `reason` is an Event reason (`DatabaseCreated`), `message` a sentence part (`created database orders`).
    """

    reason: str
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Step:
    """One action, which happens wholly or not at all, and what to tell of it (nothing where another step does).

    `alone`: nothing needs it to be done before, so what comes after it is done even where the server refuses it.
    `takes`: it takes something away and needs nothing to be done before, so it is done even where the server refuses
    what comes before. Whoever is to lose something must not keep it because he cannot be given something else.
    """

    action: Action
    change: Change | None = None
    alone: bool = False
    takes: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Steps, and what they had to leave out.

    `missing` are sentence parts (`table shop.public.orders is not there yet`): what is waited for, or never comes.
    `again`: there may be more to do, which is seen only after these steps. `failure`, raised once they are done, is
    why there are no more.
    """

    steps: tuple[Step, ...] = ()
    missing: tuple[str, ...] = ()
    again: bool = False
    failure: EngineError | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.steps)

    def __add__(self, other: Plan) -> Plan:
        again, failure = self.again or other.again, self.failure or other.failure
        return Plan(self.steps + other.steps, self.missing + other.missing, again, failure)


Hands = AbstractAsyncContextManager[Callable[[Action], Awaitable[None]]]
"""Does one action after the other on a server, for as long as it is entered."""


async def carried_out(plan: Plan, hands: Hands) -> tuple[Change, ...]:
    """Do the steps in their order, and say what was changed; an `EngineError` says it in its `changes`.

    What the server refused is raised at the end, all in one.
    """
    changes: list[Change] = []
    refused: list[SqlFailed] = []
    stopped = False
    try:
        async with hands as do:
            for step in plan.steps:
                if stopped and not step.takes:
                    continue
                try:
                    await do(step.action)
                except SqlFailed as failure:
                    refused.append(failure)
                    stopped = stopped or not step.alone
                except ServerUnreachable:
                    # What it was busy with until there was no time left tells more.
                    if refused:
                        raise SqlFailed.of(refused) from None
                    raise
                except Raced:
                    # It may be because of that, and to look again would be of no use.
                    if not stopped:
                        raise
                else:
                    changes += [step.change] if step.change else []
            if refused:
                raise SqlFailed.of(refused)
        if plan.failure is not None:
            raise plan.failure
    except EngineError as error:
        error.changes = tuple(changes)
        raise
    return tuple(changes)
