"""What the API server refuses or fails to do is told, whatever was about to be done, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.database_harness import VERSIONS, DatabaseHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.users_harness import FORCED, UsersHarness
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.events_v1 import Event
from steersman.api.networking_v1 import NetworkPolicy
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import HttpRequest, MergePatch
from steersman.errors import ApiError, ApiStatus, ConnectionFailed, error_from_status
from steersman.meta import Object, ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster
from steersman_databases.api.cluster_common import PoolerSettings, ServicesSettings
from steersman_databases.core.api_errors import ApiErrorTracker
from steersman_testing import InMemoryApiServer, matching, run_virtual, virtual_runtime, virtual_time

DOWN = 'failed calling webhook "policy.example.com": connection refused'
NO = "deleting volumes is forbidden by policy"


@dataclass
class Fault:
    """Requests that fail until it is mended."""

    method: str
    path: str
    code: int
    words: str
    mended: bool = False
    met: int = 0

    def on(self, server: InMemoryApiServer) -> Fault:
        """Has it happen."""
        reason = {403: "Forbidden", 422: "Invalid", 500: "InternalError"}[self.code]
        failure = error_from_status(ApiStatus(message=self.words, reason=reason, code=self.code))
        server.fail_next(self, failure, times=10**6)
        return self

    def __call__(self, request: HttpRequest) -> bool:
        fails = not self.mended and matching(self.method, self.path)(request)
        self.met += fails
        return fails


def _break(world: ClusterHarness, number: int) -> None:
    """What is on the volume of an instance starts no more."""
    claim = world.server.read(PersistentVolumeClaim, NAMES.data_pvc(number))
    assert claim is not None
    world.hosts.volumes[claim.metadata.uid].broken = True


def _warnings(server: InMemoryApiServer, reason: str) -> list[str]:
    return [e.note or "" for e in server.read_all(Event) if (e.type, e.reason) == ("Warning", reason)]


@virtual_time
async def test_failing_webhook_is_reported_while_it_lasts() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        fault = Fault("POST", "/persistentvolumeclaims", 500, DOWN).on(world.server)
        await world.change(instances=2)
        await world.until("told", lambda: world.condition("Ready") == "False/RequestFailed", 40)
        assert world.message("Ready").startswith(f"{DOWN}. Check the webhook")
        status = world.status
        assert (status.phase, status.observed_generation) == ("Degraded", world.cluster.metadata.generation)
        assert world.condition("Available") == "True/PrimaryAvailable"
        assert len(_warnings(world.server, "RequestFailed")) == 1
        fault.met = 0
        await world.wait(120)
        assert 6 <= fault.met <= 30, "it is tried again all the time, with pauses"
        fault.mended = True
        await world.ready(2)


TAKEN = "spec.ports[0].nodePort: Invalid value: 30001: provided port is already allocated"


@pytest.mark.parametrize("make", [ClusterHarness, GroupHarness])
@pytest.mark.parametrize("role", ["r", "rw"])
def test_taken_node_port_does_not_block_replacement(make: type[ClusterHarness], role: str) -> None:
    """Of -rw too, which is there: what is declared of it waits."""

    async def story() -> None:
        world = make()
        async with world.operator():
            await world.create_ready(3)
            fault = Fault("PATCH", f"/services/orders-{role}", 422, TAKEN).on(world.server)
            await world.change(services={role: {"type": "NodePort", "nodePort": 30001}})
            await world.until("told", lambda: world.condition("Ready") == "False/Invalid")
            assert (world.message("Ready"), world.status.phase) == (TAKEN, "Degraded")
            await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(2))
            await world.until("another takes its place", lambda: "orders-3" in world.pods(), 120)
            await world.until("it serves", lambda: world.status.ready_instances == 3, 120)
            await world.until("nothing else is the matter", lambda: world.message("Ready") == TAKEN)
            assert world.warnings("Invalid") == [TAKEN]
            fault.met = 0
            await world.wait(120)
            assert 6 <= fault.met <= 30, "it is tried again all the time, with pauses"
            fault.mended = True
            await world.ready(3)

    run_virtual(story())


@pytest.mark.parametrize(
    "path",
    [
        *("services/orders-ro", "services/orders-more", "services/orders-pooler-rw", "deployments/orders-pooler-rw"),
        *("configmaps/orders-pooler-ro", "networkpolicies/orders", "poddisruptionbudgets/orders"),
        *("poddisruptionbudgets/orders-pooler-rw", "networkpolicies/orders-pooler"),
    ],
)
@virtual_time
async def test_optional_object_rejected_does_not_block_instances(path: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        fault = Fault("PATCH", f"/{path}", 403, "exceeded quota").on(world.server)
        more = decode_builtins({"additional": [{"name": "orders-more", "role": "ro"}]}, ServicesSettings)
        await world.create(instances=2, services=more, pooler=PoolerSettings())
        await world.until("they serve", lambda: world.status and world.status.ready_instances == 2)
        await world.until("told", lambda: world.message("Ready").startswith("exceeded quota"))
        assert world.condition("Ready") == "False/Forbidden"
        if path.startswith("deployments"):
            assert world.condition("PoolersReady") == "False/PodRejected"
        fault.mended = True
        await world.ready(2)
        assert world.condition("PoolersReady") == "True/Serving"


@pytest.mark.parametrize(
    ("kind", "key", "content"),
    [
        (Service, NAMES.service("ro"), {"spec": {"ports": [{"port": 1}]}}),
        (NetworkPolicy, KEY, {}),
        (PodDisruptionBudget, KEY, {}),
        (ConfigMap, ObjectKey(KEY.namespace, "orders-pooler-rw"), {}),
    ],
)
@virtual_time
async def test_foreign_object_does_not_block_instances(
    kind: type[Object], key: ObjectKey, content: dict[str, object]
) -> None:
    world = ClusterHarness()
    metadata = {"name": key.name, "namespace": key.namespace}
    resource = kind.api_resource
    world.server.load({"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **content})
    async with world.operator():
        await world.create(pooler=PoolerSettings())
        await world.until("they serve", lambda: world.status and world.status.ready_instances == 3)
        told = f"{resource.kind} {key.name} exists and does not belong to this cluster"
        await world.until("told", lambda: world.message("Ready").startswith(told))
        assert world.condition("Ready") == "False/NameConflict"
        assert world.status is not None and world.status.phase == "Degraded"
        if kind is ConfigMap:
            assert world.condition("PoolersReady") == "False/PodRejected"
            assert told in world.message("PoolersReady")
        await world.change(hibernated=True)
        await world.until("it sleeps", lambda: world.status and world.status.phase == "Hibernated")
        assert told in world.message("Ready")
        await world.change(hibernated=False)
        await world.client.delete(kind, key)
        await world.ready(3)


@virtual_time
async def test_foreign_service_gets_no_endpoints() -> None:
    world = ClusterHarness()
    ports = {"spec": {"ports": [{"name": "postgresql", "port": 5432}]}}
    taken = [NAMES.service("rw"), ObjectKey(KEY.namespace, "till")]
    for key in taken:
        metadata = {"name": key.name, "namespace": key.namespace}
        world.server.load({"apiVersion": "v1", "kind": "Service", "metadata": metadata, **ports})
    more = decode_builtins({"additional": [{"name": "till", "role": "rw"}]}, ServicesSettings)

    def led() -> set[str]:
        return {s.metadata.labels["kubernetes.io/service-name"] for s in world.server.read_all(EndpointSlice)}

    async with world.operator():
        await world.create(services=more)
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        await world.wait()
        assert world.pods() == {} and led() == set(), "without -rw nobody begins"
        await world.client.delete(Service, taken[0])
        await world.until("they serve", lambda: world.status and world.status.ready_instances == 3)
        await world.until("told", lambda: "Service till exists" in world.message("Ready"))
        assert led() == {"orders-rw"}
        await world.client.delete(Service, taken[1])
        await world.ready(3)
        assert led() == {"orders-rw", "till"}


@pytest.mark.parametrize("path", ["services/orders-rw", "services/orders-headless", "roles/orders"])
@virtual_time
async def test_required_objects_are_created_first(path: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        fault = Fault("PATCH", f"/{path}", 403, "exceeded quota").on(world.server)
        await world.create()
        await world.until("told", lambda: world.condition("Ready") == "False/Forbidden")
        await world.wait()
        assert world.pods() == {}
        fault.mended = True
        await world.ready(3)


@virtual_time
async def test_pending_state_is_reported_beside_rejection() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        fault = Fault("PATCH", "/networkpolicies/orders", 403, "no policies").on(world.server)
        await world.client.delete(NetworkPolicy, KEY)
        _break(world, 1)
        await world.client.delete(Pod, NAMES.pod(1))
        await world.until("told", lambda: world.message("Ready").startswith("no policies; "))
        assert world.condition("Ready") == "False/Forbidden" and "orders-1" in world.message("Ready")
        fault.mended = True


@virtual_time
async def test_primary_stays_in_status_during_api_errors() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        fault = Fault("PATCH", "/services/orders-ro", 500, DOWN).on(world.server)
        await world.client.delete(Service, NAMES.service("ro"))
        await world.until("told", lambda: world.condition("Ready") == "False/RequestFailed", 40)
        _break(world, 0)
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("told", lambda: world.condition("Available") == "False/NoPrimary", 40)
        fault.mended = True


@virtual_time
async def test_transient_api_error_keeps_ready() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        fault = Fault("PATCH", "/services/orders-ro", 500, DOWN).on(world.server)
        await world.client.delete(Service, NAMES.service("ro"))
        await world.until("met", lambda: fault.met > 2)
        await world.wait(5)
        assert world.condition("Ready") == "True/AllInstancesReady"
        fault.mended = True
        await world.until("made", lambda: world.server.read(Service, NAMES.service("ro")))
        await world.wait(60)
        assert world.condition("Ready") == "True/AllInstancesReady"
        assert "RequestFailed" not in world.events()


@virtual_time
async def test_unreadable_object_is_reported() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3)
        claim = NAMES.data_pvc(2)
        await world.client.patch(PersistentVolumeClaim, claim, MergePatch({"spec": {"volumeName": "volume-2"}}))
        fault = Fault("GET", "/persistentvolumes/volume-2", 403, "no volumes for you").on(world.server)
        _break(world, 2)
        await world.client.delete(Pod, NAMES.pod(2))
        await world.until("told", lambda: world.condition("Ready") == "False/Forbidden", 40)
        assert world.message("Ready") == "no volumes for you"
        assert _warnings(world.server, "Forbidden") == ["no volumes for you"]
        fault.mended = True


@virtual_time
async def test_rejected_deletion_is_reported_and_continues() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, deletion_policy="Delete")
        fault = Fault("DELETE", "/persistentvolumeclaims/data-orders-0", 403, NO).on(world.server)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("told", lambda: world.condition("Ready") == "False/Forbidden")
        assert (world.status.phase, world.message("Ready")) == ("Deleting", NO)
        assert world.condition("Available") == "False/Deleting"
        assert _warnings(world.server, "Forbidden") == [NO]
        fault.mended = True
        await world.until("gone", lambda: world.cluster is None, 40)
        assert world.pvc_names() == []


@virtual_time
async def test_normal_deletion_emits_no_warning() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        former = {e.metadata.uid for e in world.server.read_all(Event)}
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.wait(10)
        told = [e for e in world.server.read_all(Event) if e.metadata.uid not in former]
        assert {e.type for e in told} == {"Normal"}


@virtual_time
async def test_database_reports_cluster_rejection() -> None:
    world = DatabaseHarness("postgresql")
    async with world.operator():
        await world.create_ready(deletion_policy="Delete")
        fault = Fault("DELETE", "/persistentvolumeclaims/data-orders-0", 403, NO).on(world.server)
        await world.client.delete(Database, KEY)
        await world.until("told", lambda: NO in world.message)
        assert world.message == f"waiting for PostgreSQLCluster orders to stop: {NO}"
        fault.mended = True
        await world.until("gone", lambda: world.database is None)


@pytest.mark.parametrize("engine", VERSIONS)
@virtual_time
async def test_database_reports_failing_webhook(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        fault = Fault("POST", "clusters", 500, DOWN).on(world.server)
        await world.create()
        await world.until("told", lambda: world.reason == "RequestFailed")
        assert world.message == DOWN
        assert world.database is not None
        assert world.database.status.phase == "Pending"
        assert _warnings(world.server, "RequestFailed") == [DOWN]
        fault.mended = True
        await world.ready()


@virtual_time
async def test_user_reports_failing_webhook() -> None:
    world = UsersHarness()
    await world.namespace("default")
    async with world.operator():
        fault = Fault("POST", "/secrets", 500, DOWN).on(world.server)
        await world.user()
        await world.wait_failed(DOWN)
        assert len(_warnings(world.server, "ProvisionFailed")) == 1
        fault.mended = True
        await world.ready()


@virtual_time
async def test_user_on_unreadable_server_is_released_by_force() -> None:
    world = UsersHarness()
    await world.namespace("default")
    key = ObjectKey("default", "clerk")
    async with world.operator():
        await world.user()
        await world.ready()
        fault = Fault("GET", "/secrets/admin", 403, "no Secrets " * 200).on(world.server)
        await world.client.delete(DatabaseUser, key)
        await world.wait_failed("To delete the object without dropping the user")
        assert "no Secrets" in world.message()
        await world.client.patch(DatabaseUser, key, MergePatch(FORCED))
        await world.until("gone", lambda: world.read() is None)
        fault.mended = True


@virtual_time
async def test_database_on_unreadable_server_is_released_by_force() -> None:
    world = UsersHarness()
    await world.namespace("default")
    key = ObjectKey("default", "shop")
    async with world.operator():
        await world.database(deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        fault = Fault("GET", "/secrets/admin", 403, "no Secrets for you").on(world.server)
        await world.client.delete(Database, key)
        await world.until("told", lambda: world.database_reason("shop") == "Forbidden")
        found = world.server.read(Database, key)
        assert found is not None and found.status.phase == "Deleting"
        message = found.status.conditions[0].message
        assert message.startswith("cannot drop the database: no Secrets for you. To delete the object")
        await world.client.patch(Database, key, MergePatch(FORCED))
        await world.until("gone", lambda: world.server.read(Database, key) is None)
        fault.mended = True
        assert world.server.read(Secret, ObjectKey("default", "shop-app")) is not None


def _error(code: int, reason: str) -> ApiError:
    return error_from_status(ApiStatus(message="no", reason=reason, code=code))


@virtual_time
async def test_persistent_error_must_be_continuous() -> None:
    clock = virtual_runtime().clock
    failures, error = ApiErrorTracker(clock), _error(503, "ServiceUnavailable")
    assert failures.reason(KEY, error) == ""
    failures.record(KEY, error)
    await clock.sleep(11)
    assert failures.reason(KEY, error) == "RequestFailed"
    failures.record(KEY, _error(409, "Conflict"))
    assert failures.reason(KEY, error) == "RequestFailed", "a conflict says nothing about it"
    assert failures.reason(KEY, _error(409, "Conflict")) == "", "it is looked at again at once"
    assert failures.reason(ObjectKey("default", "other"), error) == ""
    for other in (ConnectionFailed("it restarts"), None):
        failures.record(KEY, other)
        assert failures.reason(KEY, error) == ""
        failures.record(KEY, error)
        await clock.sleep(11)


@pytest.mark.parametrize(("code", "reason"), [(400, "BadRequest"), (403, "Forbidden"), (422, "Invalid")])
def test_rejection_is_reported_at_once(code: int, reason: str) -> None:
    assert ApiErrorTracker(virtual_runtime().clock).reason(KEY, _error(code, reason)) == reason
    assert ApiErrorTracker(virtual_runtime().clock).reason(KEY, _error(code, "words of a webhook's own")) == reason
