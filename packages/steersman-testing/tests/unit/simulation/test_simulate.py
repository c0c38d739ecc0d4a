"""Sweeps: what is right comes through, and each way to be wrong is found and told."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import uuid

import pytest

from framework_support.buoy import Buoy
from framework_support.lighthouse import FINALIZER, Harbour, Keeper, new_buoy, scenario, setup_of
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap
from steersman.client import HttpRequest, MergePatch
from steersman.controller import Request, Result, add_finalizer, remove_finalizer
from steersman.errors import Conflict, SteersmanError
from steersman.meta import ObjectMetaApply
from steersman_testing import InMemoryApiServer, VirtualClock, run_virtual
from steersman_testing.simulation import Fault, Plan, Report, SimulationFailed, World, simulate
from steersman_testing.simulation.journal import Entry, Journal
from steersman_testing.simulation.outcome import Outcome, run_once
from steersman_testing.simulation.removals import NO_REMOVALS
from steersman_testing.simulation.requests import object_path, resource_of
from steersman_testing.simulation.run import Run, Setting


def lamps(harbour: Harbour) -> dict[str, int]:
    return harbour.lamps


def sweep(reconciler: type[Keeper], **settings: object) -> Report:
    chosen: dict[str, object] = {"random_runs": 10, "observe": lamps, **settings}
    return simulate(setup_of(reconciler), scenario, outside=Harbour, kinds=[Buoy], **chosen)  # type: ignore[arg-type]


def failure(reconciler: type[Keeper], **settings: object) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as failed:
        sweep(reconciler, **settings)
    return failed.value


def test_what_is_right_comes_through() -> None:
    report = sweep(Keeper)
    assert report.complete
    assert report.random_runs == 10
    assert report.places["crash-before"] > report.places["crash-after"] > 5
    assert report.places["error"] == 5
    assert f"{sum(report.tried.values())} of {sum(report.tried.values())} places" in str(report)


class RemembersLamps(Keeper):
    """Knows only in memory what has to be put out."""

    def __init__(self, context: object) -> None:
        super().__init__(context)  # type: ignore[arg-type]
        self.lit: set[str] = set()

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        if buoy.metadata.deletion_timestamp is not None:
            if request.name in self.lit:
                await self.harbour.put_out(request.name)
            await remove_finalizer(self.client, buoy, FINALIZER)
            return Result()
        if request.name not in self.lit:
            await add_finalizer(self.client, buoy, FINALIZER)
        await self.harbour.light(request.name, buoy.spec.depth)
        self.lit.add(request.name)
        await self.draw(buoy)
        return Result()


def test_a_crash_that_forgets() -> None:
    found = failure(RemembersLamps)
    assert found.found == ("the outside .a: 1, not absent",)
    assert str(found.plan).startswith(("crash", "down"))
    story = str(found)
    assert "the process is killed" in story
    assert "the operator is started anew" in story
    assert f"reproduce  simulate(…, replay='{found.plan}')" in story


class LightsBeforeTheFinalizer(Keeper):
    """Lights a lamp for which nothing stands that would have it put out."""

    async def reconcile(self, request: Request) -> Result:
        buoy = await self.client.get(Buoy, request)
        if buoy.metadata.deletion_timestamp is None:
            await self.harbour.light(request.name, buoy.spec.depth)
        return await super().reconcile(request)


def test_an_effect_before_its_finalizer() -> None:
    found = failure(LightsBeforeTheFinalizer)
    assert "the outside .a: 1, not absent" in found.found
    # The buoy is deleted while the operator is away, or while it does not see that.
    assert found.plan.faults[0].seconds == 300


class DrawsAtEachStart(Keeper):
    """Writes although nothing has changed."""

    async def draw(self, buoy: Buoy) -> None:
        await super().draw(buoy)
        drawn = str(self.runtime.clock.now())
        await self.client.live.patch(ConfigMap, buoy.key, MergePatch({"metadata": {"annotations": {"drawn": drawn}}}))


async def staying(world: World[Harbour]) -> None:
    await world.client.create(new_buoy())


def test_a_write_with_nothing_to_do() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_of(DrawsAtEachStart), staying, outside=Harbour, kinds=[Buoy])
    assert failed.value.found == ("needless write after a restart with nothing to do: PATCH configmaps default/a",)
    assert "goes wrong without any fault" in str(failed.value)


class GivesUp(Keeper):
    """Takes every refusal for final."""

    async def draw(self, buoy: Buoy) -> None:
        try:
            await super().draw(buoy)
        except SteersmanError:
            return


def test_a_refusal_that_is_swallowed() -> None:
    found = failure(GivesUp)
    assert found.found == ("ConfigMap default/a .data.depth: '1', not '2'",)


class StartsAgain(Keeper):
    """Makes room for what it thinks is in its way."""

    async def draw(self, buoy: Buoy) -> None:
        try:
            await super().draw(buoy)
        except Conflict:
            await self.client.delete(ConfigMap, buoy.key)
            raise


def test_a_deletion_of_what_should_live() -> None:
    found = failure(StartsAgain)
    assert found.found == ("DELETE configmaps default/a: it lives without faults",)
    assert str(found.plan).startswith("409:")


class LooksAround(Keeper):
    """Asks the harbour master every ten seconds, who thinks for a moment."""

    async def reconcile(self, request: Request) -> Result:
        await super().reconcile(request)
        for _ in range(20):
            await asyncio.sleep(0)
        return Result(requeue_after=10.0)


def test_who_only_looks_around_is_no_unrest() -> None:
    setting = Setting(setup_of(LooksAround), scenario, Harbour, kinds=(Buoy,))
    assert run_once(setting, Plan()).violations == ()


class Hurries(Keeper):
    """Never rests once something was refused."""

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
    found = failure(Hurries)
    assert found.found[0].startswith("more than ")
    assert found.found[0].endswith(" of them: GET configmaps")


class TwoCharts(Keeper):
    """Draws the new chart before it destroys the old one."""

    async def draw(self, buoy: Buoy) -> None:
        for depth in (1, 2):
            key = f"chart-{depth}"
            metadata = ObjectMetaApply(name=key, namespace=buoy.metadata.namespace)
            if depth == buoy.spec.depth:
                await self.client.apply(ConfigMapApply(metadata=metadata), owner=buoy)


def one_chart(world: World[Harbour]) -> None:
    charts = [c.metadata.name for c in world.read_all(ConfigMap)]
    assert len(charts) <= 1, f"there are {charts}"


def test_an_invariant() -> None:
    found = failure(TwoCharts, invariants=[one_chart])
    assert found.found[0].startswith("one_chart does not hold: there are ['chart-1', 'chart-2']")
    assert not found.plan.faults


def test_a_scenario_that_fails() -> None:
    async def impatient(world: World[Harbour]) -> None:
        await world.until("a second buoy", lambda: len(world.read_all(Buoy)) == 2, seconds=10)

    with pytest.raises(SimulationFailed, match="not within 10 s: a second buoy"):
        simulate(setup_of(Keeper), impatient, outside=Harbour, kinds=[Buoy])


def test_a_replay() -> None:
    found = failure(StartsAgain)
    with pytest.raises(SimulationFailed) as again:
        sweep(StartsAgain, replay=str(found.plan))
    assert str(again.value) == str(found)
    sweep(Keeper, replay=str(found.plan))
    with pytest.raises(ValueError, match="'crash' is no fault"):
        sweep(Keeper, replay="crash")


def test_several_faults_are_told_by_the_fewest() -> None:
    found = failure(StartsAgain)
    more = f"{found.plan},429:40,touch:41"
    with pytest.raises(SimulationFailed) as again:
        sweep(StartsAgain, replay=more)
    assert again.value.plan == found.plan


@pytest.mark.parametrize("stale", ["429:999", "touch:2", "409:2", "hold:buoys.sea.example.com:99+5"])
def test_a_replay_that_strikes_nothing_says_so(stale: str) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(stale)} never struck"):
        sweep(Keeper, replay=stale)


PROGRAM = """
from framework_support.lighthouse import *
from steersman_testing.simulation import Plan, simulate
from steersman_testing.simulation.outcome import run_once
from steersman_testing.simulation.run import Setting
setting = Setting(setup=setup_of(Keeper), scenario=scenario, outside=Harbour, kinds=(Buoy,))
plans = "", "crash-after:2,hold:configmaps:1+300", "lease:2,409:3", "late:1+25", "miss:buoys.sea.example.com:2+300"
for plan in plans:
    print(run_once(setting, Plan.parse(plan)).journal.trace())
"""


def test_every_run_repeats_byte_for_byte() -> None:
    def traces(seed: str) -> bytes:
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, check=True)
        return done.stdout

    first = traces("1")
    assert first == traces("2")
    assert len(first.splitlines()) > 40


async def drowning(world: World[Harbour]) -> None:
    await world.sleep(1)
    raise LookupError("no pods")


def test_an_actor_that_fails() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_of(Keeper), staying, outside=Harbour, kinds=[Buoy], actors=[drowning])
    assert failed.value.found == ("the actor drowning fails: LookupError: no pods",)


def careless(world: World[Harbour]) -> None:
    raise LookupError("no such lamp")


def test_an_invariant_that_fails() -> None:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_of(Keeper), staying, outside=Harbour, kinds=[Buoy], invariants=[careless])
    assert failed.value.found == ("the invariant careless fails: LookupError: no such lamp",)


def test_the_world_outside_repeats() -> None:
    async def play(world: World[str]) -> None:
        await world.sleep(1)

    def seen(seed: int) -> object:
        setting = Setting(
            setup=lambda manager, outside: None,
            scenario=play,
            outside=lambda: uuid.uuid4().hex,
            observe=str,
            seed=seed,
        )
        return run_once(setting, Plan()).sights

    assert seen(0) == seen(0)
    assert seen(0) != seen(1)


def test_a_garbage_collector_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(server: InMemoryApiServer) -> None:
        raise LookupError("no owner")

    monkeypatch.setattr(InMemoryApiServer, "garbage_collected", fails)
    found = failure(Keeper).found
    assert found == ("the garbage collector fails: LookupError: no owner",)


def test_a_late_call_that_fails_is_told_and_over() -> None:
    setting = Setting(setup=setup_of(Keeper), scenario=scenario, outside=Harbour, kinds=(Buoy,))
    run = Run(setting, Plan(), VirtualClock(), 1000)

    async def play() -> None:
        async def arrive() -> None:
            raise LookupError("no such verb")

        run.delay(Fault("late", 3, seconds=25), arrive)
        await asyncio.sleep(30)

    run_virtual(play())
    assert run.in_force == []
    assert run.violations == ["call 3, which was on its way, fails: LookupError: no such verb"]


def test_what_did_not_strike_excuses_no_needless_write() -> None:
    journal = Journal()
    journal.add(Entry(0, "operator", "GET buoys default/a", "200", 1, "", "read"))
    journal.add(Entry(1, "operator", "CREATE configmaps default/a", "201", 2, "", "create", True))
    idle = Fault("touch", 2)

    def needless(*struck: Fault) -> int:
        done = Outcome(Plan((idle,)), journal, (), NO_REMOVALS, (), {}, struck, 2, 1)
        return len(done.needless_writes)

    assert needless() == 1
    assert needless(idle) == 0


@pytest.mark.parametrize("part", ["", "/status", "/scale", "/resize", "/eviction"])
def test_another_actor_writes_the_object_whatever_part_of_it_is_written(part: str) -> None:
    request = HttpRequest(method="PATCH", path=f"/api/v1/namespaces/default/pods/a{part}")
    assert object_path(request) == "/api/v1/namespaces/default/pods/a"


@pytest.mark.parametrize("part", ["", "/status", "/finalize"])
def test_a_namespace_has_parts_of_its_own(part: str) -> None:
    request = HttpRequest(method="PUT", path=f"/api/v1/namespaces/shop{part}")
    assert resource_of(request) == "namespaces"
    assert object_path(request) == "/api/v1/namespaces/shop"
