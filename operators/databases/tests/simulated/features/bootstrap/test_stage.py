"""The first database of a cluster: kept as declared, configured once, and beside others that name the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.job_runner import ERROR_MESSAGE
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod, Secret, Service
from steersman.client import HttpRequest, HttpResponse, MergePatch
from steersman.meta import ObjectKey, decode_builtins, to_builtins
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.mysql_cluster import MySQLBootstrap
from steersman_databases.api.postgresql_cluster import Bootstrap
from steersman_databases.cluster.declared import declare
from steersman_databases.engines.cluster_engine import ClusterEngine
from steersman_databases.engines.mysql.cluster_engine import MySQLEngine as MySQLServers
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_databases.engines.postgresql.cluster_engine import PostgreSQLEngine as PostgreSQLServers
from steersman_databases.features.bootstrap.specs import SOURCES_HASH_ANNOTATION, post_init_job
from steersman_testing import InMemoryApiServer, run_virtual, virtual_time

SQL = ObjectKey("default", "sql")
REFERENCES = {
    "configMapRefs": [{"name": "sql", "key": "a.sql"}],
    "secretRefs": [{"name": "seed", "key": "s.sql"}],
}


def bootstrap(**initdb: Any) -> Bootstrap:
    """By the wire names of its fields."""
    return decode_builtins({"initdb": initdb}, Bootstrap)


def with_sql(**initdb: Any) -> Bootstrap:
    """SQL from a Secret and a ConfigMap."""
    return bootstrap(postInitApplicationSQLRefs=REFERENCES, **initdb)


async def give(world: ClusterHarness, sql: str = "CREATE TABLE a", seed: str = "CREATE TABLE s") -> None:
    """What ``with_sql`` names."""
    metadata = meta.ObjectMeta(name="sql", namespace="default")
    await world.client.apply(core.ConfigMap(metadata=metadata, data={"a.sql": sql}))
    metadata = meta.ObjectMeta(name="seed", namespace="default")
    await world.client.apply(core.Secret(metadata=metadata, data={"s.sql": seed.encode()}))


def opens(world: ClusterHarness) -> bool:
    """Whether the Secret for applications opens the database that it names."""
    held = world.secret("orders-app")
    return bool(held) and world.hosts.sql.accepts_password(held["user"], held["password"])


@virtual_time
async def test_database_and_owner_are_created_and_kept() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, bootstrap=bootstrap(database="shop", owner="keeper"))
        assert world.condition("BootstrapDatabaseReady") == "True/DatabaseReady"
        assert world.condition("PostInitSQLApplied") == "", "nothing is declared"
        sql = world.hosts.sql
        assert (sql.databases["shop"].owner, sql.users["keeper"].superuser) == ("keeper", False)
        assert opens(world)
        assert world.secret("orders-app")["jdbc-uri"].startswith("jdbc:postgresql://orders-rw.default.svc:5432/shop?")
        sql.set_password("keeper", "other")
        await world.until("healed", lambda: opens(world), 30)
        await world.client.patch(Secret, NAMES.application_secret, MergePatch({"data": {"password": "bmV3"}}))
        await world.until("taken", lambda: sql.accepts_password("keeper", "new"), 30)
        assert {"DatabaseCreated", "UserCreated", "PasswordReset"} <= set(world.events())


@virtual_time
async def test_custom_password_change_is_applied() -> None:
    world = ClusterHarness()
    given = meta.ObjectMeta(name="given", namespace="default")
    await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"one"}))
    async with world.operator():
        await world.create(instances=1, bootstrap=bootstrap(secret={"name": "given"}))
        await world.ready(1)
        assert world.hosts.sql.accepts_password("orders", "one")
        await world.client.patch(Secret, ObjectKey("default", "given"), MergePatch({"data": {"password": "dHdv"}}))
        await world.until("set", lambda: world.hosts.sql.accepts_password("orders", "two"), 30)
        assert world.secret("orders-app")["password"] == "two"


@pytest.mark.parametrize(("make", "declared"), [(ClusterHarness, Bootstrap), (GroupHarness, MySQLBootstrap)])
def test_invalid_custom_secret_stops_nothing(make: type[ClusterHarness], declared: type[Any]) -> None:

    async def story() -> None:
        world, given = make(), meta.ObjectMeta(name="given", namespace="default")
        await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"one"}))
        async with world.operator():
            named = decode_builtins({"initdb": {"secret": {"name": "given"}}}, declared)
            await world.create(instances=1, bootstrap=named)
            await world.ready(1)
            await world.client.apply(core.Secret(metadata=given, data={"username": b"other", "password": b"two"}))
            await world.until(
                "told", lambda: world.condition("BootstrapDatabaseReady") == "False/OwnerSecretInvalid", 60
            )
            assert "Secret given needs username: orders" in world.message("BootstrapDatabaseReady")
            assert world.condition("Ready") == "False/Degraded"
            assert world.warnings("OwnerSecretInvalid")
            service = NAMES.service("ro")
            await world.client.delete(Service, service)
            await world.until("it is made anew", lambda: world.server.read(Service, service), 60)
            assert (
                world.hosts.sql.accepts_password("orders", "one") and world.secret("orders-app")["password"] == "one"
            )
            await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"two"}))
            await world.until("set", lambda: world.hosts.sql.accepts_password("orders", "two"), 60)
            await world.ready(1)
            assert world.condition("BootstrapDatabaseReady") == "True/DatabaseReady"

    run_virtual(story())


@pytest.mark.requirement("pattern/new-database")
@virtual_time
async def test_post_init_sql_runs_once() -> None:
    world = ClusterHarness()
    await give(world)
    async with world.operator():
        await world.create_ready(1, instances=1, bootstrap=with_sql())
        assert world.condition("PostInitSQLApplied") == "True/Applied"
        assert world.hosts.applied == ["CREATE TABLE s\nCREATE TABLE a"], "first those of Secrets"
        await world.until("the Job is gone", lambda: not list(world.server.read_all(Job)))
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.wait()
    await world.client.patch(PostgreSQLCluster, KEY, MergePatch({"status": {"conditions": []}}), subresource="status")
    async with world.operator():
        await world.until("told again", lambda: world.condition("PostInitSQLApplied") == "True/Applied")
    assert len(world.hosts.applied) == 1


@virtual_time
async def test_post_init_error_is_reported_and_retried_on_change() -> None:
    world = ClusterHarness()
    await give(world, "BROKEN")
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == "False/Failed")
        assert world.message("PostInitSQLApplied").startswith(ERROR_MESSAGE)
        assert (world.condition("Ready"), world.status.phase) == ("False/Degraded", "Provisioning")
        assert "Failed" in world.events()
        (job,) = world.server.read_all(Job)
        (pod,) = (p for p in world.server.read_all(Pod) if p.metadata.name.startswith("orders-init"))
        assert CLUSTER_LABEL not in pod.metadata.labels, "Patroni would take it for a member"
        await world.wait()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid], "once is enough"
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE a"}}))
        await world.ready(1)
        assert len(world.hosts.applied) == 1


@virtual_time
async def test_running_mysql_post_init_is_not_aborted() -> None:
    """Of a file that is, nobody knows how far it came. PostgreSQL's is one transaction."""
    world: ClusterHarness = GroupHarness()
    await give(world)
    wire = {"initdb": {"postInitApplicationSQLRefs": REFERENCES}}
    async with world.operator():
        await world.create(instances=1, bootstrap=decode_builtins(wire, MySQLBootstrap))
        await world.until("it runs", lambda: world.condition("PostInitSQLApplied") == "Unknown/Running")
        (job,) = world.server.read_all(Job)
        await world.client.patch(ConfigMap, SQL, MergePatch({"metadata": {"labels": {"tier": "gold"}}}))
        await world.wait()
        assert "if it fails" not in world.message("PostInitSQLApplied"), "it is the same SQL"
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.until("told", lambda: "run only if it fails" in world.message("PostInitSQLApplied"), 60)
        await world.wait()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid]
        failed = MergePatch({"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        await world.client.patch(Job, job.key, failed, subresource="status")
        await world.until(
            "it is run again",
            lambda: job.metadata.uid not in {j.metadata.uid for j in world.server.read_all(Job)},
            60,
        )


@virtual_time
async def test_names_with_dollar_reach_job_unchanged() -> None:
    world = ClusterHarness()
    await give(world)
    async with world.operator():
        await world.create_ready(1, instances=1, bootstrap=with_sql(database="a$$b $(HOME)", owner="$(PGHOST)"))
        assert len(world.hosts.applied) == 1


@virtual_time
async def test_missing_sql_source_is_waited_for() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == "Unknown/Waiting")
        assert "missing: Secret seed, ConfigMap sql" in world.message("PostInitSQLApplied")
        assert not list(world.server.read_all(Job))
        await give(world)
        await world.ready(1)


@virtual_time
async def test_deleted_job_is_recreated_and_foreign_one_kept() -> None:
    world = ClusterHarness()
    await give(world, "BROKEN")
    pod = {"restartPolicy": "Never", "containers": [{"name": "other", "image": "other"}]}
    strange = {
        "metadata": {"name": NAMES.post_init_job.name, "namespace": "default"},
        "spec": {"template": {"spec": pod}},
    }
    await world.client.create(decode_builtins(strange, Job))
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        await world.client.delete(Job, NAMES.post_init_job)
        await world.until("refused", lambda: world.condition("PostInitSQLApplied") == "False/Failed")
        (former,) = world.server.read_all(Job)
        await world.client.delete(Job, NAMES.post_init_job)
        await world.until("made anew", lambda: list(world.server.read_all(Job)))
        (job,) = world.server.read_all(Job)
        assert job.metadata.uid != former.metadata.uid
        assert world.hosts.applied == []


@virtual_time
async def test_database_name_conflict_oldest_wins() -> None:
    world = ClusterHarness()
    placed = {"spec": {"clusterRef": {"name": "orders"}}}
    async with world.operator():
        first = {"metadata": {"name": "shop", "namespace": "default"}, **placed}
        await world.client.create(decode_builtins(first, Database))
        await world.wait(2)
        await world.create(instances=1, bootstrap=bootstrap(database="shop", owner="keeper"))
        await world.until("told", lambda: world.condition("BootstrapDatabaseReady") == "False/OwnedByAnother")
        assert "the older Database shop already declares database shop on this server" in world.message(
            "BootstrapDatabaseReady"
        )
        await world.client.patch(
            Database, ObjectKey("default", "shop"), MergePatch({"spec": {"deletionPolicy": "Delete"}})
        )
        await world.client.delete(Database, ObjectKey("default", "shop"))
        await world.ready(1)
        user = {"metadata": {"name": "clerk", "namespace": "default"}, "spec": {"user": "keeper", **placed["spec"]}}
        await world.client.create(decode_builtins(user, DatabaseUser))

        def told() -> str:
            found = world.server.read(DatabaseUser, ObjectKey("default", "clerk"))
            conditions = found.status.conditions if found is not None else ()
            return next((c.message for c in conditions), "")

        await world.until("refused", lambda: "the older PostgreSQLCluster orders already declares" in told())


@virtual_time
async def test_unreachable_server_is_reported() -> None:
    world = ClusterHarness()
    async with world.operator():
        world.hosts.sql.up = False
        await world.create(instances=1, bootstrap=bootstrap())
        await world.until("told", lambda: world.condition("BootstrapDatabaseReady") == "False/ServerUnreachable")
        world.hosts.sql.up = True
        await world.ready(1)


@virtual_time
async def test_hanging_server_does_not_delay_switchover() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create(instances=2, bootstrap=bootstrap())
        await world.ready(2)
        world.hosts.sql.hangs = True
        await world.annotate(switchover="orders-1")
        await world.until(
            "over", lambda: (last := world.status.last_switchover) and last.outcome == "Succeeded", seconds=8
        )


NODES = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}
APART = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
PLACED: dict[str, Any] = {
    "nodeSelector": {"for": "databases"},
    "tolerations": [{"key": "databases", "operator": "Exists"}],
    "priorityClassName": "high",
    "imagePullSecrets": [{"name": "registry"}],
    "affinity": {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": NODES},
        "podAntiAffinity": APART,
    },
    "bootstrap": {"initdb": {"postInitApplicationSQLRefs": REFERENCES}},
}


@pytest.mark.parametrize(
    ("kind", "engine"), [(PostgreSQLCluster, PostgreSQLServers()), (MySQLCluster, MySQLServers())]
)
def test_job_uses_cluster_scheduling(kind: type[Any], engine: ClusterEngine) -> None:
    wire = {"metadata": {"name": "orders", "namespace": "default"}, "spec": PLACED}
    view = declare(decode_builtins(wire, kind), "image")
    pod: Any = to_builtins(post_init_job(view, engine.post_init_runner(view), "")).get("spec")["template"]["spec"]
    assert pod["nodeSelector"] == PLACED["nodeSelector"] and pod["tolerations"] == PLACED["tolerations"]
    assert pod["priorityClassName"] == "high" and pod["imagePullSecrets"] == PLACED["imagePullSecrets"]
    # What instances keep away from, the Job may run beside.
    assert pod["affinity"] == {"nodeAffinity": PLACED["affinity"]["nodeAffinity"]}


NOWHERE: dict[str, Any] = {
    "phase": "Pending",
    "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
}
UNPULLED: dict[str, Any] = {
    "phase": "Pending",
    "containerStatuses": [
        {
            "name": "psql",
            "image": "typo",
            "state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}},
        }
    ],
}


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterHarness, Bootstrap), (GroupHarness, MySQLBootstrap)])
@pytest.mark.parametrize(
    ("status", "reason", "words", "advice"),
    [
        (NOWHERE, "Unschedulable", "0/3 nodes are available", "Add a node, or free resources"),
        (UNPULLED, "ImageUnavailable", "no such image", "in spec.imagePullSecrets"),
        (
            'pods "orders-init-x7" is forbidden: exceeded quota',
            "PodRejected",
            "pod creation for orders-init was rejected: it is forbidden: exceeded quota",
            "for example by a larger quota",
        ),
    ],
)
@virtual_time
async def test_job_without_pod_reports_reason(
    world_of: type[ClusterHarness],
    declared: type[Any],
    status: dict[str, Any] | str,
    reason: str,
    words: str,
    advice: str,
) -> None:
    world = world_of()
    await give(world)
    job = NAMES.post_init_job.name
    world.hosts.stuck_jobs[job] = status
    async with world.operator():
        initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == f"False/{reason}", 60)
        assert words in world.message("PostInitSQLApplied") and advice in world.message("PostInitSQLApplied")
        assert world.warnings(reason) and world.condition("Ready") == "False/Degraded"
        await world.wait(300)
        assert world.condition("PostInitSQLApplied") == f"False/{reason}"
        assert len(world.warnings(reason)) == 1


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterHarness, Bootstrap), (GroupHarness, MySQLBootstrap)])
@virtual_time
async def test_unstarted_job_is_recreated_if_pod_changes(world_of: type[ClusterHarness], declared: type[Any]) -> None:
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.post_init_job.name] = NOWHERE
    async with world.operator():
        initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == "False/Unschedulable", 60)
        (former,) = world.server.read_all(Job)
        await world.change(deletionPolicy="Delete", podMetadata={"labels": {"team": "shop"}})
        await world.annotate(restarted_at="2026-11-27")
        await world.wait()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [former.metadata.uid], "that is not of its pod"
        await world.change(tolerations=[{"key": "databases", "operator": "Exists"}])

        def anew() -> list[Job]:
            return [j for j in world.server.read_all(Job) if j.metadata.uid != former.metadata.uid]

        await world.until("made anew", anew)
        (second,) = anew()
        assert [t.key for t in second.spec.template.spec.tolerations] == ["databases"]
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.until("for the SQL", lambda: [j for j in anew() if j.metadata.uid != second.metadata.uid])


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterHarness, Bootstrap), (GroupHarness, MySQLBootstrap)])
@virtual_time
async def test_unstarted_job_of_older_release_is_kept(world_of: type[ClusterHarness], declared: type[Any]) -> None:
    """Nobody knows what it was made for."""
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.post_init_job.name] = NOWHERE
    initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
    async with world.operator():
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == "False/Unschedulable", 60)
        (former,) = world.server.read_all(Job)
        unknown = {name: None for name in former.metadata.annotations if name != SOURCES_HASH_ANNOTATION}
        assert unknown
        await world.client.patch(Job, former.key, MergePatch({"metadata": {"annotations": unknown}}))
        await world.change(tolerations=[{"key": "databases", "operator": "Exists"}])
        await world.wait()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [former.metadata.uid]


class LateTransport:
    """Tells of no change of a pod while ``late``; reads and writes go on."""

    def __init__(self, server: InMemoryApiServer) -> None:
        self._server = server
        self.late = False

    async def request(self, request: HttpRequest) -> HttpResponse:
        return await self._server.request(request)

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncGenerator[AsyncIterator[bytes]]:
        async with self._server.stream(request) as lines:
            yield self._told(request, lines)

    async def close(self) -> None:
        await self._server.close()

    async def _told(self, request: HttpRequest, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for line in lines:
            if not (self.late and request.path.endswith("/pods")):
                yield line


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterHarness, Bootstrap), (GroupHarness, MySQLBootstrap)])
@virtual_time
async def test_job_started_meanwhile_is_not_deleted(world_of: type[ClusterHarness], declared: type[Any]) -> None:
    """Nobody knows how far its SQL came, and MySQL's is not one transaction."""
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.post_init_job.name] = NOWHERE
    initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
    transport = LateTransport(world.server)
    async with world.operator(transport):
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("PostInitSQLApplied") == "False/Unschedulable", 60)
        (job,) = world.server.read_all(Job)
        (pod,) = (p for p in world.server.read_all(Pod) if p.metadata.name.startswith(job.metadata.name))
        transport.late = True
        runs = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        await world.client.patch(Pod, pod.key, MergePatch({"status": runs}), subresource="status")
        await world.change(imagePullSecrets=[{"name": "registry"}])
        await world.wait(30)
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid]
