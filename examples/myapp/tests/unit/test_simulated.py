"""MyApp under crashes, lost responses, delayed watches and foreign writes."""

from __future__ import annotations

import os

from myapp_cluster import FakeCluster, ImageRegistry
from steersman import FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap
from steersman_testing import World, simulate

from my_operator.api.v1.myapp import MyApp, MyAppDatabase, MyAppSpec
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import has_database, release_of

# SIMULATE=whole tries all fault points and takes minutes. The default tries evenly spread ones in seconds.
MAX_FAULTS, RANDOM_RUNS = (None, 50) if os.environ.get("SIMULATE") == "whole" else (12, 3)
KEY = ObjectKey("default", "my-application")
REPOSITORY = "example.com/myapp"
RELEASES = (
    ("1.3.0", "debug", "RolledBack"),
    ("1.4.0", "info", "RolledBack"),
    ("1.5.0", "nonsense", "RolledBack"),
    ("1.5.0", "debug", "Ready"),
)
"""Version, log level and expected phase of later releases."""


def image_registry() -> ImageRegistry:
    """Return a registry with failing versions and settings.

    1.3.0 cannot migrate, 1.4.0 cannot start, and no version starts with LOG_LEVEL=nonsense.
    """
    failing = f"{REPOSITORY}:1.4.0", f"{REPOSITORY}:1.3.0"
    return ImageRegistry(failing_rollouts={failing[0]}, failing_levels={"nonsense"}, failing_migrations={failing[1]})


async def fake_cluster(world: World[ImageRegistry]) -> None:
    await FakeCluster(world.server, world.client, world.outside).run()


async def upgrade_scenario(world: World[ImageRegistry]) -> None:
    """Upgrade to failing and to working versions."""
    config = FrozenDict({"LOG_LEVEL": "info"})
    spec = MyAppSpec(version="1.2.0", config=config, replicas=2, database=MyAppDatabase(enabled=True))
    await world.client.create(MyApp(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
    await world.wait_until("Ready", lambda: app_phase(world) == "Ready")
    await world.settle()
    for version, level, outcome in RELEASES:
        await world.client.patch(
            MyApp, KEY, MergePatch({"spec": {"version": version, "config": {"LOG_LEVEL": level}}})
        )
        await world.wait_until(
            f"{version} with {level}: {outcome}",
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
    release = release_of(found.spec.template.spec)
    assert release is not None
    image = release.image
    done = [m for m in world.outside.migrations if m not in world.outside.failing_migrations]
    assert image in done, f"{image} runs, but only {done} have been migrated to"


def serving_deployment_is_kept(world: World[ImageRegistry]) -> None:
    """After the first rollout, a working version always exists."""
    app = world.read(MyApp, KEY)
    if app is None or app.metadata.deletion_timestamp is not None:
        return
    if app.status.version is not None:
        assert world.read(Deployment, KEY) is not None, f"{app.status.version} served, and there is no Deployment"


def settings_of_needed_releases_exist(world: World[ImageRegistry]) -> None:
    """The ConfigMaps of the running and of the last good release exist."""
    app, deployment = world.read(MyApp, KEY), world.read(Deployment, KEY)
    if app is None or app.metadata.deletion_timestamp is not None:
        return
    needed = [
        release_of(deployment.spec.template.spec) if deployment else None,
        app.status.release if app.status else None,
    ]
    for release in needed:
        if release is not None and release.config:
            assert world.read(ConfigMap, ObjectKey(KEY.namespace, release.config)) is not None, release.config


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
        invariants=[
            no_unmigrated_image_runs,
            serving_deployment_is_kept,
            settings_of_needed_releases_exist,
            each_migration_runs_once,
        ],
        max_places=MAX_FAULTS,
        random_runs=RANDOM_RUNS,
    )
    print(report)
