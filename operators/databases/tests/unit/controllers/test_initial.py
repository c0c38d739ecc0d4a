"""The first database of a cluster: kept as declared, configured once, and beside others that name the same."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from database_support.group_world import GroupWorld
from database_support.job_runner import WORDS
from steersman.api.apply import core, meta
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Pod, Secret, Service
from steersman.client import HttpRequest, HttpResponse, MergePatch
from steersman.meta import ObjectKey, decode_builtins, to_builtins
from steersman_databases.api import Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.mysql_cluster import MySQLBootstrap
from steersman_databases.api.postgresql_cluster import Bootstrap
from steersman_databases.clusters.view import view_of
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL
from steersman_databases.engines.mysql.cluster import MySQLCluster as MySQLServers
from steersman_databases.engines.postgresql.cluster import PostgreSQLCluster as PostgreSQLServers
from steersman_databases.resources.jobs import SOURCES, configuration_job
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


async def give(world: ClusterWorld, sql: str = "CREATE TABLE a", seed: str = "CREATE TABLE s") -> None:
    """What ``with_sql`` names."""
    metadata = meta.ObjectMeta(name="sql", namespace="default")
    await world.client.apply(core.ConfigMap(metadata=metadata, data={"a.sql": sql}))
    metadata = meta.ObjectMeta(name="seed", namespace="default")
    await world.client.apply(core.Secret(metadata=metadata, data={"s.sql": seed.encode()}))


def opens(world: ClusterWorld) -> bool:
    """Whether the Secret for applications opens the database that it names."""
    held = world.secret("orders-app")
    return bool(held) and world.hosts.sql.lets_in(held["user"], held["password"])


@virtual_time
async def test_database_and_owner_are_made_and_kept() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, bootstrap=bootstrap(database="shop", owner="keeper"))
        await world.ready(1)
        assert world.condition("InitialDatabase") == "True/DatabaseReady"
        assert world.condition("InitialConfiguration") == "", "nothing is declared"
        sql = world.hosts.sql
        assert (sql.databases["shop"].owner, sql.users["keeper"].superuser) == ("keeper", False)
        assert opens(world)
        assert world.secret("orders-app")["jdbc-uri"].startswith("jdbc:postgresql://orders-rw.default.svc:5432/shop?")
        sql.set_password("keeper", "other")
        await world.until("healed", lambda: opens(world), 30)
        await world.client.patch(Secret, NAMES.application_secret, MergePatch({"data": {"password": "bmV3"}}))
        await world.until("taken", lambda: sql.lets_in("keeper", "new"), 30)
        assert {"DatabaseCreated", "UserCreated", "PasswordReset"} <= set(world.events())


@virtual_time
async def test_a_given_password_that_changes_is_set() -> None:
    world = ClusterWorld()
    given = meta.ObjectMeta(name="given", namespace="default")
    await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"one"}))
    async with world.operator():
        await world.create(instances=1, bootstrap=bootstrap(secret={"name": "given"}))
        await world.ready(1)
        assert world.hosts.sql.lets_in("orders", "one")
        await world.client.patch(Secret, ObjectKey("default", "given"), MergePatch({"data": {"password": "dHdv"}}))
        await world.until("set", lambda: world.hosts.sql.lets_in("orders", "two"), 30)
        assert world.secret("orders-app")["password"] == "two"


@pytest.mark.parametrize(("make", "declared"), [(ClusterWorld, Bootstrap), (GroupWorld, MySQLBootstrap)])
def test_a_given_secret_that_fits_no_more_stops_nothing(make: type[ClusterWorld], declared: type[Any]) -> None:

    async def story() -> None:
        world, given = make(), meta.ObjectMeta(name="given", namespace="default")
        await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"one"}))
        async with world.operator():
            named = decode_builtins({"initdb": {"secret": {"name": "given"}}}, declared)
            await world.create(instances=1, bootstrap=named)
            await world.ready(1)
            await world.client.apply(core.Secret(metadata=given, data={"username": b"other", "password": b"two"}))
            await world.until("told", lambda: world.condition("InitialDatabase") == "False/OwnerSecretInvalid", 60)
            assert "Secret given needs username: orders" in world.message("InitialDatabase")
            assert world.condition("Ready") == "False/Degraded"
            assert world.warnings("OwnerSecretInvalid")
            service = NAMES.service("ro")
            await world.client.delete(Service, service)
            await world.until("it is made anew", lambda: world.server.read(Service, service), 60)
            assert world.hosts.sql.lets_in("orders", "one") and world.secret("orders-app")["password"] == "one"
            await world.client.apply(core.Secret(metadata=given, data={"username": b"orders", "password": b"two"}))
            await world.until("set", lambda: world.hosts.sql.lets_in("orders", "two"), 60)
            await world.ready(1)
            assert world.condition("InitialDatabase") == "True/DatabaseReady"

    run_virtual(story())


@virtual_time
async def test_the_sql_is_applied_once() -> None:
    world = ClusterWorld()
    await give(world)
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.ready(1)
        assert world.condition("InitialConfiguration") == "True/Applied"
        assert world.hosts.applied == ["CREATE TABLE s\nCREATE TABLE a"], "first those of Secrets"
        await world.until("the Job is gone", lambda: not list(world.server.read_all(Job)))
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.rest()
    await world.client.patch(PostgreSQLCluster, KEY, MergePatch({"status": {"conditions": []}}), subresource="status")
    async with world.operator():
        await world.until("told again", lambda: world.condition("InitialConfiguration") == "True/Applied")
    assert len(world.hosts.applied) == 1


@virtual_time
async def test_refused_sql_is_told_and_run_again_when_it_is_mended() -> None:
    world = ClusterWorld()
    await give(world, "BROKEN")
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("InitialConfiguration") == "False/Failed")
        assert world.message("InitialConfiguration").startswith(WORDS)
        assert (world.condition("Ready"), world.status.phase) == ("False/Degraded", "Provisioning")
        assert "Failed" in world.events()
        (job,) = world.server.read_all(Job)
        (pod,) = (p for p in world.server.read_all(Pod) if p.metadata.name.startswith("orders-init"))
        assert MEMBER_OF_LABEL not in pod.metadata.labels, "Patroni would take it for a member"
        await world.rest()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid], "once is enough"
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE a"}}))
        await world.ready(1)
        assert len(world.hosts.applied) == 1


@virtual_time
async def test_sql_that_mysql_is_at_is_not_cut_off() -> None:
    """Of a file that is, nobody knows how far it came. PostgreSQL's is one transaction."""
    world: ClusterWorld = GroupWorld()
    await give(world)
    wire = {"initdb": {"postInitApplicationSQLRefs": REFERENCES}}
    async with world.operator():
        await world.create(instances=1, bootstrap=decode_builtins(wire, MySQLBootstrap))
        await world.until("it runs", lambda: world.condition("InitialConfiguration") == "Unknown/Running")
        (job,) = world.server.read_all(Job)
        await world.client.patch(ConfigMap, SQL, MergePatch({"metadata": {"labels": {"tier": "gold"}}}))
        await world.rest()
        assert "if it fails" not in world.message("InitialConfiguration"), "it is the same SQL"
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.until("told", lambda: "run only if it fails" in world.message("InitialConfiguration"), 60)
        await world.rest()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid]
        failed = MergePatch({"status": {"conditions": [{"type": "Failed", "status": "True"}]}})
        await world.client.patch(Job, job.key, failed, subresource="status")
        await world.until(
            "it is run again",
            lambda: job.metadata.uid not in {j.metadata.uid for j in world.server.read_all(Job)},
            60,
        )


@virtual_time
async def test_names_that_kubernetes_would_change_reach_the_job_as_they_are() -> None:
    world = ClusterWorld()
    await give(world)
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql(database="a$$b $(HOME)", owner="$(PGHOST)"))
        await world.ready(1)
        assert len(world.hosts.applied) == 1


@virtual_time
async def test_what_is_missing_is_waited_for() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("InitialConfiguration") == "Unknown/Waiting")
        assert "there is no Secret seed, no ConfigMap sql" in world.message("InitialConfiguration")
        assert not list(world.server.read_all(Job))
        await give(world)
        await world.ready(1)


@virtual_time
async def test_a_job_that_is_deleted_is_made_anew_and_a_strangers_is_left_alone() -> None:
    world = ClusterWorld()
    await give(world, "BROKEN")
    pod = {"restartPolicy": "Never", "containers": [{"name": "other", "image": "other"}]}
    strange = {
        "metadata": {"name": NAMES.initial_job.name, "namespace": "default"},
        "spec": {"template": {"spec": pod}},
    }
    await world.client.create(decode_builtins(strange, Job))
    async with world.operator():
        await world.create(instances=1, bootstrap=with_sql())
        await world.until("told", lambda: world.condition("Ready") == "False/NameTaken")
        await world.client.delete(Job, NAMES.initial_job)
        await world.until("refused", lambda: world.condition("InitialConfiguration") == "False/Failed")
        (former,) = world.server.read_all(Job)
        await world.client.delete(Job, NAMES.initial_job)
        await world.until("made anew", lambda: list(world.server.read_all(Job)))
        (job,) = world.server.read_all(Job)
        assert job.metadata.uid != former.metadata.uid
        assert world.hosts.applied == []


@virtual_time
async def test_who_named_the_database_first_has_it() -> None:
    world = ClusterWorld()
    placed = {"spec": {"clusterRef": {"name": "orders"}}}
    async with world.operator():
        first = {"metadata": {"name": "shop", "namespace": "default"}, **placed}
        await world.client.create(decode_builtins(first, Database))
        await world.rest(2)
        await world.create(instances=1, bootstrap=bootstrap(database="shop", owner="keeper"))
        await world.until("told", lambda: world.condition("InitialDatabase") == "False/Claimed")
        assert "database shop on this server is claimed by Database shop" in world.message("InitialDatabase")
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

        await world.until("refused", lambda: "is claimed by PostgreSQLCluster orders, which is older" in told())


@virtual_time
async def test_a_server_that_does_not_answer_is_told() -> None:
    world = ClusterWorld()
    async with world.operator():
        world.hosts.sql.up = False
        await world.create(instances=1, bootstrap=bootstrap())
        await world.until("told", lambda: world.condition("InitialDatabase") == "False/ServerUnreachable")
        world.hosts.sql.up = True
        await world.ready(1)


@virtual_time
async def test_a_server_that_hangs_holds_up_no_switchover() -> None:
    world = ClusterWorld()
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
def test_the_job_runs_where_the_cluster_does(kind: type[Any], engine: ClusterEngine) -> None:
    wire = {"metadata": {"name": "orders", "namespace": "default"}, "spec": PLACED}
    view = view_of(decode_builtins(wire, kind), "image")
    pod: Any = to_builtins(configuration_job(view, engine.configurer(view), "")).get("spec")["template"]["spec"]
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


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterWorld, Bootstrap), (GroupWorld, MySQLBootstrap)])
@pytest.mark.parametrize(
    ("status", "reason", "words", "advice"),
    [
        (NOWHERE, "Unschedulable", "0/3 nodes are available", "add a node, or free resources"),
        (UNPULLED, "ImageUnavailable", "no such image", "in spec.imagePullSecrets"),
        (
            'pods "orders-init-x7" is forbidden: exceeded quota',
            "JobRefused",
            "takes no pod of orders-init: it is forbidden: exceeded quota",
            "such as a larger quota",
        ),
    ],
)
@virtual_time
async def test_why_the_job_has_no_pod_that_runs_is_told(
    world_of: type[ClusterWorld],
    declared: type[Any],
    status: dict[str, Any] | str,
    reason: str,
    words: str,
    advice: str,
) -> None:
    world = world_of()
    await give(world)
    job = NAMES.initial_job.name
    world.hosts.stuck_jobs[job] = status
    async with world.operator():
        initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("InitialConfiguration") == f"False/{reason}", 60)
        assert words in world.message("InitialConfiguration") and advice in world.message("InitialConfiguration")
        assert world.warnings(reason) and world.condition("Ready") == "False/Degraded"
        await world.rest(300)
        assert world.condition("InitialConfiguration") == f"False/{reason}"
        assert len(world.warnings(reason)) == 1


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterWorld, Bootstrap), (GroupWorld, MySQLBootstrap)])
@virtual_time
async def test_a_job_that_does_not_start_is_made_anew_where_its_pod_would_differ(
    world_of: type[ClusterWorld], declared: type[Any]
) -> None:
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.initial_job.name] = NOWHERE
    async with world.operator():
        initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("InitialConfiguration") == "False/Unschedulable", 60)
        (former,) = world.server.read_all(Job)
        await world.change(deletionPolicy="Delete", podMetadata={"labels": {"team": "shop"}})
        await world.annotate(restart="2026-11-27")
        await world.rest()
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [former.metadata.uid], "that is not of its pod"
        await world.change(tolerations=[{"key": "databases", "operator": "Exists"}])

        def anew() -> list[Job]:
            return [j for j in world.server.read_all(Job) if j.metadata.uid != former.metadata.uid]

        await world.until("made anew", anew)
        (second,) = anew()
        assert [t.key for t in second.spec.template.spec.tolerations] == ["databases"]
        await world.client.patch(ConfigMap, SQL, MergePatch({"data": {"a.sql": "CREATE TABLE b"}}))
        await world.until("for the SQL", lambda: [j for j in anew() if j.metadata.uid != second.metadata.uid])


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterWorld, Bootstrap), (GroupWorld, MySQLBootstrap)])
@virtual_time
async def test_a_job_of_a_former_release_that_does_not_start_is_left_alone(
    world_of: type[ClusterWorld], declared: type[Any]
) -> None:
    """Nobody knows what it was made for."""
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.initial_job.name] = NOWHERE
    initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
    async with world.operator():
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("InitialConfiguration") == "False/Unschedulable", 60)
        (former,) = world.server.read_all(Job)
        unknown = {name: None for name in former.metadata.annotations if name != SOURCES}
        assert unknown
        await world.client.patch(Job, former.key, MergePatch({"metadata": {"annotations": unknown}}))
        await world.change(tolerations=[{"key": "databases", "operator": "Exists"}])
        await world.rest()
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


@pytest.mark.parametrize(("world_of", "declared"), [(ClusterWorld, Bootstrap), (GroupWorld, MySQLBootstrap)])
@virtual_time
async def test_a_job_that_has_started_since_is_not_cut_off(world_of: type[ClusterWorld], declared: type[Any]) -> None:
    """Nobody knows how far its SQL came, and MySQL's is not one transaction."""
    world = world_of()
    await give(world)
    world.hosts.stuck_jobs[NAMES.initial_job.name] = NOWHERE
    initdb = decode_builtins({"initdb": {"postInitApplicationSQLRefs": REFERENCES}}, declared)
    transport = LateTransport(world.server)
    async with world.operator(transport):
        await world.create(instances=1, bootstrap=initdb)
        await world.until("told", lambda: world.condition("InitialConfiguration") == "False/Unschedulable", 60)
        (job,) = world.server.read_all(Job)
        (pod,) = (p for p in world.server.read_all(Pod) if p.metadata.name.startswith(job.metadata.name))
        transport.late = True
        runs = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        await world.client.patch(Pod, pod.key, MergePatch({"status": runs}), subresource="status")
        await world.change(imagePullSecrets=[{"name": "registry"}])
        await world.rest(30)
        assert [j.metadata.uid for j in world.server.read_all(Job)] == [job.metadata.uid]
