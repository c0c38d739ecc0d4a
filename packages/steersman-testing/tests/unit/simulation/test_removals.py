"""What the operator ends is judged by what goes, whatever the verb; and needless writes by what they change."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from framework_support.buoy import Buoy
from framework_support.lighthouse import Harbour, Keeper, new_buoy, scenario, setup_of
from steersman.api.coordination_v1 import Lease
from steersman.api.core_v1 import ConfigMap, Container, Pod, PodSpec
from steersman.client import MergePatch
from steersman.controller import Request, Result
from steersman.errors import AlreadyExists, Conflict, NotFound, SteersmanError
from steersman.meta import ObjectKey, ObjectMeta, OwnerReference
from steersman_testing.simulation import SimulationFailed, World, simulate


def failure(reconciler: type[Keeper], play: object = scenario, **settings: object) -> SimulationFailed:
    with pytest.raises(SimulationFailed) as failed:
        simulate(setup_of(reconciler), play, outside=Harbour, kinds=[Buoy], random_runs=0, **settings)  # type: ignore[arg-type]
    return failed.value


class ClearsAll(Keeper):
    async def draw(self, buoy: Buoy) -> None:
        try:
            await super().draw(buoy)
        except Conflict:
            await self.client.live.delete_collection(ConfigMap, namespace="default")
            raise


def test_a_collection_that_should_live() -> None:
    found = failure(ClearsAll)
    text = "DELETECOLLECTION configmaps default ends configmaps default/a: it lives without faults"
    assert found.found == (text,)


MATE = ObjectKey("default", "mate")


class Evicts(Keeper):
    async def draw(self, buoy: Buoy) -> None:
        try:
            await super().draw(buoy)
        except Conflict:
            with suppress(NotFound):
                await self.client.live.evict(MATE)
            raise


async def with_a_mate(world: World[Harbour]) -> None:
    container = Container(name="sea", image="sea:1", image_pull_policy="Always")
    metadata = ObjectMeta(name=MATE.name, namespace=MATE.namespace)
    await world.client.create(Pod(metadata=metadata, spec=PodSpec(containers=(container,))))
    await scenario(world)


def test_an_eviction() -> None:
    found = failure(Evicts, with_a_mate)
    assert "CREATE pods default/mate eviction ends pods default/mate: it lives without faults" in found.found


class DrawsUnderAnyName(Keeper):
    """A chart under a name that the server makes; of two that it finds, one goes."""

    async def draw(self, buoy: Buoy) -> None:
        charts = [c for c in (await self.client.live.list(ConfigMap, namespace="default")).items if is_chart(c)]
        if not charts:
            mine = (owned_by(buoy),)
            metadata = ObjectMeta(generate_name="chart-", namespace="default", owner_references=mine)
            await self.client.create(ConfigMap(metadata=metadata))
        for chart in charts[1:]:
            await self.client.delete(ConfigMap, chart.key, uid=chart.metadata.uid)


class DrawsAnew(DrawsUnderAnyName):
    """Takes a refusal for a reason to begin again."""

    async def reconcile(self, request: Request) -> Result:
        try:
            return await super().reconcile(request)
        except SteersmanError:
            for chart in (await self.client.live.list(ConfigMap, namespace="default")).items:
                if is_chart(chart):
                    await self.client.delete(ConfigMap, chart.key)
            raise


def is_chart(found: ConfigMap) -> bool:
    return found.metadata.generate_name == "chart-"


def owned_by(buoy: Buoy) -> OwnerReference:
    names = Buoy.api_resource
    return OwnerReference(
        api_version=names.api_version, kind=names.kind, name=buoy.key.name, uid=buoy.metadata.uid, controller=True
    )


def test_names_that_chance_gave_raise_no_alarm() -> None:
    report = simulate(setup_of(DrawsUnderAnyName), scenario, outside=Harbour, kinds=[Buoy], random_runs=10)
    assert report.complete


def test_the_only_one_of_a_generated_name_lives() -> None:
    found = failure(DrawsAnew)
    assert any(line.startswith("DELETE configmaps default/chart-") for line in found.found)


class NotesBesideWhatIsDone(Keeper):
    """Sends what is there already, and writes a Lease at the same moment."""

    async def draw(self, buoy: Buoy) -> None:
        await super().draw(buoy)
        same = MergePatch({"data": {"depth": str(buoy.spec.depth)}})
        await asyncio.gather(
            self.client.live.patch(ConfigMap, buoy.key, same),
            self.client.live.patch(
                Lease, LOG, MergePatch({"spec": {"holderIdentity": str(self.runtime.clock.now())}})
            ),
        )


LOG = ObjectKey("default", "log")


async def with_a_log(world: World[Harbour]) -> None:
    await world.client.create(new_buoy())


def test_what_others_change_meanwhile_is_no_needless_write() -> None:
    log = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "log"}}
    simulate(
        setup_of(NotesBesideWhatIsDone),
        with_a_log,
        outside=Harbour,
        kinds=[Buoy],
        manifests=[log],
        random_runs=0,
        most=0,
    )


class SoundsByBoat(Keeper):
    """A boat for each sounding, which is gone when that is done."""

    async def draw(self, buoy: Buoy) -> None:
        if await self.client.find(ConfigMap, buoy.key) is not None:
            return
        boat = ObjectKey("default", "boat")
        with suppress(AlreadyExists):
            await self.client.create(ConfigMap(metadata=ObjectMeta(name=boat.name, namespace=boat.namespace)))
        await self.client.delete(ConfigMap, boat)
        await super().draw(buoy)


def test_what_never_outlives_its_work_goes_as_often() -> None:
    # The process comes back, and knows nothing of the boat.
    simulate(setup_of(SoundsByBoat), with_a_log, outside=Harbour, kinds=[Buoy], replay="crash-after:4")


class DrawsAllAnew(DrawsUnderAnyName):
    """Of two charts that it finds neither stays; a finalizer holds both until then."""

    async def draw(self, buoy: Buoy) -> None:
        charts = [c for c in (await self.client.live.list(ConfigMap, namespace="default")).items if is_chart(c)]
        if len(charts) == 1:
            return
        for chart in charts:
            await self.client.delete(ConfigMap, chart.key)
        for chart in charts:
            await self.client.patch(ConfigMap, chart.key, MergePatch({"metadata": {"finalizers": None}}))
        metadata = ObjectMeta(
            generate_name="chart-",
            namespace="default",
            owner_references=(owned_by(buoy),),
            finalizers=("sea.example.com/dry",),
        )
        await self.client.create(ConfigMap(metadata=metadata))


def test_one_too_many_is_no_excuse_for_the_other() -> None:
    found = failure(DrawsAllAnew, with_a_log)
    assert found.plan.faults[0].kind == "late"
    assert len(found.found) == 1
    assert found.found[0].startswith("DELETE configmaps default/chart-")
