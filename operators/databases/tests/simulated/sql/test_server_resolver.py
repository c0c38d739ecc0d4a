"""References to clusters: who is let in, and how the operator logs in there."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.fake_server.engine import InMemoryServer, InMemorySqlEngine
from database_support.unit.declared_clusters import declared_cluster
from database_support.unit.users_harness import CLERK, UsersHarness
from steersman.api.apply import core, meta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret, Service
from steersman.cache import InformerOptions
from steersman.client import MergePatch
from steersman.manager import Manager
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import (
    Cluster,
    Database,
    DatabaseUser,
    MySQLCluster,
    MySQLClusterStatus,
    PostgreSQLCluster,
    PostgreSQLClusterStatus,
)
from steersman_databases.cluster.declared import engine_of
from steersman_databases.engines import ServerEndpoint, SqlCredentials
from steersman_databases.engines.connection.networks import Network, parse_networks
from steersman_databases.engines.naming import ClusterNames
from steersman_databases.engines.server import DatabaseServer, TLSMode
from steersman_databases.engines.sql.sql_actions import DropDatabase
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.features.certificates.model import (
    CertificateRequest,
    build_certificate_set,
    certificate_secrets,
)
from steersman_databases.sql import setup as sql_setup
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_testing import run_virtual, virtual_time

MAIN = ObjectKey("default", "main")
NOWHERE: dict[str, Any] = {"engine": None, "serverRef": None}
"""Instead of what users have in other tests."""


class _Recorded(InMemorySqlEngine):
    """Remembers what it was connected to."""

    def __init__(self, world: ClusterWorld, name: str) -> None:
        super().__init__(world.servers, name)
        self._world = world

    def connect(self, server: DatabaseServer) -> Any:
        self._world.connected.append(server)
        return super().connect(server)


class ClusterWorld(UsersHarness):
    """A cluster that is as its own controller leaves it, which does not run here."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.connected: list[DatabaseServer] = []
        self.server_networks: tuple[Network, ...] = ()

    def sql_engine(self, engine: str) -> SqlEngine:
        return _Recorded(self, engine)

    def setup(self, manager: Manager) -> None:
        ours = InformerOptions(label_selector="app.kubernetes.io/managed-by=steersman-databases")
        for kind in (StatefulSet, Service, Secret, PersistentVolumeClaim, Pod):
            manager.cache.configure(kind, ours)
        inspector = ServerInspector(manager.runtime)
        sql_setup.setup_databases(manager, self.sql_engine, inspector, server_networks=self.server_networks)

    async def allow(self, *namespaces: str) -> None:
        """Lets in objects of these namespaces, and of no others."""
        patch = MergePatch({"spec": {"allowedNamespaces": list(namespaces)}})
        await self.client.patch(PostgreSQLCluster, MAIN, patch)

    async def cluster(self, name: str = MAIN.name, *, kind: type[Cluster] = PostgreSQLCluster, **spec: Any) -> None:
        wire = {"metadata": {"name": name, "namespace": MAIN.namespace}, "spec": {"instances": 1, **spec}}
        made = await self.client.create(decode_builtins(wire, kind))
        operator, engine = SqlCredentials("steersman_operator", ""), engine_of(kind)
        endpoint = ServerEndpoint(f"{name}-rw.default.svc", 5432 if engine == "postgresql" else 3306)
        self.servers[endpoint] = InMemoryServer(engine=engine, administrator=operator)
        await self.certificates(name)
        status = PostgreSQLClusterStatus if kind is PostgreSQLCluster else MySQLClusterStatus
        await self.client.apply_status(made, status(primary=f"{name}-0"))

    async def certificates(self, name: str = MAIN.name) -> str:
        """New authorities, trusted beside the former ones, as after their Secret was deleted; gives ``ca.crt``."""
        of = declared_cluster(name, MAIN.namespace)
        found = {key: self.server.read(Secret, key) for key in certificate_secrets(of, CertificateRequest())}
        kept = {k: secret.data for k, secret in found.items() if secret is not None and k != of.names.ca_secret}
        ring = build_certificate_set(of, CertificateRequest(), kept, None, self.runtime.clock.now())
        for key, data in ring.data.items():
            labels = {"app.kubernetes.io/managed-by": "steersman-databases"}
            metadata = meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=labels)
            await self.client.apply(core.Secret(metadata=metadata, data=data))
        return ring.bundle


@virtual_time
async def test_user_resolves_cluster_by_label_and_reference() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.user("seed", labels={"target": "main"}, engine=None, serverRef=None)
        await world.wait_failed("PostgreSQLCluster or MySQLCluster main does not exist", "seed")
        await world.cluster()
        await world.ready("seed", seconds=5)
        await world.user("clerk", clusterRef={"name": "main"}, engine=None, serverRef=None)
        await world.ready()
        assert len(world.connected) == 1, "both share what is open to the server"
        (server,) = world.connected
        assert (server.login.username, server.login.password) == ("steersman_operator", None)
        assert server.login.certificate is not None and server.login.certificate.chain.startswith(b"-----BEGIN")
        assert server.verification.mode is TLSMode.VERIFY_FULL and server.verification.ca_bundle
        assert server.superuser_login is not None and server.superuser_login().username == "steersman_superuser"
        assert world.entries()["ca.crt"].encode() == server.verification.ca_bundle
        assert world.entries()["uri"].endswith("?sslmode=verify-full")


@virtual_time
async def test_server_networks_limit_server_refs_only() -> None:
    world = ClusterWorld()
    world.server_networks = parse_networks(["192.0.2.0/24"])
    async with world.operator():
        await world.cluster()
        await world.user("clerk", clusterRef={"name": "main"}, engine=None, serverRef=None)
        await world.user("guest")
        for name in ("clerk", "guest"):
            await world.ready(name)
    networks = {server.endpoint.host: server.networks for server in world.connected}
    assert networks == {"main-rw.default.svc": (), "db.example.com": world.server_networks}


@pytest.mark.parametrize("kind", [PostgreSQLCluster, MySQLCluster])
def test_users_follow_ca_of_their_cluster(kind: type[Cluster]) -> None:

    async def story() -> None:
        world = ClusterWorld()
        async with world.operator():
            await world.namespace("guest")
            await world.cluster(kind=kind, allowedNamespaces=["guest"])
            reference = {"name": "main", "namespace": "default", "kind": kind.api_resource.kind}
            await world.user("seed", labels={"target": "main"}, **NOWHERE)
            await world.user("clerk", "guest", **{**NOWHERE, "clusterRef": reference})
            await world.database(engine=engine_of(kind), serverRef=None, clusterRef=reference)
            await world.ready("seed")
            await world.ready("clerk", "guest")
            await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
            await world.runtime.clock.sleep(60)
            trusted = await world.certificates()
            for name, namespace in (("seed-user", "default"), ("clerk-user", "guest"), ("shop-app", "default")):

                def told(name: str = name, namespace: str = namespace) -> bool:
                    return world.entries(name, namespace)["ca.crt"] == trusted

                await world.until(f"{name} has the new authorities", told, 5)
            assert world.connected[-1].verification.ca_bundle == trusted.encode()
            await world.client.delete(Secret, ClusterNames(MAIN).operator_certificate)
            await world.runtime.clock.sleep(5)
            assert world.database_reason("shop") == "DatabaseReady", "it is made anew at once"
            assert not any(note.startswith("ProvisionFailed") for note in world.event_messages())

    run_virtual(story())


@virtual_time
async def test_label_resolves_either_cluster_kind() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.user("seed", labels={"target": "main"}, engine=None, serverRef=None)
        await world.wait_failed("PostgreSQLCluster or MySQLCluster main does not exist", "seed")
        await world.cluster(kind=MySQLCluster)
        await world.ready("seed", seconds=5)
        assert "seed" in world.servers[ServerEndpoint("main-rw.default.svc", 3306)].users
        # Of two from the same second either may be the first.
        await world.runtime.clock.sleep(1)
        await world.user("seed-too", user="seed", clusterRef={"name": "main", "kind": "MySQLCluster"}, **NOWHERE)
        await world.wait_failed("the older DatabaseUser seed already declares user seed on this server", "seed-too")


@virtual_time
async def test_label_matching_two_clusters_is_ambiguous() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.cluster()
        await world.cluster(kind=MySQLCluster)
        await world.user("seed", labels={"target": "main"}, **NOWHERE)
        await world.wait_failed("there are a PostgreSQLCluster and a MySQLCluster named main", "seed")
        assert not any("seed" in server.users for server in world.servers.values())
        await world.client.delete(PostgreSQLCluster, MAIN)
        await world.ready("seed", seconds=60)
        assert "seed" in world.servers[ServerEndpoint("main-rw.default.svc", 3306)].users


@virtual_time
async def test_label_with_engine_resolves_one_cluster() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.cluster()
        await world.user("early", labels={"target": "main"}, engine="mysql", serverRef=None)
        await world.wait_failed("MySQLCluster main does not exist", "early")
        await world.cluster(kind=MySQLCluster)
        await world.user("seed", user="early", labels={"target": "main"}, engine="postgresql", serverRef=None)
        await world.ready("seed", seconds=60)
        await world.ready("early", seconds=60)
        for port in (5432, 3306):
            assert "early" in world.servers[ServerEndpoint("main-rw.default.svc", port)].users


@virtual_time
async def test_user_with_changed_label_keeps_previous_server() -> None:
    world = ClusterWorld()
    seed, former = ObjectKey("default", "seed"), ServerEndpoint("main-rw.default.svc", 5432)
    async with world.operator():
        await world.cluster()
        await world.cluster("other")
        await world.user("seed", labels={"target": "main"}, engine=None, serverRef=None)
        await world.ready("seed")
        await world.client.patch(DatabaseUser, seed, MergePatch({"metadata": {"labels": {"target": "other"}}}))
        await world.wait_failed(
            "exist on main-rw.default.svc:5432, and the label target now names another cluster", "seed"
        )
        await world.client.patch(DatabaseUser, seed, MergePatch({"metadata": {"labels": {"target": "missing"}}}))
        assert "seed" not in world.servers[ServerEndpoint("other-rw.default.svc", 5432)].users
        await world.client.delete(DatabaseUser, seed)
        await world.wait_failed("Restore the label", "seed")
        await world.client.patch(DatabaseUser, seed, MergePatch({"metadata": {"labels": {"target": None}}}))
        await world.wait_failed("no server is declared", "seed")
        await world.client.patch(DatabaseUser, seed, MergePatch({"metadata": {"labels": {"target": "main"}}}))
        await world.until("it is gone", lambda: world.read("seed") is None, 60)
        assert "seed" not in world.servers[former].users


@virtual_time
async def test_allowed_namespaces_permit_reference() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        reference: dict[str, Any] = {
            "clusterRef": {"name": "main", "namespace": "default"},
            "engine": None,
            "serverRef": None,
        }
        await world.user("clerk", "guest", **reference)
        missing = {**reference, "clusterRef": {"name": "other", "namespace": "default"}}
        await world.user("nobody", "guest", **missing)
        await world.wait_failed("PostgreSQLCluster default/main does not exist, or does not permit", "clerk", "guest")
        await world.wait_failed(
            "PostgreSQLCluster default/other does not exist, or does not permit", "nobody", "guest"
        )
        await world.allow("guest")
        await world.ready("clerk", "guest", seconds=5)
        await world.user("greedy", "guest", **reference, createDatabase=True)
        await world.wait_failed(
            "createDatabase is only for objects from the cluster's own namespace", "greedy", "guest"
        )


@virtual_time
async def test_cross_namespace_user_gets_nothing_by_naming_it() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        await world.allow("guest")
        here: dict[str, Any] = {"clusterRef": {"name": "main"}, "engine": None, "serverRef": None}
        there: dict[str, Any] = {**here, "clusterRef": {"name": "main", "namespace": "default"}}
        await world.user("victim", **here)
        await world.ready("victim")
        world.servers[ServerEndpoint("main-rw.default.svc", 5432)].make_database("orders")
        # Of two from the same second either may be the first.
        await world.runtime.clock.sleep(1)
        await world.user("victim", "guest", **there)
        await world.wait_failed("an object of another namespace already declares", "victim", "guest")
        await world.user("member", "guest", **there, roles=[{"name": "victim"}])
        await world.wait_failed("role victim is not declared in this namespace", "member", "guest")
        await world.user("reader", "guest", **there, grants=[{"database": "orders", "privileges": ["CONNECT"]}])
        await world.wait_failed("database orders is not declared in this namespace", "reader", "guest")
        await world.user("taker", "guest", **there, adopt=True)
        await world.wait_failed("adopt is only for objects from the cluster's own namespace", "taker", "guest")
        await world.database("evil", "guest", **{**there, "engine": "postgresql"}, owner="victim")
        await world.until("it is refused", lambda: world.database_reason("evil", "guest") == "NotPermitted")
        await world.user("heirless", "guest", **there)
        await world.ready("heirless", "guest")
        heir = MergePatch({"spec": {"reassignTo": "victim"}})
        await world.client.patch(DatabaseUser, ObjectKey("guest", "heirless"), heir)
        await world.client.delete(DatabaseUser, ObjectKey("guest", "heirless"))
        await world.wait_failed("role victim is not declared in this namespace", "heirless", "guest")


@virtual_time
async def test_rejected_object_holds_no_name() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.namespace("invited")
        await world.cluster(allowedNamespaces=["invited"])
        there: dict[str, Any] = {**NOWHERE, "clusterRef": {"name": "main", "namespace": "default"}}
        await world.user("clerk", "guest", **there)
        await world.wait_failed("does not permit namespace guest", "clerk", "guest")
        await world.user("early", "invited", **there)
        await world.ready("early", "invited")
        # Of two from the same second either may be the first.
        await world.runtime.clock.sleep(1)
        await world.user("clerk", **there)
        await world.ready("clerk")
        await world.user("early", **there)
        await world.wait_failed("the older an object of another namespace already declares", "early")


@virtual_time
async def test_marked_object_keeps_name_against_older_one() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        here: dict[str, Any] = {**NOWHERE, "clusterRef": {"name": "main"}}
        there: dict[str, Any] = {**here, "clusterRef": {"name": "main", "namespace": "default"}}
        await world.user("billing", "guest", **there)
        await world.database("shop", "guest", **{**there, "engine": "postgresql"})
        await world.wait_failed("does not permit", "billing", "guest")
        await world.runtime.clock.sleep(2)
        await world.user("billing", **here)
        await world.database("shop", **{**here, "engine": "postgresql"})
        await world.ready("billing")
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        await world.allow("guest")
        await world.wait_failed("user billing on the server belongs to another object", "billing", "guest")
        await world.until("refused", lambda: world.database_reason("shop", "guest") == "OwnedByAnother")
        # Whatever makes it look again: it is still the one that is watched and healed.
        limited = MergePatch({"spec": {"connectionLimit": 7}})
        await world.client.patch(DatabaseUser, ObjectKey("default", "billing"), limited)
        await world.client.patch(Database, ObjectKey("default", "shop"), limited)
        sql = world.servers[ServerEndpoint("main-rw.default.svc", 5432)]
        await world.until("altered", lambda: sql.users["billing"].connection_limit == 7, 30)
        await world.runtime.clock.sleep(60)
        await world.ready("billing")
        assert world.database_reason("shop") == "DatabaseReady"


@virtual_time
async def test_marked_owner_creates_the_database() -> None:
    """An older object that is let in between the two would wait for the owner, and the younger for the database."""
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        here: dict[str, Any] = {**NOWHERE, "engine": "postgresql", "clusterRef": {"name": "main"}}
        there: dict[str, Any] = {**here, "clusterRef": {"name": "main", "namespace": "default"}}
        await world.database("shop", "guest", **there)
        await world.runtime.clock.sleep(2)
        await world.database("shop", **here)
        await world.until("made", lambda: world.database_reason("shop") == "DatabaseReady")
        sql = world.servers[ServerEndpoint("main-rw.default.svc", 5432)]
        sql.apply(DropDatabase("shop"))
        await world.allow("guest")
        await world.until("refused", lambda: world.database_reason("shop", "guest") == "OwnedByAnother")
        await world.runtime.clock.sleep(60)
        assert world.database_reason("shop") == "DatabaseReady" and "shop" in sql.databases


@virtual_time
async def test_server_namespace_and_others_do_not_block_each_other() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster(kind=MySQLCluster)
        await world.client.patch(MySQLCluster, MAIN, MergePatch({"spec": {"allowedNamespaces": ["guest"]}}))
        reference = {"name": "main", "namespace": "default", "kind": "MySQLCluster"}
        on: dict[str, Any] = {"engine": "mysql", "serverRef": None, "clusterRef": reference}
        for name, namespace in (("orders", "default"), ("till", "guest")):
            await world.database(name, namespace, **on, deletionPolicy="Delete")
            await world.until("made", lambda of=(name, namespace): world.database_reason(*of) == "DatabaseReady")
        await world.database("evil", "guest", **on, owner="orders")
        await world.until("refused", lambda: world.database_reason("evil", "guest") == "NotPermitted")
        await world.database("tills", **on, owner="till")
        await world.until("made", lambda: world.database_reason("tills") == "DatabaseReady")
        for key in (ObjectKey("default", "orders"), ObjectKey("guest", "till")):
            await world.client.delete(Database, key)
            await world.until("gone", lambda key=key: world.server.read(Database, key) is None)
        sql = world.servers[ServerEndpoint("main-rw.default.svc", 3306)]
        assert "orders" not in sql.users and "till" in sql.users
        told = "user till was not dropped: a Database of another namespace declares it as its owner"
        assert f"DataRetained: {told}; Secret till-app gives access to it and is retained" in world.event_messages()


@virtual_time
async def test_marked_database_does_not_grant_older_user() -> None:
    """Its owner was another, whom nobody else claimed."""
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster(allowedNamespaces=["guest"])
        here: dict[str, Any] = {**NOWHERE, "clusterRef": {"name": "main"}}
        there: dict[str, Any] = {**here, "clusterRef": {"name": "main", "namespace": "default"}}
        await world.user("victim", **here, password={"name": "later", "key": "password"})
        await world.wait_failed("Secret later with the password does not exist", "victim")
        await world.runtime.clock.sleep(2)
        await world.user("kin", "guest", **there)
        await world.ready("kin", "guest")
        await world.database("victim", "guest", **{**there, "engine": "postgresql"}, owner="kin")
        await world.until("made", lambda: world.database_reason("victim", "guest") == "DatabaseReady")
        await world.client.patch(Database, ObjectKey("guest", "victim"), MergePatch({"spec": {"owner": None}}))
        await world.until("refused", lambda: world.database_reason("victim", "guest") == "OwnedByAnother")
        assert "victim" not in world.servers[ServerEndpoint("main-rw.default.svc", 5432)].users
        await world.secret("later", {"password": "s3cret"})
        await world.ready("victim")


@virtual_time
async def test_user_is_deleted_with_its_cluster() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.cluster()
        await world.user("clerk", clusterRef={"name": "main"}, engine=None, serverRef=None)
        await world.ready()
        world.servers.clear()
        await world.client.delete(PostgreSQLCluster, MAIN)
        await world.client.delete(DatabaseUser, ObjectKey("default", "clerk"))
        await world.until("gone", lambda: world.read() is None, 5)
        assert any(
            "user clerk was not dropped on main-rw.default.svc:5432: " in note for note in world.event_messages()
        )


@virtual_time
async def test_revoked_permission_keeps_created_user() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        await world.allow("guest")
        there: dict[str, Any] = {"clusterRef": {"name": "main", "namespace": "default"}, "serverRef": None}
        await world.user("clerk", "guest", **there, engine=None)
        await world.ready("clerk", "guest")
        await world.user("waiter", "guest", **there, engine=None, roles=[{"name": "later"}])
        await world.wait_failed("role later does not exist yet", "waiter", "guest")
        await world.database("till", "guest", **there, engine="postgresql", deletionPolicy="Delete")
        await world.until("made", lambda: world.database_reason("till", "guest") == "DatabaseReady")
        await world.allow()
        await world.user("never", "guest", **there, engine=None)
        await world.wait_failed("does not exist, or does not permit", "never", "guest")
        for name in ("clerk", "waiter", "never"):
            await world.client.delete(DatabaseUser, ObjectKey("guest", name))
        await world.client.delete(Database, ObjectKey("guest", "till"))
        await world.until("nothing was made for it", lambda: world.read("never", "guest") is None, 10)
        for name in ("clerk", "waiter"):
            await world.wait_failed("force-delete=true", name, "guest")
        await world.until("it waits", lambda: world.database_reason("till", "guest") == "Deleting")
        await world.allow("guest")
        await world.until("let in again", lambda: world.read("clerk", "guest") is None)
        on_server = world.servers[ServerEndpoint("main-rw.default.svc", 5432)]
        assert not {"clerk", "waiter", "till"} & on_server.users.keys()
        assert "till" not in on_server.databases


@virtual_time
async def test_cross_namespace_user_is_deleted_with_its_cluster() -> None:
    world = ClusterWorld()
    async with world.operator():
        await world.namespace("guest")
        await world.cluster()
        await world.allow("guest")
        there = {"clusterRef": {"name": "main", "namespace": "default"}, "serverRef": None, "engine": None}
        await world.user("clerk", "guest", **there)
        await world.ready("clerk", "guest")
        await world.client.delete(PostgreSQLCluster, MAIN)
        await world.client.delete(DatabaseUser, ObjectKey("guest", "clerk"))
        await world.until("gone", lambda: world.read("clerk", "guest") is None, 10)


@virtual_time
async def test_user_without_server_can_be_deleted() -> None:
    world = UsersHarness()
    async with world.operator():
        await world.user(**NOWHERE)
        await world.wait_failed("no server is declared")
        await world.client.delete(DatabaseUser, CLERK)
        await world.until("gone", lambda: world.read() is None, 5)
