"""The controllers of databases and users in a simulation: what people do, and faults at every request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from database_support.fake_server.engine import InMemoryServer, InMemorySqlEngine
from steersman.api.apply import core, meta
from steersman.api.core_v1 import Secret
from steersman.client import MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.sql.inspection import UserState
from steersman_databases.setup import setup
from steersman_testing import World, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

CLERK = ObjectKey("default", "clerk")
SHOP = ObjectKey("default", "shop")
HOST = "db.example.com"


@dataclass
class SimulatedServer:
    """What is outside of Kubernetes: one server."""

    engine: str
    sql: InMemoryServer = field(init=False)

    def __post_init__(self) -> None:
        self.sql = InMemoryServer(self.engine, now=VirtualClock().now)

    @property
    def server_ref(self) -> dict[str, Any]:
        """The part of a spec that puts something on it."""
        return {"engine": self.engine, "serverRef": {"host": HOST, "administrator": {"name": "admin"}}}

    def sql_engine(self, engine: str) -> InMemorySqlEngine:
        """In place of the engines."""
        return InMemorySqlEngine({ServerEndpoint(HOST, self.sql.like.port): self.sql}, engine)


Users = World[SimulatedServer]


def sweep(scenario: Callable[[Users], Awaitable[None]], engine: str, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault, on a server of an engine."""
    return simulate(
        lambda manager, servers: _setup(manager, servers),
        scenario,
        outside=partial(SimulatedServer, engine),
        observe=_holds,
        kinds=[Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore],
        invariants=[secret_logs_in],
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def _setup(manager: Manager, servers: SimulatedServer) -> None:
    setup(manager, sql_engine_for=servers.sql_engine)


def _holds(servers: SimulatedServer) -> dict[str, Any]:
    """What is compared of the server: who is there and may log in, by how many passwords and not by which."""

    def passwords(user: UserState) -> int:
        return (user.verifier is not None) + (user.second_verifier is not None)

    return {
        "users": {name: (user.login, passwords(user)) for name, user in servers.sql.users.items()},
        "databases": {name: database.owner for name, database in servers.sql.databases.items()},
    }


def secret_logs_in(world: Users) -> None:
    """Once a user is provisioned, what its Secret says opens the server, whatever was cut off where."""
    user = world.read(DatabaseUser, CLERK)
    secret = world.read(Secret, ObjectKey("default", "clerk-user"))
    if user is None or secret is None or user.metadata.deletion_timestamp is not None:
        return
    ready = [c for c in user.status.conditions if c.type == "Ready" and c.status == "True"]
    held = {key: value.decode() for key, value in secret.data.items()}
    if ready and held.get("rotated-at"):
        assert world.outside.sql.accepts_password(held["username"], held["password"]), (
            "the Secret does not open the server"
        )


def ready(world: Users) -> bool:
    """Whether the user is provisioned."""
    user = world.read(DatabaseUser, CLERK)
    conditions = user.status.conditions if user is not None else ()
    return any(c.type == "Ready" and c.status == "True" for c in conditions)


async def prepare(world: Users) -> None:
    """Namespaces and the administrator's Secret."""
    for name in ("kube-system", "default"):
        await world.client.apply(core.Namespace(metadata=meta.ObjectMeta(name=name)))
    data = {"username": b"admin", "password": b"s3cret"}
    await world.client.apply(core.Secret(metadata=meta.ObjectMeta(name="admin", namespace="default"), data=data))


async def make_user(world: Users, **spec: Any) -> None:
    """Creates the user and waits until it is provisioned."""
    wire = {
        "metadata": {"name": "clerk", "namespace": "default"},
        "spec": {"user": "clerk", **world.outside.server_ref, **spec},
    }
    await world.client.create(decode_builtins(wire, DatabaseUser))
    await world.wait_until("provisioned", lambda: ready(world))


async def delete_user(world: Users) -> None:
    """Deletes it and waits until it is gone, here and there."""
    await world.client.delete(DatabaseUser, CLERK)
    await world.wait_until("gone", lambda: world.read(DatabaseUser, CLERK) is None)
    assert "clerk" not in world.outside.sql.users


async def life(world: Users) -> None:
    """Created, its password set by hand, dropped behind our back, deleted."""
    await prepare(world)
    await make_user(world)
    await world.client.patch(Secret, ObjectKey("default", "clerk-user"), MergePatch({"data": {"password": "bmV3"}}))
    await world.wait_until("in force", lambda: world.outside.sql.accepts_password("clerk", "new"))
    world.outside.sql.drop_user("clerk")
    await world.wait_until("healed", lambda: world.outside.sql.accepts_password("clerk", "new"))
    await delete_user(world)


async def rotated(world: Users) -> None:
    """Rotated once, until the former credential has ended."""
    await prepare(world)
    await make_user(world, rotation={"every": "5m", "overlap": "1m"})

    def held() -> dict[str, str]:
        secret = world.read(Secret, ObjectKey("default", "clerk-user"))
        return {k: v.decode() for k, v in secret.data.items()} if secret is not None else {}

    former = held()
    await world.wait_until("rotated", lambda: held().get("password") not in (None, former["password"]))
    # Who was away for longer than a password lasts begins with a rotation.
    both = {"clerk", world.outside.sql.like.rotation_username("clerk")}
    assert {former["username"], held()["username"]} == both
    await world.wait_until("the former ended", lambda: "previous-username" not in held())
    assert not world.outside.sql.accepts_password(former["username"], former["password"])
    await delete_user(world)


async def returned_to_own_name(world: Users) -> None:
    """Rotated until the second name is in use, then no more: what one role alone can have comes with its own."""
    await prepare(world)
    await make_user(world, rotation={"every": "5m", "overlap": "1m"})

    def held() -> dict[str, str]:
        secret = world.read(Secret, ObjectKey("default", "clerk-user"))
        return {k: v.decode() for k, v in secret.data.items()} if secret is not None else {}

    second = world.outside.sql.like.rotation_username("clerk")
    await world.wait_until("by the second", lambda: held().get("username") == second)
    spec = {"rotation": None, "replication": True}
    await world.client.patch(DatabaseUser, CLERK, MergePatch({"spec": spec}))

    def done() -> bool:
        user = world.read(DatabaseUser, CLERK)
        status = user.status if user is not None else None
        seen = status is not None and user is not None and status.observed_generation == user.metadata.generation
        return seen and ready(world) and "previous-username" not in held()

    await world.wait_until("by its own", lambda: held().get("username") == "clerk")
    await world.wait_until("done", done, 4000)
    assert world.outside.sql.other_users == {"clerk"}
    assert held()["username"] == "clerk" and world.outside.sql.accepts_password("clerk", held()["password"])
    await delete_user(world)


async def database_on_server(world: Users) -> None:
    """A database on a server, deleted with all that is in it."""
    await prepare(world)
    spec = {**world.outside.server_ref, "deletionPolicy": "Delete"}
    wire = {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec}
    await world.client.create(decode_builtins(wire, Database))
    await world.wait_until("made", lambda: "shop" in world.outside.sql.databases)
    await world.settle()
    await world.client.delete(Database, SHOP)
    await world.wait_until("gone", lambda: world.read(Database, SHOP) is None)
    assert not world.outside.sql.databases and not world.outside.sql.other_users


SCENARIOS = {scenario.__name__: scenario for scenario in (life, rotated, returned_to_own_name, database_on_server)}
