"""Simulations pass correct operators and report faulty ones."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import uuid

import pytest

from framework_support.dns_operator import FINALIZER, DnsZone, WidgetReconciler, new_widget, scenario, setup_for
from framework_support.widget import Widget
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.client import HttpRequest, MergePatch
from steersman.controller import Request, Result, add_finalizer, remove_finalizer
from steersman.errors import Conflict, SteersmanError
from steersman_testing import InMemoryApiServer, VirtualClock, run_virtual
from steersman_testing.simulation import Fault, FaultPlan, SimulationFailed, SimulationReport, World, simulate
from steersman_testing.simulation.deletion_audit import EMPTY_AUDIT
from steersman_testing.simulation.request_info import object_path, resource_of
from steersman_testing.simulation.run import SimulationConfig, SimulationRun
from steersman_testing.simulation.run_result import RunResult, run_once
from steersman_testing.simulation.trace import Trace, TraceEntry

WHOLE = os.environ.get("SIMULATE") == "whole"


def observe_records(zone: DnsZone) -> dict[str, int]:
    return zone.records


def sweep(reconciler: type[WidgetReconciler], **settings: object) -> SimulationReport:
    options: dict[str, object] = {"random_runs": 10, "observe": observe_records, **settings}
    return simulate(setup_for(reconciler), scenario, outside=DnsZone, kinds=[Widget], **options)  # type: ignore[arg-type]


def sweep_failure(reconciler: type[WidgetReconciler], **settings: object) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as failed:
        sweep(reconciler, **settings)
    return failed.value


def test_simulate_correct_operator_passes() -> None:
    report = sweep(WidgetReconciler, **({} if WHOLE else {"max_places": 30, "random_runs": 3}))
    assert report.is_complete == WHOLE
    assert report.random_runs == (10 if WHOLE else 3)
    assert report.places["crash-before"] > report.places["crash-after"] > 5
    assert report.places["error"] == 5
    assert f"{sum(report.tried.values())} of {sum(report.places.values())} places" in str(report)


class RemembersInMemory(WidgetReconciler):
    """Keeps cleanup tasks only in memory."""

    def __init__(self, context: object) -> None:
        super().__init__(context)  # type: ignore[arg-type]
        self.upserted: set[str] = set()

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        if widget.metadata.deletion_timestamp is not None:
            if request.name in self.upserted:
                await self.zone.delete_record(request.name)
            await remove_finalizer(self.client, widget, FINALIZER)
            return Result()
        if request.name not in self.upserted:
            await add_finalizer(self.client, widget, FINALIZER)
        await self.zone.upsert_record(request.name, widget.spec.depth)
        self.upserted.add(request.name)
        await self.apply_config_map(widget)
        return Result()


def test_a_crash_that_forgets() -> None:
    found = sweep_failure(RemembersInMemory)
    assert found.problems == ("external system .a: 1, not absent",)
    assert str(found.plan).startswith(("crash",))
    story = str(found)
    assert "the process is killed" in story
    assert "the operator is restarted" in story
    assert f"reproduce  simulate(…, replay='{found.plan}')" in story


class ActsBeforeFinalizer(WidgetReconciler):
    """Creates an external resource before it adds a finalizer."""

    async def reconcile(self, request: Request) -> Result:
        widget = await self.client.get(Widget, request)
        if widget.metadata.deletion_timestamp is None:
            await self.zone.upsert_record(request.name, widget.spec.depth)
        return await super().reconcile(request)


def test_an_effect_before_its_finalizer() -> None:
    found = sweep_failure(ActsBeforeFinalizer)
    assert "external system .a: 1, not absent" in found.problems
    # The Widget is deleted while the operator is down or has not observed it.
    assert found.plan.faults[0].seconds == 300


class WritesAtEachStart(WidgetReconciler):
    """Writes without a change."""

    async def apply_config_map(self, widget: Widget) -> None:
        await super().apply_config_map(widget)
        metadata = str(self.runtime.clock.now())
        await self.client.live.patch(
            ConfigMap, widget.key, MergePatch({"metadata": {"annotations": {"drawn": metadata}}})
        )


async def create_and_settle(world: World[DnsZone]) -> None:
    await world.client.create(new_widget())


def test_simulate_reports_write_without_change() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_for(WritesAtEachStart), create_and_settle, outside=DnsZone, kinds=[Widget])
    assert failed.value.problems == ("needless write after a restart with nothing to do: PATCH configmaps default/a",)
    assert "fails without any fault" in str(failed.value)


class SwallowsErrors(WidgetReconciler):
    """Treats each error as permanent."""

    async def apply_config_map(self, widget: Widget) -> None:
        try:
            await super().apply_config_map(widget)
        except SteersmanError:
            return


def test_a_refusal_that_is_swallowed() -> None:
    found = sweep_failure(SwallowsErrors)
    assert found.problems == ("ConfigMap default/a .data.depth: '1', not '2'",)


class DeletesBeforeApply(WidgetReconciler):
    """Deletes an object before it applies it."""

    async def apply_config_map(self, widget: Widget) -> None:
        try:
            await super().apply_config_map(widget)
        except Conflict:
            await self.client.delete(ConfigMap, widget.key)
            raise


def test_simulate_reports_deletion_of_live_object() -> None:
    found = sweep_failure(DeletesBeforeApply)
    assert found.problems == ("DELETE configmaps default/a: it survives without faults",)
    assert str(found.plan).startswith("409:")


class PollsPeriodically(WidgetReconciler):
    """Polls an external system with a delay every ten seconds."""

    async def reconcile(self, request: Request) -> Result:
        await super().reconcile(request)
        for _ in range(20):
            await asyncio.sleep(0)
        return Result(requeue_after=10.0)


def test_simulate_reads_are_not_activity() -> None:
    config = SimulationConfig(setup_for(PollsPeriodically), scenario, DnsZone, kinds=(Widget,))
    assert run_once(config, FaultPlan()).violations == ()


class RetriesWithoutDelay(WidgetReconciler):
    """Retries errors without a delay."""

    async def reconcile(self, request: Request) -> Result:
        try:
            await super().reconcile(request)
        except SteersmanError:
            self.hurried = True
        if getattr(self, "hurried", False):
            await self.client.live.get(ConfigMap, request)
            return Result(requeue_after=0.1)
        return Result()


def test_calls_without_bound() -> None:
    found = sweep_failure(RetriesWithoutDelay)
    assert found.problems[0].startswith("more than ")
    assert found.problems[0].endswith(" of them: GET configmaps")


class KeepsTwoConfigMaps(WidgetReconciler):
    """Creates the new ConfigMap before it deletes the old one."""

    async def apply_config_map(self, widget: Widget) -> None:
        for depth in (1, 2):
            key = f"map-{depth}"
            metadata = meta.ObjectMeta(name=key, namespace=widget.metadata.namespace)
            if depth == widget.spec.depth:
                await self.client.apply(core.ConfigMap(metadata=metadata), owner=widget)


def at_most_one_config_map(world: World[DnsZone]) -> None:
    names = [c.metadata.name for c in world.read_all(ConfigMap)]
    assert len(names) <= 1, f"there are {names}"


def test_an_invariant() -> None:
    found = sweep_failure(KeepsTwoConfigMaps, invariants=[at_most_one_config_map])
    assert found.problems[0].startswith("at_most_one_config_map does not hold: there are ['map-1', 'map-2']")
    assert not found.plan.faults


def test_a_scenario_that_fails() -> None:
    async def failing_scenario(world: World[DnsZone]) -> None:
        await world.wait_until("a second widget", lambda: len(world.read_all(Widget)) == 2, seconds=10)

    with pytest.raises(SimulationFailed, match="not within 10 s: a second widget"):
        simulate(setup_for(WidgetReconciler), failing_scenario, outside=DnsZone, kinds=[Widget])


def test_a_replay() -> None:
    found = sweep_failure(DeletesBeforeApply)
    with pytest.raises(SimulationFailed) as again:
        sweep(DeletesBeforeApply, replay=str(found.plan))
    assert str(again.value) == str(found)
    sweep(WidgetReconciler, replay=str(found.plan))
    with pytest.raises(ValueError, match="'crash' is not a fault"):
        sweep(WidgetReconciler, replay="crash")


def test_simulate_minimizes_faults() -> None:
    found = sweep_failure(DeletesBeforeApply)
    more = f"{found.plan},429:40,concurrent-write:41"
    with pytest.raises(SimulationFailed) as again:
        sweep(DeletesBeforeApply, replay=more)
    assert again.value.plan == found.plan


@pytest.mark.parametrize(
    "stale", ["429:999", "concurrent-write:2", "409:2", "delay-watch:widgets.shop.example.com:99+5"]
)
def test_simulate_replay_without_effect_raises(stale: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(stale)} was not injected"):
        sweep(WidgetReconciler, replay=stale)


PROGRAM = """
from framework_support.dns_operator import *
from steersman_testing.simulation import FaultPlan
from steersman_testing.simulation.run_result import run_once
from steersman_testing.simulation.run import SimulationConfig
config = SimulationConfig(setup=setup_for(WidgetReconciler), scenario=scenario, outside=DnsZone, kinds=(Widget,))
plans = "", "crash-after:2,delay-watch:configmaps:1+300", "lease:2,409:3", "delayed-write:1+25"
plans = *plans, "relist:widgets.shop.example.com:2+300"
for plan in plans:
    print(run_once(config, FaultPlan.parse(plan)).trace.to_text())
"""


def test_every_run_repeats_byte_for_byte() -> None:
    def traces(seed: str) -> bytes:
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
        return done.stdout

    first = traces("1")
    assert first == traces("2")
    assert len(first.splitlines()) > 40


async def failing_actor(world: World[DnsZone]) -> None:
    await world.sleep(1)
    raise LookupError("no pods")


def test_an_actor_that_fails() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            setup_for(WidgetReconciler), create_and_settle, outside=DnsZone, kinds=[Widget], actors=[failing_actor]
        )
    assert failed.value.problems == ("the actor failing_actor fails: LookupError: no pods",)


def failing_invariant(world: World[DnsZone]) -> None:
    raise LookupError("no such record")


def test_an_invariant_that_fails() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            setup_for(WidgetReconciler),
            create_and_settle,
            outside=DnsZone,
            kinds=[Widget],
            invariants=[failing_invariant],
        )
    assert failed.value.problems == ("the invariant failing_invariant fails: LookupError: no such record",)


def test_the_world_outside_repeats() -> None:
    async def play(world: World[str]) -> None:
        await world.sleep(1)

    def seen(seed: int) -> object:
        config = SimulationConfig(
            setup=lambda manager, outside: None,
            scenario=play,
            outside=lambda: uuid.uuid4().hex,
            observe=str,
            seed=seed,
        )
        return run_once(config, FaultPlan()).snapshots

    assert seen(0) == seen(0)
    assert seen(0) != seen(1)


def test_simulate_garbage_collector_failure_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(server: InMemoryApiServer) -> None:
        raise LookupError("no owner")

    monkeypatch.setattr(InMemoryApiServer, "collect_garbage_async", fails)
    found = sweep_failure(WidgetReconciler).problems
    assert found == ("the garbage collector fails: LookupError: no owner",)


def test_simulate_failing_late_call_is_reported() -> None:
    config = SimulationConfig(setup=setup_for(WidgetReconciler), scenario=scenario, outside=DnsZone, kinds=(Widget,))
    run = SimulationRun(config, FaultPlan(), VirtualClock(), 1000)

    async def play() -> None:
        async def arrive() -> None:
            raise LookupError("no such verb")

        run.delay_write(Fault("delayed-write", 3, seconds=25), arrive)
        await asyncio.sleep(30)

    run_virtual(play())
    assert run.active_faults == []
    assert run.violations == ["delayed call 3 fails: LookupError: no such verb"]


def test_simulate_uninjected_fault_excuses_no_write() -> None:
    journal = Trace()
    journal.add(TraceEntry(0, "operator", "GET widgets default/a", "200", 1, "", "read"))
    journal.add(TraceEntry(1, "operator", "CREATE configmaps default/a", "201", 2, "", "create", True))
    idle = Fault("concurrent-write", 2)

    def needless(*struck: Fault) -> int:
        done = RunResult(FaultPlan((idle,)), journal, (), EMPTY_AUDIT, (), {}, struck, 2, 1)
        return len(done.idle_writes)

    assert needless() == 1
    assert needless(idle) == 0


@pytest.mark.parametrize("part", ["", "/status", "/scale", "/resize", "/eviction"])
def test_object_path_ignores_subresource(part: str) -> None:
    request = HttpRequest(method="PATCH", path=f"/api/v1/namespaces/default/pods/a{part}")
    assert object_path(request) == "/api/v1/namespaces/default/pods/a"


@pytest.mark.parametrize("part", ["", "/status", "/finalize"])
def test_a_namespace_has_parts_of_its_own(part: str) -> None:
    request = HttpRequest(method="PUT", path=f"/api/v1/namespaces/shop{part}")
    assert resource_of(request) == "namespaces"
    assert object_path(request) == "/api/v1/namespaces/shop"
