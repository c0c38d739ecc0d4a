"""The operator on the in-memory API server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from steersman import Client, FrozenDict, Manager, ManagerOptions, MergePatch, ObjectKey, ObjectMeta, find_condition
from steersman.api.coordination_v1 import Lease, LeaseSpec
from steersman.api.core_v1 import ConfigMap, Pod, Service, ServiceSpec
from steersman.api.core_v1 import ServicePort as CorePort
from steersman.api.discovery_v1 import EndpointSlice
from steersman.errors import ApiError, ApiStatus, BadRequest, Forbidden, InternalError, Invalid
from steersman_testing import InMemoryApiServer, matching, virtual_time

from leader_operator.api.v1.leaderservice import (
    LeaderService,
    LeaderServiceSpec,
    LeaderServiceStatus,
    PublishSpec,
    ServicePort,
)
from leader_operator.controllers.leaderservice import LeaderServiceReconciler
from leader_operator.discovery import leader_response
from leader_operator.resources import role_label
from pods import create_pod, pod, pod_status, set_ready

KEY = ObjectKey("default", "orders")


class Cluster:
    """A user of the operator."""

    def __init__(self, server: InMemoryApiServer, manager: Manager) -> None:
        self.server = server
        self.manager = manager
        self.user = Client(server, field_manager="user")

    async def create(self, **spec: Any) -> None:
        declared = LeaderServiceSpec(
            selector=FrozenDict({"app": "orders"}), ports=(ServicePort(port=80, target_port=8080),), **spec
        )
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        await self.user.create(LeaderService(metadata=metadata, spec=declared))

    async def create_pods(self, number: int, **fields: Any) -> None:
        for index in range(number):
            await create_pod(self.user, pod(f"orders-{index}", **fields))

    async def set_ready(self, name: str, ready: bool) -> None:
        ip = f"10.0.0.{int(name[-1]) + 1}"
        await set_ready(self.user, ObjectKey("default", name), pod_status(ready=ready, ip=ip))

    def status(self) -> LeaderServiceStatus:
        found = self.server.read(LeaderService, KEY)
        assert found is not None
        return found.status

    def reason(self, kind: str = "Ready") -> str:
        condition = find_condition(self.status().conditions, kind)
        return condition.reason if condition is not None else ""

    def addresses(self, name: str = "orders-ipv4") -> list[str]:
        found = self.server.read(EndpointSlice, ObjectKey("default", name))
        return [address for endpoint in found.endpoints for address in endpoint.addresses] if found else []

    def labelled(self) -> list[str]:
        """Pods with the label of the leader."""
        label = "orders.leader.example.com/role"
        return [p.metadata.name for p in self.server.read_all(Pod) if p.metadata.labels.get(label) == "leader"]

    async def wait_for_leader(self, name: str | None) -> None:
        def published() -> bool:
            leader = self.status().leader
            return (leader.pod if leader else None) == name and self.labelled() == ([name] if name else [])

        await self.wait_until(published)

    async def wait_until(self, condition: Callable[[], bool], within: float = 60) -> None:
        async with asyncio.timeout(within):
            while not condition():
                await asyncio.sleep(0.1)


@asynccontextmanager
async def cluster(server: InMemoryApiServer) -> AsyncGenerator[Cluster]:
    """Run the operator."""
    manager = Manager(server, ManagerOptions(), runtime=server.runtime)
    LeaderServiceReconciler.setup_with_manager(manager)
    task = asyncio.create_task(manager.run())
    try:
        yield Cluster(server, manager)
    finally:
        manager.stop()
        await task


@pytest.mark.requirement("pattern/service")
@virtual_time
async def test_leader_is_published_everywhere(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(publish=PublishSpec(config_map="orders-file", headless=True))
        await world.create_pods(3)
        await world.wait_for_leader("orders-0")
        assert world.addresses("orders-ipv4") == world.addresses("orders-leader-ipv4") == ["10.0.0.1"]
        found = await world.user.get(ConfigMap, ObjectKey("default", "orders-file"))
        assert json.loads(found.data["leader.json"]) == {"leader": "orders-0", "term": 1, "address": "10.0.0.1"}
        response = await leader_response(world.manager.client, "/leader/default/orders")
        assert json.loads(response.body)["leader"] == "orders-0"
        service = await world.user.get(Service, KEY)
        assert not service.spec.selector
        headless = await world.user.get(Service, ObjectKey("default", "orders-leader"))
        assert headless.spec.cluster_ip == "None"
        (port,) = (await world.user.get(EndpointSlice, ObjectKey("default", "orders-ipv4"))).ports
        assert port.port == 8080
        assert (world.reason(), world.reason("Fenced")) == ("LeaderPublished", "NoFencing")
        assert world.status().term == 1


@virtual_time
async def test_unready_leader_is_replaced_in_a_new_term(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        await world.set_ready("orders-0", False)
        await world.wait_for_leader("orders-1")
        assert (world.status().term, world.addresses()) == (2, ["10.0.0.2"])
        await world.set_ready("orders-0", True)
        await asyncio.sleep(60)
        assert world.labelled() == ["orders-1"]


@virtual_time
async def test_raised_min_term_begins_a_new_term(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        await world.user.patch(LeaderService, KEY, MergePatch({"spec": {"minTerm": 40}}))
        await world.wait_until(lambda: world.status().term == 41)
        leader = world.status().leader
        assert leader is not None
        assert (leader.pod, leader.term) == ("orders-0", 41)
        await asyncio.sleep(60)
        assert world.status().term == 41


@virtual_time
async def test_service_without_ready_pods_has_no_endpoint(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(publish=PublishSpec(config_map="orders-file"))
        await world.wait_until(lambda: world.reason() == "NoPods")
        await world.create_pods(1)
        await world.wait_for_leader("orders-0")
        await world.set_ready("orders-0", False)
        await world.wait_for_leader(None)
        await world.wait_until(lambda: world.reason() == "NoReadyPod")
        assert world.addresses() == []
        assert world.status().term == 1
        found = await world.user.get(ConfigMap, ObjectKey("default", "orders-file"))
        assert json.loads(found.data["leader.json"])["leader"] is None
        await world.set_ready("orders-0", True)
        await world.wait_for_leader("orders-0")
        assert world.status().term == 2


@virtual_time
async def test_deleted_leader_is_replaced(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        await world.user.delete(Pod, ObjectKey("default", "orders-0"))
        await world.wait_for_leader("orders-1")


@virtual_time
async def test_deleted_service_leaves_no_label(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        # Pods that are not selected any more may still have the label.
        await world.user.patch(
            Pod, ObjectKey("default", "orders-0"), MergePatch({"metadata": {"labels": {"app": None}}})
        )
        await world.user.delete(LeaderService, KEY)
        await world.wait_until(lambda: world.server.read(LeaderService, KEY) is None)
        assert world.labelled() == []


@pytest.mark.parametrize(
    "error",
    [
        Forbidden(ApiStatus("denied by policy", "Forbidden", 403)),
        Invalid(ApiStatus("spec: Invalid value", "Invalid", 422)),
        BadRequest(ApiStatus("denied by webhook", "", 400)),
    ],
)
@virtual_time
async def test_refused_label_does_not_block_deletion(error: ApiError, apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(1)
        await world.wait_for_leader("orders-0")
        apiserver.fail_next(matching("PATCH", "/pods/orders-0"), error, times=1000)
        await world.user.delete(LeaderService, KEY)
        await world.wait_until(lambda: world.server.read(LeaderService, KEY) is None)


@virtual_time
async def test_lease_decides_with_fencing(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(fencing="Sidecar")
        await world.create_pods(2, sidecar="orders")
        await world.wait_until(lambda: world.reason() == "NoLeader")
        assert world.reason("Fenced") == "SidecarsPresent"
        uid = (await world.user.get(Pod, ObjectKey("default", "orders-1"))).metadata.uid
        owner = await world.user.get(LeaderService, KEY)
        metadata = ObjectMeta(name="orders-leader", namespace="default")
        spec = LeaseSpec(holder_identity=f"orders-1_{uid}", lease_transitions=7)
        await world.user.create(Lease(metadata=metadata, spec=spec), owner=owner)
        await world.wait_for_leader("orders-1")
        leader = world.status().leader
        assert leader is not None
        assert leader.term == 7
        assert world.status().term is None, "the sidecar records it"
        release = MergePatch({"spec": {"holderIdentity": ""}})
        await world.user.patch(Lease, ObjectKey("default", "orders-leader"), release)
        await world.wait_for_leader(None)
        assert world.addresses() == []


@virtual_time
async def test_lease_without_owner_is_observed(apiserver: InMemoryApiServer) -> None:
    # After a restore, or after the LeaderService was deleted with --cascade=orphan.
    async with cluster(apiserver) as world:
        await world.create(fencing="Sidecar")
        await world.create_pods(2, sidecar="orders")
        await world.wait_until(lambda: world.reason() == "NoLeader")
        uid = (await world.user.get(Pod, ObjectKey("default", "orders-1"))).metadata.uid
        metadata = ObjectMeta(name="orders-leader", namespace="default")
        spec = LeaseSpec(holder_identity=f"orders-1_{uid}", lease_transitions=7)
        await world.user.create(Lease(metadata=metadata, spec=spec))
        await world.wait_for_leader("orders-1")


@virtual_time
async def test_pod_without_sidecar_is_reported(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(fencing="Sidecar")
        await world.create_pods(2)
        await world.wait_until(lambda: world.reason("Fenced") == "SidecarMissing")
        condition = find_condition(world.status().conditions, "Fenced")
        assert condition is not None
        assert "orders-0 has no init container" in condition.message


@virtual_time
async def test_undeclared_publications_are_deleted(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(publish=PublishSpec(config_map="orders-file", headless=True))
        await world.create_pods(1)
        await world.wait_for_leader("orders-0")
        publish = {"configMap": None, "headless": False}
        await world.user.patch(LeaderService, KEY, MergePatch({"spec": {"publish": publish}}))
        await world.wait_until(lambda: not apiserver.read_all(ConfigMap))
        await world.wait_until(lambda: len(apiserver.read_all(EndpointSlice)) == 1)
        assert [service.metadata.name for service in apiserver.read_all(Service)] == ["orders"]


@virtual_time
async def test_foreign_service_is_not_taken_over(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        spec = ServiceSpec(selector=FrozenDict({"app": "orders"}), ports=(CorePort(port=80),))
        await world.user.create(Service(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
        await world.create()
        await world.create_pods(1)
        await world.wait_until(lambda: world.reason() == "NameTaken")
        found = await world.user.get(Service, KEY)
        assert found.spec.selector == {"app": "orders"}
        await world.user.delete(Service, KEY)
        await world.wait_until(lambda: world.addresses() == ["10.0.0.1"], within=120)
        assert world.reason() == "LeaderPublished"


@virtual_time
async def test_name_conflict_does_not_split_the_publication(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        foreign = ObjectMeta(name="orders-file", namespace=KEY.namespace)
        await world.user.create(ConfigMap(metadata=foreign))
        await world.create(publish=PublishSpec(config_map="orders-file"))
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        await world.set_ready("orders-0", False)
        await world.wait_for_leader("orders-1")
        assert world.addresses() == ["10.0.0.2"]
        assert world.reason() == "NameTaken"


@virtual_time
async def test_error_of_the_server_is_not_a_refusal(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(1)
        await world.wait_for_leader("orders-0")
        unavailable = InternalError(ApiStatus("etcd has no leader", "InternalError", 500))
        apiserver.fail_next(matching("PATCH", "/services/orders"), unavailable, times=3)
        await world.user.patch(LeaderService, KEY, MergePatch({"spec": {"ports": [{"port": 81, "targetPort": 1}]}}))
        reasons: set[str] = set()
        for _ in range(200):
            reasons.add(world.reason())
            await asyncio.sleep(0.01)
        assert reasons == {"LeaderPublished"}


@pytest.mark.parametrize(
    "refused",
    [
        Forbidden(ApiStatus("denied by policy", "Forbidden", 403)),
        BadRequest(ApiStatus("denied by policy", "", 400)),
    ],
    ids=["forbidden", "bad request"],
)
@virtual_time
async def test_refused_service_does_not_split_the_publication(
    refused: ApiError, apiserver: InMemoryApiServer
) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(2)
        await world.wait_for_leader("orders-0")
        apiserver.fail_next(matching("PATCH", "/services/orders"), refused, times=1000)
        await world.user.patch(
            LeaderService, KEY, MergePatch({"spec": {"ports": [{"port": 81, "targetPort": 8080}]}})
        )
        await world.set_ready("orders-0", False)
        await world.wait_for_leader("orders-1")
        await world.wait_until(lambda: world.reason() == "Refused")
        condition = find_condition(world.status().conditions, "Ready")
        assert condition is not None
        assert "denied by policy" in condition.message


@virtual_time
async def test_refused_label_does_not_hide_the_leader(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create(fencing="Sidecar")
        await world.create_pods(1, sidecar="orders")
        await world.wait_until(lambda: world.reason() == "NoLeader")
        refused = Forbidden(ApiStatus("denied by policy", "Forbidden", 403))
        apiserver.fail_next(matching("PATCH", "/pods/orders-0"), refused, times=1000)
        uid = (await world.user.get(Pod, ObjectKey("default", "orders-0"))).metadata.uid
        spec = LeaseSpec(holder_identity=f"orders-0_{uid}", lease_transitions=7)
        metadata = ObjectMeta(name="orders-leader", namespace="default")
        await world.user.create(Lease(metadata=metadata, spec=spec))
        await world.wait_until(lambda: world.reason() == "Refused")
        leader = world.status().leader
        assert leader is not None
        assert (leader.pod, leader.term) == ("orders-0", 7)
        assert world.addresses() == ["10.0.0.1"]


@virtual_time
async def test_foreign_config_maps_are_not_cached(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.user.create(
            ConfigMap(metadata=ObjectMeta(name="a", namespace="default"), data=FrozenDict({"a": "b"}))
        )
        await world.create(publish=PublishSpec(config_map="orders-leader"))
        await world.create_pods(1)
        await world.set_ready("orders-0", True)
        await world.wait_for_leader("orders-0")
        cached = await world.manager.client.list(ConfigMap)
        assert [found.metadata.name for found in cached] == ["orders-leader"]


@virtual_time
async def test_deleted_objects_are_restored(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        await world.create_pods(1)
        await world.wait_for_leader("orders-0")
        await world.user.delete(EndpointSlice, ObjectKey("default", "orders-ipv4"))
        await world.user.delete(Service, KEY)
        unlabel = MergePatch({"metadata": {"labels": {"orders.leader.example.com/role": None}}})
        await world.user.patch(Pod, ObjectKey("default", "orders-0"), unlabel)
        await world.wait_for_leader("orders-0")
        await world.wait_until(lambda: world.addresses() == ["10.0.0.1"] and bool(apiserver.read_all(Service)))


@virtual_time
async def test_invalid_specs_are_rejected(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        for spec, message in (
            ({"selector": {"app": None}}, "an empty one selects all pods"),
            ({"ports": [{"port": 1}, {"port": 2}]}, "each of several ports needs a name"),
            ({"ports": [{"port": 1, "name": "a"}, {"port": 1, "name": "b"}]}, "port and protocol are used twice"),
            ({"fencing": "Sidecar"}, "immutable|cannot be changed"),
        ):
            with pytest.raises(Invalid, match=message):
                await world.user.patch(LeaderService, KEY, MergePatch({"spec": spec}))
        found = await world.user.get(LeaderService, KEY)
        with pytest.raises(Invalid, match="name must be a DNS label"):
            metadata = ObjectMeta(name="orders.v2", namespace="default")
            await world.user.create(LeaderService(metadata=metadata, spec=found.spec))


@virtual_time
async def test_discovery_rejects_other_paths(apiserver: InMemoryApiServer) -> None:
    async with cluster(apiserver) as world:
        await world.create()
        for path in ("/", "/leader/default", "/leader/default/users", "/leader/default/orders/x"):
            assert (await leader_response(world.manager.client, path)).status == 404


def test_role_label_is_a_valid_name() -> None:
    service = LeaderService(
        metadata=ObjectMeta(name="o" * 50),
        spec=LeaderServiceSpec(selector=FrozenDict(), ports=()),
    )
    assert len(role_label(service).split("/")[0]) <= 253
