"""The cluster's own accounts and the administrator's password, on whoever is the primary, in virtual time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.cluster.state import LINEAGE
from steersman_databases.engines.errors import ServerUnreachable, SqlFailed
from steersman_databases.engines.naming import OPERATOR_ROLE
from steersman_databases.engines.server import DatabaseServer, SqlCredentials
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.inspection import Inspection, UserState
from steersman_databases.engines.sql.sql_plan import SqlChange
from steersman_databases.sql.inspector.server_inspector import ServerInspector
from steersman_testing import virtual_time

OURS = {"app.kubernetes.io/managed-by": "steersman-databases"}


class FurnishedWorld(ClusterHarness):
    """Its primaries remember the administrator's password."""

    password = ""
    looks = 0
    answers = True
    holder: DataOwner | None = None

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        return replace(super().engine_parts(context), ensure_system_accounts=self.furnish)

    async def furnish(
        self, server: DatabaseServer, administrator: SqlCredentials, holder: DataOwner
    ) -> tuple[SqlChange, ...]:
        self.holder = holder
        assert (server.login.username, administrator.username) == ("steersman_superuser", "postgres")
        leader = self.server.read(ConfigMap, NAMES.dcs_leader)
        assert leader is not None
        pod = self.pods()[leader.metadata.annotations["leader"].removesuffix("-0")]
        assert server.endpoint.host == pod.status.pod_ip
        self.looks += 1
        if not self.answers:
            raise ServerUnreachable(server.endpoint, "no response")
        changes = () if self.password == administrator.password else (SqlChange("PasswordReset", "set it"),)
        self.keep(administrator.password)
        operator = self.hosts.sql.users[OPERATOR_ROLE]
        if self.hosts.sql.accounts_altered or not operator.login or operator.connection_limit >= 0:
            changes += (SqlChange("AccountsUpdated", "made them"),)
        self.hosts.sql.accounts_altered = False
        self.hosts.sql.spoil_user(OPERATOR_ROLE, login=True, connection_limit=-1)
        return changes

    async def furnished(self, instances: int) -> None:
        """Declares a cluster, and waits until it is ready and has its administrator's password."""
        await self.create(instances=instances)
        await self.ready(instances)
        await self.until("set", self.set, 15)

    def keep(self, password: str) -> None:
        """What the server takes from now on."""
        self.password = password
        self.hosts.sql.users["postgres"] = UserState("postgres", superuser=True, verifier=f"of {password}")

    def told(self) -> str:
        """What the Database shop says of itself."""
        shop = self.server.read(Database, ObjectKey("default", "shop"))
        conditions = shop.status.conditions if shop is not None else ()
        return next((c.reason for c in conditions if c.type == "Ready"), "")

    def set(self) -> bool:
        """Whether the Secret opens the server."""
        return self.password == self.secret("orders-admin").get("password")


@virtual_time
async def test_administrator_password_follows_secret() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=2)
        new = MergePatch({"stringData": {"password": "another"}})
        await world.client.patch(Secret, NAMES.administrator_secret, new)
        await world.until("a person's", lambda: world.password == "another", 15)
        assert "PasswordReset" in world.events()
        await world.client.delete(Secret, NAMES.administrator_secret)
        await world.until("made anew", lambda: world.set() and world.password != "another", 30)
        await world.wait()
        looks = world.looks
        await world.wait(350)
        assert looks < world.looks <= looks + 2, "a superuser's login is rare"


@virtual_time
async def test_administrator_password_set_by_hand_is_reset_in_30s() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        await world.wait(40)
        for password in ("chosen by hand", "again"):
            looks = world.looks
            world.keep(password)
            await world.until("set back", world.set, 30)
            assert world.looks == looks + 1


@virtual_time
async def test_changed_accounts_are_restored_in_30s() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        for _ in range(2):
            await world.wait(40)
            looks, world.hosts.sql.accounts_altered = world.looks, True
            await world.until("made anew", lambda: not world.hosts.sql.accounts_altered, 30)
            assert world.looks == looks + 1
        assert "AccountsUpdated" in world.events()


@virtual_time
async def test_operator_without_rights_uses_superuser_in_30s(monkeypatch: pytest.MonkeyPatch) -> None:
    world, inspect = FurnishedWorld(), ServerInspector.inspect
    is_closed = False

    async def refused_without_rights(self: ServerInspector, *arguments: Any) -> Inspection:
        if is_closed:
            raise SqlFailed("connecting to database postgres", "42501", "steersman_operator lacks CONNECT on it")
        return await inspect(self, *arguments)

    monkeypatch.setattr(ServerInspector, "inspect", refused_without_rights)
    async with world.operator():
        await world.furnished(instances=1)
        await world.wait(40)
        looks, is_closed = world.looks, True
        await world.until("restored", lambda: world.looks > looks, 30)


@virtual_time
async def test_operator_login_rejected_uses_superuser_in_30s() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        shop = {"metadata": {"name": "shop", "namespace": "default"}, "spec": {"clusterRef": {"name": "orders"}}}
        await world.client.create(decode_builtins(shop, Database))
        await world.until("ready", lambda: world.told() == "DatabaseReady")
        await world.wait(40)
        world.hosts.sql.spoil_user(OPERATOR_ROLE, login=False)
        await world.until("refused", lambda: world.told() == "AdministratorRejected", 30)
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR_ROLE].login, 30)
        await world.until("ready", lambda: world.told() == "DatabaseReady", 30)
        world.answers = False
        looks = world.looks
        world.hosts.sql.spoil_user(OPERATOR_ROLE, login=False)
        await world.wait(130)
        assert looks < world.looks <= looks + 3, "what fails is tried again after a minute"
        world.answers = True
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR_ROLE].login, 70)


@virtual_time
async def test_connection_limit_of_operator_is_removed_in_30s() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        await world.wait(40)
        world.hosts.sql.spoil_user(OPERATOR_ROLE, connection_limit=0)
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR_ROLE].connection_limit == -1, 30)
        assert "AccountsUpdated" in world.events()


@virtual_time
async def test_async_commit_role_is_reported_unchanged() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.create_ready(3, instances=3)
        await world.until("synchronous", lambda: world.condition("Synchronous") == "True/InSync", 30)
        world.hosts.sql.async_commit_roles = {"role reports", "database shop"}
        await world.until("told", lambda: world.condition("Synchronous") == "True/NotForAllRoles", 30)
        assert "do not wait for a replica: database shop, role reports. " in world.message("Synchronous")
        assert world.events().count("NotForAllRoles") == 1
        await world.wait(400)
        assert world.events().count("NotForAllRoles") == 1, "it stays so, however often the server is looked at"
        assert world.condition("Ready") == "True/AllInstancesReady"
        world.hosts.sql.async_commit_roles = set()
        await world.until("as declared", lambda: world.condition("Synchronous") == "True/InSync", 30)


@virtual_time
async def test_new_primary_is_inspected_at_once_and_retried() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=2)
        world.answers, looks = False, world.looks
        await world.client.delete(Pod, NAMES.pod(0))
        await world.until("failed over", lambda: world.status.primary == "orders-1")
        await world.until("asked", lambda: world.looks > looks + 1)
        assert "AccountsNotUpdated" in world.events()
        await world.ready(2)
        world.answers, looks = True, world.looks
        await world.until("asked again", lambda: world.looks == looks + 1, 90)
        await world.wait(120)
        assert world.looks == looks + 1


@virtual_time
async def test_declared_users_are_not_orphaned() -> None:
    world = FurnishedWorld()
    for name, of in {
        "clerk": {"clusterRef": {"name": "orders"}},
        "jane": {"clusterRef": {"name": "other"}},
        "joe": {"engine": "postgresql", "serverRef": {"host": "db.example.com", "administrator": {"name": "admin"}}},
    }.items():
        wire = {"metadata": {"name": name, "namespace": "default"}, "spec": {"user": f"{name}s", **of}}
        await world.client.create(decode_builtins(wire, DatabaseUser))
    labelled = {"metadata": {"name": "jim", "namespace": "default", "labels": {"target": "orders"}}}
    await world.client.create(decode_builtins({**labelled, "spec": {"user": "jim"}}, DatabaseUser))
    shop = {"metadata": {"name": "shop", "namespace": "default"}, "spec": {"clusterRef": {"name": "orders"}}}
    await world.client.create(decode_builtins(shop, Database))
    till = core.Secret(metadata=meta.ObjectMeta(name="till-app", namespace="default", labels=OURS))
    await world.client.apply(till)
    async with world.operator():
        await world.create(instances=1)
        await world.until("furnished", lambda: world.holder, 60)
        former = world.holder
        assert former is not None
        assert former.text.endswith(f" PostgreSQLCluster default/orders {world.cluster.metadata.uid}")
        names = {claim.rpartition(" ")[2]: names for claim, names in former.users.items()}
        assert names == {
            **{f"default/{n}": {u, f"{u}~"} for n, u in (("clerk", "clerks"), ("joe", "joes"), ("jim", "jim"))},
            "default/shop": {"shop"},
        }
        assert {claim.rpartition(" ")[2] for claim in former.retained_users} == {"default/till"}
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1)
        await world.until("furnished anew", lambda: world.holder is not former, 120)
        assert world.holder is not None and world.holder.text != former.text
        assert world.holder.cluster == former.cluster


@virtual_time
async def test_data_of_another_lineage_are_taken_over_once() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.create(instances=1)
        await world.until("furnished", lambda: world.holder, 60)
        former = world.holder
        assert former is not None
        # As after a restore in place.
        body = {"metadata": {"annotations": {LINEAGE: "1"}}}
        await world.client.patch(PersistentVolumeClaim, NAMES.data_pvc(0), MergePatch(body))
        await world.until("taken over", lambda: world.holder is not former, 900)
        assert world.holder is not None and world.holder.text == f"{former.text}.1"
        await world.ready(1)
