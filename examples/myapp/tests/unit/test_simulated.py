"""MyApp under every fault: the process dies, answers are lost, watches are late, somebody else writes."""

from __future__ import annotations

import os

from myapp_cluster import Cluster, Registry
from steersman import MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import Deployment
from steersman_testing import World, simulate

from my_operator.api.v1.myapp import MyApp, MyAppDatabase, MyAppSpec
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import has_database, image_of

# All places, with SIMULATE=whole, take minutes; some of them, evenly spread, take seconds.
MOST, RANDOM = (None, 50) if os.environ.get("SIMULATE") == "whole" else (12, 3)
KEY = ObjectKey("default", "my-application")
REPOSITORY = "example.com/myapp"


def registry() -> Registry:
    """1.2.0 and 1.5.0 are good; 1.3.0 cannot be migrated to, and 1.4.0 never comes up."""
    return Registry(broken={f"{REPOSITORY}:1.4.0"}, refused={f"{REPOSITORY}:1.3.0"})


async def cluster(world: World[Registry]) -> None:
    await Cluster(world.server, world.client, world.outside).run()


async def upgrades(world: World[Registry]) -> None:
    """What goes wrong with new versions, and what goes well."""
    spec = MyAppSpec(version="1.2.0", replicas=2, database=MyAppDatabase(enabled=True))
    await world.client.create(MyApp(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
    await world.until("Ready", lambda: phase(world) == "Ready")
    await world.settle()
    for version, outcome in (("1.3.0", "RolledBack"), ("1.4.0", "RolledBack"), ("1.5.0", "Ready")):
        await world.client.patch(MyApp, KEY, MergePatch({"spec": {"version": version}}))
        await world.until(
            f"{version}: {outcome}", lambda v=version, o=outcome: (wanted(world), phase(world)) == (v, o)
        )
        await world.settle()
    await world.client.patch(MyApp, KEY, MergePatch({"spec": {"database": {"enabled": False}}}))
    await world.until("no database", lambda: world.read(Database, KEY) is None)
    await world.settle()
    await world.client.delete(MyApp, KEY)


def wanted(world: World[Registry]) -> str:
    """The version that the conditions are about."""
    app = world.read(MyApp, KEY)
    current = app is not None and app.status is not None and app.status.observed_generation == app.metadata.generation
    return app.spec.version if app is not None and current else ""


def phase(world: World[Registry]) -> str:
    app = world.read(MyApp, KEY)
    return app.status.phase or "" if app is not None and app.status is not None else ""


def nothing_runs_unmigrated(world: World[Registry]) -> None:
    """The Deployment never has a version whose migration has not succeeded."""
    found = world.read(Deployment, KEY)
    if found is None or not has_database(found.spec.template.spec):
        return
    image = image_of(found.spec.template.spec)
    done = [m for m in world.outside.migrations if m not in world.outside.refused]
    assert image in done, f"{image} runs, but only {done} have been migrated to"


def what_serves_is_kept(world: World[Registry]) -> None:
    """Once a version has come up, there is always one that could serve."""
    app = world.read(MyApp, KEY)
    if app is None or app.status is None or app.metadata.deletion_timestamp is not None:
        return
    if app.status.version is not None:
        assert world.read(Deployment, KEY) is not None, f"{app.status.version} served, and there is no Deployment"


def each_migration_runs_once(world: World[Registry]) -> None:
    """A migration is not begun anew for what the cluster knows already, however often the operator starts."""
    ran = world.outside.migrations
    assert len(ran) == len(set(ran)), f"ran twice: {ran}"


def test_it_comes_through() -> None:
    report = simulate(
        lambda manager, _: setup(manager),
        upgrades,
        outside=registry,
        observe=lambda registry: {"migrations": registry.migrations},
        kinds=[MyApp, Database],
        actors=[cluster],
        invariants=[nothing_runs_unmigrated, what_serves_is_kept, each_migration_runs_once],
        most=MOST,
        random_runs=RANDOM,
    )
    print(report)
