"""MyApp under crashes, lost responses, delayed watches and foreign writes."""

from __future__ import annotations

import os

from myapp_cluster import FakeCluster, ImageRegistry
from steersman import MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import Deployment
from steersman_testing import World, simulate

from my_operator.api.v1.myapp import MyApp, MyAppDatabase, MyAppSpec
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import app_image, has_database

# SIMULATE=whole tries all fault points and takes minutes. The default tries evenly spread ones in seconds.
MAX_FAULTS, RANDOM_RUNS = (None, 50) if os.environ.get("SIMULATE") == "whole" else (12, 3)
KEY = ObjectKey("default", "my-application")
REPOSITORY = "example.com/myapp"


def image_registry() -> ImageRegistry:
    """Return a registry: 1.3.0 cannot migrate, 1.4.0 cannot start."""
    return ImageRegistry(failing_rollouts={f"{REPOSITORY}:1.4.0"}, failing_migrations={f"{REPOSITORY}:1.3.0"})


async def fake_cluster(world: World[ImageRegistry]) -> None:
    await FakeCluster(world.server, world.client, world.outside).run()


async def upgrade_scenario(world: World[ImageRegistry]) -> None:
    """Upgrade to failing and to working versions."""
    spec = MyAppSpec(version="1.2.0", replicas=2, database=MyAppDatabase(enabled=True))
    await world.client.create(MyApp(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
    await world.wait_until("Ready", lambda: app_phase(world) == "Ready")
    await world.settle()
    for version, outcome in (("1.3.0", "RolledBack"), ("1.4.0", "RolledBack"), ("1.5.0", "Ready")):
        await world.client.patch(MyApp, KEY, MergePatch({"spec": {"version": version}}))
        await world.wait_until(
            f"{version}: {outcome}",
            lambda v=version, o=outcome: (observed_version(world), app_phase(world)) == (v, o),
        )
        await world.settle()
    await world.client.patch(MyApp, KEY, MergePatch({"spec": {"database": {"enabled": False}}}))
    await world.wait_until("no database", lambda: world.read(Database, KEY) is None)
    await world.settle()
    await world.client.delete(MyApp, KEY)


def observed_version(world: World[ImageRegistry]) -> str:
    """Return the version that the conditions describe."""
    app = world.read(MyApp, KEY)
    current = app is not None and app.status.observed_generation == app.metadata.generation
    return app.spec.version if app is not None and current else ""


def app_phase(world: World[ImageRegistry]) -> str:
    app = world.read(MyApp, KEY)
    return app.status.phase or "" if app is not None else ""


def no_unmigrated_image_runs(world: World[ImageRegistry]) -> None:
    """The Deployment never has a version without a successful migration."""
    found = world.read(Deployment, KEY)
    if found is None or not has_database(found.spec.template.spec):
        return
    image = app_image(found.spec.template.spec)
    done = [m for m in world.outside.migrations if m not in world.outside.failing_migrations]
    assert image in done, f"{image} runs, but only {done} have been migrated to"


def serving_deployment_is_kept(world: World[ImageRegistry]) -> None:
    """After the first rollout, a working version always exists."""
    app = world.read(MyApp, KEY)
    if app is None or app.metadata.deletion_timestamp is not None:
        return
    if app.status.version is not None:
        assert world.read(Deployment, KEY) is not None, f"{app.status.version} served, and there is no Deployment"


def each_migration_runs_once(world: World[ImageRegistry]) -> None:
    """Each migration runs once, even if the operator restarts."""
    ran = world.outside.migrations
    assert len(ran) == len(set(ran)), f"ran twice: {ran}"


def test_simulated_faults_are_recovered() -> None:
    report = simulate(
        lambda manager, _: setup(manager),
        upgrade_scenario,
        outside=image_registry,
        observe=lambda registry: {"migrations": registry.migrations},
        kinds=[MyApp, Database],
        actors=[fake_cluster],
        invariants=[no_unmigrated_image_runs, serving_deployment_is_kept, each_migration_runs_once],
        max_places=MAX_FAULTS,
        random_runs=RANDOM_RUNS,
    )
    print(report)
