"""What people ask for by annotations as they type them, and that they are told where it means nothing."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.users_harness import UsersHarness
from steersman.api.events_v1 import Event
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Database, DatabaseUser
from steersman_testing import InMemoryApiServer, virtual_time

EACH = pytest.mark.parametrize("of", [ClusterHarness, GroupHarness])


def refusals(server: InMemoryApiServer) -> list[str]:
    """What was said of annotations, as often as it was."""
    said = [e for e in server.read_all(Event) if e.reason == "AnnotationInvalid"]
    assert all(e.type == "Warning" for e in said)
    return [e.note or "" for e in said for _ in range(e.series.count if e.series else 1)]


def fenced(world: ClusterHarness) -> list[str]:
    """Who is, as the status has it."""
    return [m.name for m in world.status.members if m.fenced]


@EACH
@virtual_time
async def test_fenced_instances_accept_pod_names(of: type[ClusterHarness]) -> None:
    world = of()
    async with world.operator():
        await world.create_ready(3)
        await world.annotate(fenced_instances="orders-1-0")
        await world.until("fenced", lambda: fenced(world) == ["orders-1"])
        await world.annotate(fenced_instances=None)
        await world.ready(3)
        await world.annotate(switchover="orders-2-0")
        await world.until("handed over", lambda: world.status.primary == "orders-2")
        await world.until(
            "told", lambda: "databases.steersman.dev/switchover" not in world.cluster.metadata.annotations
        )
        assert world.status.last_switchover.to == "orders-2"
        await world.ready(3)
        await world.annotate(replace_instance="orders-1-0")
        await world.until("replaced", lambda: "orders-3" in world.pods())
        assert refusals(world.server) == []


@EACH
@virtual_time
async def test_invalid_fence_name_warns_once(of: type[ClusterHarness]) -> None:
    world = of()
    accepted = "list instances or pods separated by commas, such as orders-0,orders-1, or * for all"
    async with world.operator():
        await world.create_ready(2, instances=2)
        before = world.uids()
        said = list[str]()
        for text, wrong in [
            ("ORDERS-1", '"ORDERS-1"'),
            ("orders-0; orders-1", '"orders-0; orders-1"'),
            ("orders-7, other-0", '"orders-7", "other-0"'),
            ("x" * 5000, f'"{"x" * 199}…"'),
        ]:
            await world.annotate(fenced_instances=text)
            said.append(
                f"annotation databases.steersman.dev/fenced-instances: no instance has the name {wrong}: {accepted}"
            )
            await world.until("told", lambda: sorted(refusals(world.server)) == sorted(said), 60)
        await world.wait(1000)
        assert len(refusals(world.server)) == len(said) and world.uids() == before
        # What is wrong beside it keeps nobody from being fenced.
        await world.annotate(fenced_instances="orders-1,orders-9,")
        await world.until("fenced", lambda: fenced(world) == ["orders-1"])
        await world.annotate(fenced_instances=None)
        await world.ready(2)
        # The same again is another mistake.
        await world.annotate(fenced_instances="ORDERS-1")
        await world.until("told", lambda: refusals(world.server).count(said[0]) == 2, 60)


@EACH
@virtual_time
async def test_removed_instance_name_may_stay_fenced(of: type[ClusterHarness]) -> None:
    world = of()
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.annotate(replace_instance="orders-1")
        await world.until("replaced", lambda: "orders-3" in world.pods())
        await world.ready(3)
        await world.annotate(fenced_instances="orders-1")
        await world.wait()
        assert refusals(world.server) == []


@EACH
@virtual_time
async def test_paused_accepts_any_true_and_warns_otherwise(of: type[ClusterHarness]) -> None:
    world = of()
    words = 'annotation databases.steersman.dev/paused: "{}" is not supported: set "true", or remove it'
    async with world.operator():
        await world.create_ready(1, instances=1)
        for text in ("True", "TRUE", " true"):
            await world.annotate(paused=text)
            await world.until("paused", lambda: world.condition("Paused") == "True/ByAnnotation", 60)
            await world.annotate(paused="False")
            await world.until("goes on", lambda: not world.condition("Paused"), 60)
        assert refusals(world.server) == []
        for text in ("yes", "1"):
            await world.annotate(paused=text)
            await world.until("told", lambda text=text: words.format(text) in refusals(world.server), 60)
        await world.wait(1000)
        assert len(refusals(world.server)) == 2 and not world.condition("Paused")


@pytest.mark.parametrize(("kind", "name"), [(Database, "shop"), (DatabaseUser, "clerk")])
@virtual_time
async def test_paused_works_for_databases_and_users(kind: type[Database | DatabaseUser], name: str) -> None:
    world, key = UsersHarness(), ObjectKey("default", name)

    async def annotate(text: str) -> None:
        notes = {"databases.steersman.dev/paused": text}
        await world.client.patch(kind, key, MergePatch({"metadata": {"annotations": notes}}))

    async with world.operator():
        await world.database()
        await world.user()
        await world.until("made", lambda: "shop" in world.sql.databases and "clerk" in world.sql.users)
        await annotate("yes")
        await world.until("told", lambda: refusals(world.server), 5)
        await world.runtime.clock.sleep(1000)
        [words] = refusals(world.server)
        assert '"yes" is not supported: set "true"' in words
        assert "Paused" not in str(world.server.read(kind, key))
        await annotate("TRUE")
        await world.until("paused", lambda: "Paused" in str(world.server.read(kind, key)), 5)


@virtual_time
async def test_force_delete_accepts_any_true() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(deletionPolicy="Delete")
        await world.until("made", lambda: "clerk" in world.sql.users)
        world.sql.up = False
        key = ObjectKey("default", "clerk")
        await world.client.delete(DatabaseUser, key)
        forced = {"metadata": {"annotations": {"databases.steersman.dev/force-delete": "yes"}}}
        await world.client.patch(DatabaseUser, key, MergePatch(forced))
        await world.until("told", lambda: refusals(world.server), 5)
        assert world.server.read(DatabaseUser, key) is not None
        forced["metadata"]["annotations"]["databases.steersman.dev/force-delete"] = "True"
        await world.client.patch(DatabaseUser, key, MergePatch(forced))
        await world.until("gone", lambda: world.server.read(DatabaseUser, key) is None, 60)
