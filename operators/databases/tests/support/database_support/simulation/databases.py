"""The database operator in a simulation: what users do with a ``Database``, and what a cluster makes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from database_support.simulation.mysql_clusters import without_nondeterminism
from database_support.unit.kubelet import DatabaseKubelet, RunningServers
from steersman.api.core_v1 import PersistentVolumeClaim, Service
from steersman.client import MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseSpec,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.core.database_naming import DatabaseNames
from steersman_databases.setup import setup
from steersman_testing import World, simulate
from steersman_testing.simulation import SimulationReport
from steersman_testing.virtual_clock import VirtualClock

KEY = ObjectKey("default", "orders")
Databases = World[RunningServers]


def sweep(scenario: Any, **effort: Any) -> SimulationReport:
    """Plays ``scenario`` with the operator under every fault."""
    return simulate(
        _setup,
        scenario,
        outside=RunningServers,
        observe=servers,
        kinds=[Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore],
        actors=[cluster],
        invariants=[data_is_initialised_once],
        adjust=without_nondeterminism,
        options=ManagerOptions(name="steersman-databases"),
        **effort,
    )


def _setup(manager: Manager, machines: RunningServers) -> None:
    setup(manager, machines.sql_engine, postgresql_factory=machines.postgresql, mysql_factory=machines.mysql)


async def cluster(world: Databases) -> None:
    """Volumes, pods and servers."""
    await DatabaseKubelet(world.server, world.client, world.outside).run(VirtualClock())


def servers(machines: RunningServers) -> dict[str, Any]:
    """What is compared of the servers that run: who may do what, and whether the data are there."""
    return {
        str(endpoint): {
            "users": {name: replace(user, verifier=None) for name, user in server.users.items()},
            "databases": dict(server.databases),
            "inside": dict(server.contents),
        }
        for endpoint, server in machines.servers.items()
        if server.up
    }


def data_is_initialised_once(world: Databases) -> None:
    """Nobody makes other data while a cluster's claims hold some."""
    volumes, members = world.outside.fake_hosts.volumes, world.outside.fake_group.servers
    held = [claim.metadata.uid for claim in world.read_all(PersistentVolumeClaim)]
    made = {volumes[uid].system for uid in held if uid in volumes}
    made |= {members[uid].uuid for uid in held if uid in members}
    assert len(made - {""}) <= 1


def phase(world: Databases) -> str:
    """The phase of the ``Database``; empty before there is one."""
    found = world.read(Database, KEY)
    return found.status.phase or "" if found and found.status else ""


async def create(world: Databases, **spec: Any) -> None:
    """Creates the ``Database`` and waits until it is of use."""
    fields: dict[str, Any] = {"storage_size": Quantity("1Gi"), **spec}
    metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
    await world.client.create(Database(metadata=metadata, spec=DatabaseSpec(**fields)))
    await world.wait_until("Ready", lambda: phase(world) == "Ready")
    await world.settle()


async def delete(world: Databases) -> None:
    """Deletes it and waits until it is gone."""
    await world.client.delete(Database, KEY)
    await world.wait_until("gone", lambda: world.read(Database, KEY) is None)
    await world.settle()


async def life(world: Databases, **spec: Any) -> None:
    """Created, grown, deleted with its data."""
    await create(world, deletion_policy="Delete", **spec)
    await world.client.patch(Database, KEY, MergePatch({"spec": {"storageSize": "2Gi"}}))
    await world.settle()
    await delete(world)


async def retained(world: Databases, **spec: Any) -> None:
    """Deleted, its data kept, and found again by the next of the same name."""
    await create(world, deletion_policy="Retain", **spec)
    await delete(world)
    await create(world, deletion_policy="Retain", **spec)


async def healed(world: Databases, **spec: Any) -> None:
    """What others break is mended: the user, and the Service."""
    await create(world, **spec)
    next(iter(world.outside.servers.values())).drop_user("orders")
    await world.settle()
    await world.client.delete(Service, DatabaseNames(KEY).primary_service)
    await world.settle()
    await world.wait_until("Ready", lambda: phase(world) == "Ready")


VERSIONS = {"postgresql": "17", "mysql": "9.7"}


def _for_engines(scenario: Callable[..., Awaitable[None]]) -> Callable[[str], Callable[[Databases], Awaitable[None]]]:
    return lambda engine: partial(scenario, engine=engine, version=VERSIONS[engine])


SCENARIOS = {scenario.__name__: _for_engines(scenario) for scenario in (life, retained, healed)}
"""By name, what gives the scenario for an engine."""
