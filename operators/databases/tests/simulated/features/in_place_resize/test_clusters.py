"""In-place resizes of whole clusters, in memory: what changes without a restart, and what rolls."""

from __future__ import annotations

import pytest

from database_support.unit.cluster_harness import KEY, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ResourceRequirements
from steersman.client import MergePatch
from steersman.client.transport import HttpRequest
from steersman.errors import ApiStatus, Forbidden, StatusCause, StatusDetails, error_from_status
from steersman.meta import Duration, FrozenDict, Quantity
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, MaintenanceWindow
from steersman_testing import matching, virtual_time

GROWN = {"requests": {"cpu": "1"}, "limits": {"memory": "1536Mi"}}


def resources(memory: str = "1Gi", **requests: str) -> ResourceRequirements:
    return ResourceRequirements(limits=FrozenDict({"memory": memory}), requests=FrozenDict(requests))


def limits(world: ClusterHarness) -> set[str]:
    """Memory limits with which servers run."""
    statuses = [pod.status.container_statuses[0] for pod in world.pods().values()]
    return {str(s.resources.limits["memory"]) for s in statuses if s.resources is not None}


async def created(world: ClusterHarness, instances: int = 2) -> dict[str, str]:
    await world.create_ready(instances, instances=instances, resources=resources(cpu="500m"))
    return world.uids()


@pytest.mark.parametrize("world_type", [ClusterHarness, GroupHarness])
@virtual_time
async def test_growth_recreates_no_pod(world_type: type[ClusterHarness]) -> None:
    world = world_type()
    async with world.operator():
        before = await created(world, 3)
        await world.change(resources=GROWN)
        await world.until("resized", lambda: limits(world) == {"1536Mi"}, 20)
        await world.ready(3)
        assert world.uids() == before and not world.hosts.switchover_requests
        message = "requests cpu=1, memory=1536Mi; limits memory=1536Mi"
        pods = ("orders-0-0", "orders-1-0", "orders-2-0")
        assert world.messages("PodResized") == {f"resized pod {pod} in place: {message}" for pod in pods}
        template = world.server.read_all(StatefulSet)[0].spec.template.spec
        assert str(template.containers[0].resources.limits["memory"]) == "1536Mi"


@virtual_time
async def test_growth_defers_parameters_that_need_restart() -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        await world.change(resources=GROWN)
        await world.until("deferred", lambda: "At the next restart" in world.message("ParametersApplied"), 120)
        await world.ready(2)
        await world.wait(120)
        assert "Restarted" not in world.events()
        assert world.message("ParametersApplied").endswith(
            "At the next restart of orders-0, orders-1 shared_buffers follow the resources"
        )
        assert world.uids() == before
        assert world.stored_parameters()["maintenance_work_mem"] == "96MB"
        assert [m.pending_restart for m in world.status.members] == [True, True]
        await world.set_parameters(max_connections="150")
        await world.until("applied", lambda: not any(m.pending_restart for m in world.status.members), 300)


@virtual_time
async def test_deferred_growth_rolls_after_timeout() -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        for pod in ("orders-0-0", "orders-1-0"):
            world.hosts.resizes.blocked[pod] = "PodResizePending", "Deferred", "not enough memory"
        await world.change(resources=GROWN)
        waiting = "resizing pod orders-0-0 in place: Deferred: not enough memory"
        await world.until("reported", lambda: waiting in world.message("Ready"), 30)
        # The parameters still fit the limit with which the servers run.
        assert world.stored_parameters()["maintenance_work_mem"] == "64MB"
        await world.wait(60)
        assert world.uids() == before
        await world.until("recreated", lambda: not set(world.uids().values()) & set(before.values()), 300)
        await world.ready(2)
        assert any("Deferred: not enough memory" in each for each in world.messages("Restarted"))


@virtual_time
async def test_node_frees_memory_before_timeout() -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        world.hosts.resizes.blocked["orders-1-0"] = "PodResizePending", "Deferred", "not enough memory"
        await world.change(resources=GROWN)
        await world.wait(60)
        world.hosts.resizes.blocked.clear()
        await world.ready(2)
        assert world.uids() == before and limits(world) == {"1536Mi"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"limits": {"memory": "768Mi"}}, "its memory limit becomes lower"),
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1"}}, "its QoS class changes"),
        ({"requests": {"cpu": None}}, "resource requests cannot be removed"),
    ],
)
@virtual_time
async def test_refused_change_rolls(change: dict[str, object], reason: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        await world.change(resources=change)
        await world.until("recreated", lambda: not set(world.uids().values()) & set(before.values()), 300)
        await world.ready(2)
        assert all(reason in each for each in world.messages("Restarted"))
        assert not world.messages("PodResized")


@virtual_time
async def test_requested_restart_rolls_resources() -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        body = {"metadata": {"annotations": {"databases.steersman.dev/restarted-at": "now"}}}
        await world.client.patch(world.kind, KEY, MergePatch({**body, "spec": {"resources": GROWN}}))
        await world.until("recreated", lambda: not set(world.uids().values()) & set(before.values()), 300)
        await world.ready(2)
        assert limits(world) == {"1536Mi"} and not world.messages("PodResized")


@virtual_time
async def test_reverted_change_is_resized_back() -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        world.hosts.resizes.blocked["orders-1-0"] = "PodResizePending", "Deferred", "not enough memory"
        await world.change(resources=GROWN)
        await world.until("requested", lambda: "Deferred" in world.message("Ready"), 30)
        await world.change(resources={"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}})
        await world.ready(2)
        # The other pod has grown meanwhile, and shrinks by a restart.
        assert world.uids()["orders-1"] == before["orders-1"]
        pod = world.pods()["orders-1"]
        assert Quantity(str(pod.spec.containers[0].resources.limits["memory"])) == Quantity("1Gi")
        assert limits(world) == {"1Gi"}


@virtual_time
async def test_forbidden_change_recreates_no_pod() -> None:
    """A quota would also refuse a recreated pod."""
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        refused = Forbidden(ApiStatus(code=403, message="exceeded quota: memory"))
        requests: list[str] = []

        def is_resize(request: HttpRequest) -> bool:
            if found := matching("PATCH", "/resize")(request):
                requests.append(request.path)
            return found

        world.server.fail_next(is_resize, refused, times=10**6)
        await world.change(resources=GROWN)
        await world.until("reported", lambda: "exceeded quota" in world.message("Ready"), 30)
        await world.wait(300)
        assert world.uids() == before and world.condition("Ready") == "False/PodRejected"
        assert 20 <= len(requests) <= 24, "every 30 seconds for each of two pods"
        # Requests of users are carried out meanwhile.
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        assert world.uids() == before


@pytest.mark.parametrize(
    "status",
    [
        ApiStatus(code=403, message="too large", details=StatusDetails(causes=(StatusCause(reason="NodeCapacity"),))),
        ApiStatus(code=404, message="too large: not found"),
    ],
)
@virtual_time
async def test_impossible_change_rolls(status: ApiStatus) -> None:
    world = ClusterHarness()
    async with world.operator():
        before = await created(world)
        world.server.fail_next(matching("PATCH", "/resize"), error_from_status(status), times=10**6)
        await world.change(resources=GROWN)
        await world.until("recreated", lambda: not set(world.uids().values()) & set(before.values()), 300)
        await world.ready(2)
        assert all("too large" in each for each in world.messages("Restarted"))


@virtual_time
async def test_open_maintenance_window_restarts_for_parameters() -> None:
    world = ClusterHarness()
    window = MaintenanceWindow(days=("Sun",), start="03:00", duration=Duration("1h"))
    async with world.operator():
        await world.create_ready(
            2, instances=2, resources=resources(), maintenance=MaintenanceSettings(windows=(window,))
        )
        before = world.uids()
        await world.change(resources={"limits": {"memory": "1536Mi"}})
        await world.until("waiting", lambda: world.condition("ParametersApplied") == "False/WaitingForWindow", 120)
        assert "Restarted" not in world.events()
        await world.annotate(maintenance_until="2031-01-01T00:00:00Z")
        await world.until("applied", lambda: not any(m.pending_restart for m in world.status.members), 300)
        assert world.uids() == before
