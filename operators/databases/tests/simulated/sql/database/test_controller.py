"""Databases without a reference, of either engine: their clusters, and what they promised before there were any."""

from __future__ import annotations

import os

import pytest

from database_support.unit.database_harness import KEY, VERSIONS, CuttableTransport, DatabaseHarness
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret, Service
from steersman.api.discovery_v1 import EndpointSlice
from steersman.api.events_v1 import Event
from steersman.client import Client, MergePatch
from steersman.errors import Invalid
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman_databases.api import (
    Database,
    DatabaseUser,
    DatabaseUserSpec,
    MySQLCluster,
    MySQLClusterSpec,
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
)
from steersman_databases.api.database import Extension, Schema
from steersman_databases.api.references import ClusterReference
from steersman_databases.cluster.declared import kind_of
from steersman_databases.engines import SqlCredentials
from steersman_databases.engines.naming import ClusterNames
from steersman_testing import run_virtual, virtual_time

PORTS = {"postgresql": 5432, "mysql": 3306}
each_engine = pytest.mark.parametrize("engine", VERSIONS)


def _key(name: str) -> ObjectKey:
    return ObjectKey(KEY.namespace, name)


@pytest.mark.requirement("design/database-kind", "design/connection-string", "pattern/deploy")
@each_engine
@virtual_time
async def test_database_becomes_ready_then_writes_nothing(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        database, cluster, at = world.database, world.cluster, f"orders-primary.default:{PORTS[engine]}/orders"
        assert database is not None and cluster is not None
        assert database.status.connection_string == f"{engine}://orders:<secret>@{at}"
        assert database.status.observed_generation == database.metadata.generation
        assert (cluster.spec.instances, cluster.spec.version) == (1, VERSIONS[engine])
        assert world.server.read(Service, _key("orders-primary")) is not None
        slices = [
            s for s in world.server.read_all(EndpointSlice) if s.key.name.startswith("orders.orders-primary-ipv")
        ]
        assert len(slices) == 2
        entries = world.secret("orders-app")
        assert {"host", "port", "dbname", "database", "user", "username", "password", "uri", "type"} < set(entries)
        assert entries["uri"] == f"{engine}://orders:{entries['password']}@{at}"
        assert world.sql.can_log_in(SqlCredentials("orders", entries["password"]), "orders")
        # The members have said all that they have to say.
        await world.runtime.clock.sleep(10)
        version, sql_writes = world.server.resource_version, world.sql.writes
        await world.runtime.clock.sleep(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"
        assert world.sql.writes == sql_writes


@pytest.mark.requirement("design/events")
@each_engine
@virtual_time
async def test_events_describe_progress_without_passwords(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        await world.until("told", lambda: any(e.reason == "DatabaseReady" for e in world.server.read_all(Event)))
        notes = [e.note or "" for e in world.server.read_all(Event)]
        assert {"created Service orders-primary", "created user orders", "created database orders"} <= set(notes)
        for name in ("orders-admin", "orders-app"):
            assert world.secret(name)["password"] not in " ".join(notes)


@virtual_time
async def test_postgresql_only_fields_are_applied() -> None:
    world = DatabaseHarness("postgresql")
    async with world.operator():
        await world.create_ready(
            encoding="UTF8", schemas=(Schema(name="sales"),), extensions=(Extension(name="pgcrypto"),)
        )
        inside = world.sql.contents["orders"]
        assert "sales" in inside.schemas and "pgcrypto" in inside.extensions


@virtual_time
async def test_mysql_character_set_is_applied() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready(encoding="latin1")
        assert world.sql.databases["orders"].encoding == "latin1"


@each_engine
@virtual_time
async def test_drift_is_reverted_in_30s(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        password = world.secret("orders-app")["password"]
        world.sql.drop_user("orders")
        await world.until("user is back", lambda: "orders" in world.sql.users, 30)
        world.sql.set_password("orders", "elsewhere")
        await world.until("password is back", lambda: world.sql.can_log_in(SqlCredentials("orders", password)), 30)
        world.sql.revoke_on_database("orders")
        await world.until(
            "rights are back", lambda: world.sql.can_log_in(SqlCredentials("orders", password), "orders"), 30
        )
        await world.client.delete(Service, _key("orders-primary"))
        await world.until("Service is back", lambda: world.server.read(Service, _key("orders-primary")), 30)
        await world.client.delete(Secret, _key("orders-app"))
        await world.until("Secret is back", lambda: world.secret("orders-app"), 30)
        renewed = world.secret("orders-app")["password"]
        assert renewed != password
        await world.until("it is in force", lambda: world.sql.can_log_in(SqlCredentials("orders", renewed)), 30)
        former = world.secret("orders-admin")
        await world.client.delete(Secret, _key("orders-admin"))
        await world.until("another is there", lambda: world.secret("orders-admin") not in ({}, former), 30)
        await world.client.patch(kind_of(engine), KEY, MergePatch({"spec": {"instances": 2}}))
        await world.until("one instance", lambda: world.cluster and world.cluster.spec.instances == 1, 30)


@each_engine
@virtual_time
async def test_status_edited_by_hand_is_rewritten(engine: str) -> None:
    """Or that a former leader did, whose request was long on its way."""
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        former = world.database and world.database.status
        late = MergePatch({"status": {"phase": "Provisioning", "conditions": []}})
        await world.client.patch(Database, KEY, late, subresource="status")
        await world.until("it is ready again", lambda: world.database and world.database.status == former, 30)


@each_engine
@virtual_time
async def test_other_objects_on_its_cluster_keep_their_names(engine: str) -> None:
    world = DatabaseHarness(engine)
    at = ClusterReference(name="orders", kind="MySQLCluster" if engine == "mysql" else "PostgreSQLCluster")

    def condition(name: str) -> str:
        user = world.server.read(DatabaseUser, _key(name))
        return user.status.conditions[0].message if user and user.status.conditions else ""

    async with world.operator():
        await world.create_ready()
        for name in ("clerk", "orders"):
            spec = DatabaseUserSpec(user=name, cluster_ref=at)
            metadata = ObjectMeta(name=name, namespace=KEY.namespace)
            await world.client.create(DatabaseUser(metadata=metadata, spec=spec))
        await world.until("clerk is made", lambda: "has succeeded" in condition("clerk"))
        await world.until(
            "orders is refused", lambda: "the older Database orders already declares" in condition("orders")
        )
        assert {"clerk", "orders"} <= world.sql.users.keys()


@virtual_time
async def test_service_port_changed_by_hand_is_replaced() -> None:
    world = DatabaseHarness()
    async with world.operator():
        await world.create_ready()

        def ports() -> list[int]:
            service = world.server.read(Service, _key("orders-primary"))
            return [port.port for port in service.spec.ports] if service else []

        assert ports() == [3306]
        body = {"spec": {"ports": [{"name": "mysql", "port": 1, "protocol": "TCP", "targetPort": 3306}]}}
        await world.client.patch(Service, _key("orders-primary"), MergePatch(body))
        await world.until("the port is back", lambda: ports() == [3306], 30)


@each_engine
@virtual_time
async def test_password_set_by_hand_is_adopted(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        body = {"data": {"password": "Ynk6IGhhbmQ="}}
        await world.client.patch(Secret, _key("orders-app"), MergePatch(body))
        await world.until("in force", lambda: world.sql.can_log_in(SqlCredentials("orders", "by: hand")), 30)
        await world.until("in the URI", lambda: "by%3A%20hand" in world.secret("orders-app")["uri"], 30)


@each_engine
@virtual_time
async def test_endpoint_stays_in_status_while_server_hangs(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        database = world.database
        assert database is not None
        told = database.status.connection_string
        world.sql.hangs = True
        world.sql.drop_user("orders")
        await world.until("noticed", lambda: world.reason == "ServerUnreachable", 60)
        database = world.database
        assert database is not None
        assert database.status.connection_string == told
        world.sql.hangs = False
        await world.until("looked at again", lambda: world.reason == "DatabaseReady", 40)


@pytest.mark.requirement("design/terminal-errors")
@pytest.mark.parametrize(
    ("engine", "fields", "reason", "says"),
    [
        ("mysql", {"version": "9"}, "UnsupportedVersion", 'version "9" of mysql is not supported. Use "9.7"'),
        ("mysql", {"database_name": "performance_schema"}, "InvalidName", "spec.databaseName"),
        ("mysql", {"username": "mysql.sys"}, "InvalidName", "spec.username"),
        ("postgresql", {"version": "9"}, "UnsupportedVersion", 'version "9" of postgresql is not supported'),
        ("postgresql", {"database_name": "template1"}, "InvalidName", "spec.databaseName"),
        ("postgresql", {"username": "pg_read_all_data"}, "InvalidName", "spec.username"),
    ],
)
@virtual_time
async def test_impossible_spec_is_reported_once(engine: str, fields: dict[str, str], reason: str, says: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create(**fields)
        await world.until(reason, lambda: world.reason == reason)
        database = world.database
        assert database is not None
        assert database.status.phase == "Failed"
        assert says in world.message
        version = world.server.resource_version
        await world.runtime.clock.sleep(600)
        events = [e for e in world.server.read_all(Event) if e.reason == reason]
        assert [e.type for e in events] == ["Warning"]
        assert world.server.resource_version - version <= 1, "no endless retry"
        assert world.cluster is None, "nothing is made for what cannot be"


METADATA = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
STRANGERS = {
    "mysql": MySQLCluster(metadata=METADATA, spec=MySQLClusterSpec(instances=1)),
    "postgresql": PostgreSQLCluster(metadata=METADATA, spec=PostgreSQLClusterSpec(instances=1)),
}


@each_engine
@virtual_time
async def test_foreign_cluster_is_not_adopted(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.client.create(STRANGERS[engine])
        await world.create(storage_size=Quantity("2Gi"), deletion_policy="Delete")
        await world.until("said", lambda: world.reason == "NameConflict")
        assert f"{kind_of(engine).__name__} orders exists and does not belong to this Database" in world.message
        await world.client.delete(Database, KEY)
        await world.until("gone", lambda: world.database is None)
        cluster = world.cluster
        assert cluster is not None and cluster.metadata.deletion_timestamp is None
        assert (cluster.metadata.owner_references, cluster.spec.deletion_policy) == ((), "Retain")


@each_engine
@virtual_time
async def test_volume_grows_and_never_shrinks(engine: str) -> None:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready()
        await world.change(storageSize="2Gi")

        def requested() -> Quantity:
            claim = world.pvc()
            assert claim is not None
            return Quantity(claim.spec.resources.requests["storage"])

        await world.until("2Gi are requested", lambda: requested() == Quantity("2Gi"))
        body = MergePatch({"spec": {"storage": {"size": "3Gi"}}})
        await world.client.patch(kind_of(engine), KEY, body)
        await world.until("3Gi are requested", lambda: requested() == Quantity("3Gi"))
        await world.ready()


@each_engine
@virtual_time
async def test_mistyped_size_can_be_lowered(engine: str) -> None:
    world, names = DatabaseHarness(engine), ClusterNames(KEY)

    def sizes() -> tuple[str, str]:
        cluster, database = world.cluster, world.database
        assert cluster is not None and database is not None
        capacity = None if database.status.storage is None else database.status.storage.data_capacity
        return str(cluster.spec.storage.size), str(capacity)

    async with world.operator():
        await world.create_ready()
        capacity = MergePatch({"status": {"capacity": {"storage": "1Gi"}}})
        await world.client.patch(PersistentVolumeClaim, names.data_pvc(0), capacity, subresource="status")
        await world.change(storageSize="10Ti")
        await world.until("passed", lambda: sizes() == ("10Ti", "1Gi"))
        await world.change(storageSize="2Gi")
        await world.until("lowered", lambda: sizes() == ("2Gi", "1Gi"))
        await Client(world.server, field_manager="kubectl").patch(
            kind_of(engine), KEY, MergePatch({"spec": {"storage": {"size": "3Gi"}}})
        )
        await world.change(monitoring={"podMonitor": {"enabled": True}})
        await world.until("applied", lambda: world.cluster and world.cluster.spec.monitoring.pod_monitor.enabled)
        assert sizes() == ("3Gi", "1Gi"), "set at the cluster"
        with pytest.raises(Invalid, match=r"below status\.storage\.dataCapacity"):
            await world.change(storageSize="512Mi")


@pytest.mark.requirement("programming/independent-loops")
@each_engine
@virtual_time
async def test_cluster_problem_is_reported_by_database(engine: str) -> None:
    world = DatabaseHarness(engine)
    metadata = {"name": "orders-admin", "namespace": KEY.namespace}
    world.server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata})
    async with world.operator():
        await world.create()
        await world.until("said", lambda: world.reason == "NameConflict")
        assert "Secret orders-admin" in world.message
        found = world.database
        assert found is not None and found.status.phase == "Failed"


@each_engine
@virtual_time
async def test_server_of_first_release_is_not_changed(engine: str) -> None:
    """From before there were clusters: its volume and its key are the ``Database``'s by their labels."""
    world = DatabaseHarness(engine)
    labels = {"name": engine, "instance": "orders", "managed-by": "steersman-databases", "component": "database"}
    common = {"namespace": KEY.namespace, "labels": {f"app.kubernetes.io/{k}": v for k, v in labels.items()}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    world.server.load(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "orders-admin", **common}},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data-orders-0", **common},
            "spec": claim,
        },
    )
    async with world.operator():
        await world.create()
        await world.until("said", lambda: world.reason == "NameConflict")
        left = world.pvc(), world.server.read(Secret, _key("orders-admin"))
        await world.deleted()
        assert (world.pvc(), world.server.read(Secret, _key("orders-admin"))) == left


@virtual_time
async def test_unstartable_pod_is_reported_and_recreated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, pod = DatabaseHarness(), _key("orders-0-0")

    def uid() -> str:
        found = world.server.read(Pod, pod)
        return found.metadata.uid if found else ""

    async with world.operator():
        await world.create()
        await world.until("a pod", lambda: uid())
        former = uid()
        # Nothing runs in it that could say anything.
        world.machines.fake_group.unreachable.add(pod.name)
        stuck = {"name": "server", "image": "gone", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
        status = {"conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [stuck]}
        await world.client.patch(Pod, pod, MergePatch({"status": status}), subresource="status")
        await world.until("told", lambda: world.reason == "ImageUnavailable")
        assert uid() == former
        monkeypatch.setenv("STEERSMAN_IMAGE_MYSQL_9_7", "registry.test/mysql:9.7")
        await world.until("another", lambda: uid() not in ("", former))
        world.machines.fake_group.unreachable.clear()
        await world.ready()


WHOLE = os.environ.get("SIMULATE") == "whole"
STRIDE = 1 if WHOLE else 67
MOST_REQUESTS = 300


async def _killed_while_creating(engine: str, requests: int, lose_answer: bool) -> bool:
    """A life whose operator is killed after so many requests; False when it was through before."""
    world = DatabaseHarness(engine)
    await world.create()
    transport = CuttableTransport(world.server, requests, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.until("cut or through", lambda: transport.is_cut.is_set() or world.reason == "DatabaseReady")
    async with world.operator():
        await world.ready()
        assert len(world.machines.contents_by_cluster) == 1, "data were made twice"
        assert world.sql.can_log_in(SqlCredentials("orders", world.secret("orders-app")["password"]), "orders")
    return transport.is_cut.is_set()


async def _killed_while_deleting(engine: str, requests: int, lose_answer: bool, policy: str) -> bool:
    world = DatabaseHarness(engine)
    async with world.operator():
        await world.create_ready(deletion_policy=policy)
    await world.client.delete(Database, KEY)
    transport = CuttableTransport(world.server, requests, lose_answer=lose_answer)
    async with world.operator(transport):
        await world.until("cut or through", lambda: transport.is_cut.is_set() or world.database is None)
    async with world.operator():
        await world.until("gone", lambda: world.database is None)
        world.server.collect_garbage()
        assert (world.pvc() is None) == (policy == "Delete")
        for name in ("orders-admin", "orders-app"):
            assert bool(world.secret(name)) == (policy == "Retain")
    return transport.is_cut.is_set()


_ALL = [
    (act, lose, engine) for act in ("create", "Retain", "Delete") for lose in (False, True) for engine in VERSIONS
]


@pytest.mark.requirement("design/idempotence")
# Otherwise each act and moment with one engine, in turn.
@pytest.mark.parametrize("act, lose_answer, engine", _ALL if WHOLE else [*_ALL[0::4], *_ALL[3::4]])
def test_operator_killed_at_every_request_recovers(engine: str, act: str, lose_answer: bool) -> None:
    for requests in range(0, MOST_REQUESTS, STRIDE):
        if act == "create":
            story = _killed_while_creating(engine, requests, lose_answer)
        else:
            story = _killed_while_deleting(engine, requests, lose_answer, act)
        if not run_virtual(story):
            assert requests > 5, "the sweep has found nothing to cut"
            return
    raise AssertionError(f"not through after {MOST_REQUESTS} requests")
