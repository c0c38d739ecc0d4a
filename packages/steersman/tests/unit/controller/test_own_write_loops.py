"""A warning for objects that reconcile because of their own writes."""

from __future__ import annotations

import asyncio

from structlog.testing import capture_logs

from framework_support.controller_env import ControllerEnv, key, running
from framework_support.widget import Widget, widget
from steersman import Manager
from steersman.cache import InformerEvent
from steersman.controller import Reconciler, Request, Result, Trigger, generation_changed
from steersman.controller.own_write_loops import LIMIT, WINDOW_SECONDS, OwnWriteLoops
from steersman_testing import virtual_time

A = Request("orders", "a")
OWN = Trigger("for", InformerEvent(widget("a", 1), widget("a", 2), from_own_write=True))
OTHER = Trigger("for", InformerEvent(widget("a", 1), widget("a", 2)))


def record(loops: OwnWriteLoops, times: int, now: float = 0.0, *triggers: Trigger) -> int:
    """Return the number of warnings."""
    return sum(loops.record(A, list(triggers or (OWN,)), now) for _ in range(times))


def test_loop_of_own_writes_is_reported_once() -> None:
    loops = OwnWriteLoops()
    assert record(loops, LIMIT - 1) == 0
    assert record(loops, 1) == 1
    assert record(loops, 3 * LIMIT, WINDOW_SECONDS + 1) == 0


def test_other_triggers_reset_the_count() -> None:
    loops = OwnWriteLoops()
    record(loops, LIMIT - 1)
    assert record(loops, 1, 0.0, OWN, OTHER) == 0
    assert record(loops, LIMIT - 1) == 0


def test_slow_reconciles_of_own_writes_are_not_reported() -> None:
    loops = OwnWriteLoops()
    assert sum(record(loops, 1, float(second)) for second in range(3 * LIMIT)) == 0


class Counting(Reconciler[Widget]):
    """Writes another value at each reconcile, for a while."""

    async def reconcile(self, obj: Widget) -> Result | None:
        depth = obj.status.depth or 0
        if depth < 2 * LIMIT:
            await self.status(obj, depth=depth + 1)
        return None


@virtual_time
async def test_controller_warns_of_self_triggered_loop() -> None:
    for predicates, warnings in (([], 1), ([generation_changed], 0)):
        world = ControllerEnv()
        world.create_widgets("a")
        manager = Manager(world.server, runtime=world.runtime)
        builder = manager.controller(Widget)
        for predicate in predicates:
            builder = builder.with_predicate(predicate)
        builder.complete(Counting)
        with capture_logs() as logs:
            async with running(manager):
                await asyncio.sleep(1)
        found = [entry for entry in logs if entry["event"].startswith("object reconciles in a loop")]
        assert len(found) == warnings
        if found:
            assert (found[0]["name"], found[0]["log_level"]) == (key("a").name, "warning")
            assert found[0]["triggers"] == ["Widget orders/a updated: status.depth"]
