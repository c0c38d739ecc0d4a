"""The cluster's own accounts and the administrator's password, on whoever is the primary, in virtual time."""

from __future__ import annotations

from dataclasses import replace

from database_support.cluster_world import KEY, NAMES, ClusterWorld
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.client import MergePatch
from steersman.controller import ReconcilerContext
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Database, DatabaseUser, PostgreSQLCluster
from steersman_databases.controllers import ClusterParts
from steersman_databases.engines.cluster_names import OPERATOR
from steersman_databases.engines.errors import ServerUnreachable
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.plan import Change
from steersman_databases.engines.server import Credentials, Server
from steersman_databases.engines.survey import UserState
from steersman_testing import virtual_time

OURS = {"app.kubernetes.io/managed-by": "steersman-databases"}


class FurnishedWorld(ClusterWorld):
    """Its primaries remember the administrator's password."""

    password = ""
    looks = 0
    answers = True
    holder: Holder | None = None

    def parts(self, context: ReconcilerContext) -> ClusterParts:
        return replace(super().parts(context), furnish=self.furnish)

    async def furnish(self, server: Server, administrator: Credentials, holder: Holder) -> tuple[Change, ...]:
        self.holder = holder
        assert (server.login.username, administrator.username) == ("steersman_superuser", "postgres")
        leader = self.server.read(ConfigMap, NAMES.store_leader)
        assert leader is not None
        pod = self.pods()[leader.metadata.annotations["leader"].removesuffix("-0")]
        assert server.endpoint.host == pod.status.pod_ip
        self.looks += 1
        if not self.answers:
            raise ServerUnreachable(server.endpoint, "no answer")
        changes = () if self.password == administrator.password else (Change("PasswordReset", "set it"),)
        self.keep(administrator.password)
        operator = self.hosts.sql.users[OPERATOR]
        if self.hosts.sql.accounts_altered or not operator.login or operator.connection_limit >= 0:
            changes += (Change("AccountsUpdated", "made them"),)
        self.hosts.sql.accounts_altered = False
        self.hosts.sql.spoil_user(OPERATOR, login=True, connection_limit=-1)
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
async def test_the_administrators_password_is_what_the_secret_says() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=2)
        new = MergePatch({"stringData": {"password": "another"}})
        await world.client.patch(Secret, NAMES.administrator_secret, new)
        await world.until("a person's", lambda: world.password == "another", 15)
        assert "PasswordReset" in world.events()
        await world.client.delete(Secret, NAMES.administrator_secret)
        await world.until("made anew", lambda: world.set() and world.password != "another", 30)
        await world.rest()
        looks = world.looks
        await world.rest(350)
        assert looks < world.looks <= looks + 2, "a superuser's login is rare"


@virtual_time
async def test_a_password_that_is_set_on_the_server_by_hand_is_set_back_within_thirty_seconds() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        await world.rest(40)
        for password in ("chosen by hand", "again"):
            looks = world.looks
            world.keep(password)
            await world.until("set back", world.set, 30)
            assert world.looks == looks + 1


@virtual_time
async def test_accounts_that_somebody_changes_are_made_anew_within_thirty_seconds() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        for _ in range(2):
            await world.rest(40)
            looks, world.hosts.sql.accounts_altered = world.looks, True
            await world.until("made anew", lambda: not world.hosts.sql.accounts_altered, 30)
            assert world.looks == looks + 1
        assert "AccountsUpdated" in world.events()


@virtual_time
async def test_a_server_that_refuses_the_operator_is_asked_with_a_superusers_login_within_thirty_seconds() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        shop = {"metadata": {"name": "shop", "namespace": "default"}, "spec": {"clusterRef": {"name": "orders"}}}
        await world.client.create(decode_builtins(shop, Database))
        await world.until("ready", lambda: world.told() == "DatabaseReady")
        await world.rest(40)
        world.hosts.sql.spoil_user(OPERATOR, login=False)
        await world.until("refused", lambda: world.told() == "AdministratorRejected", 30)
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR].login, 30)
        await world.until("ready", lambda: world.told() == "DatabaseReady", 30)
        world.answers = False
        looks = world.looks
        world.hosts.sql.spoil_user(OPERATOR, login=False)
        await world.rest(130)
        assert looks < world.looks <= looks + 3, "what fails is tried again after a minute"
        world.answers = True
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR].login, 70)


@virtual_time
async def test_a_limit_that_keeps_the_operator_out_is_taken_away_within_thirty_seconds() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.furnished(instances=1)
        await world.rest(40)
        world.hosts.sql.spoil_user(OPERATOR, connection_limit=0)
        await world.until("let in", lambda: world.hosts.sql.users[OPERATOR].connection_limit == -1, 30)
        assert "AccountsUpdated" in world.events()


@virtual_time
async def test_whose_commits_wait_for_no_replica_is_told_and_not_changed() -> None:
    world = FurnishedWorld()
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        await world.until("synchronous", lambda: world.condition("Synchronous") == "True/InSync", 30)
        world.hosts.sql.hasty = {"role reports", "database shop"}
        await world.until("told", lambda: world.condition("Synchronous") == "True/NotForAll", 30)
        assert "wait for no replica: database shop, role reports: " in world.message("Synchronous")
        assert world.events().count("NotForAll") == 1
        await world.rest(400)
        assert world.events().count("NotForAll") == 1, "it stays so, however often the server is looked at"
        assert world.condition("Ready") == "True/ClusterReady"
        world.hosts.sql.hasty = set()
        await world.until("as declared", lambda: world.condition("Synchronous") == "True/InSync", 30)


@virtual_time
async def test_a_new_primary_is_looked_at_at_once_and_one_that_does_not_answer_again() -> None:
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
        await world.rest(120)
        assert world.looks == looks + 1


@virtual_time
async def test_who_is_declared_on_the_cluster_is_known_to_who_looks_for_users_without_an_object() -> None:
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
        assert {claim.rpartition(" ")[2] for claim in former.kept} == {"default/till"}
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.create(instances=1)
        await world.until("furnished anew", lambda: world.holder is not former, 120)
        assert world.holder is not None and world.holder.text != former.text
        assert world.holder.cluster == former.cluster
