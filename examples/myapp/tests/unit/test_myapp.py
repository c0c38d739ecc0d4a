"""Test of MyApp on the in-memory API server, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from myapp_cluster import FakeCluster, ImageRegistry
from steersman import (
    Client,
    FrozenDict,
    Manager,
    MergePatch,
    ObjectKey,
    ObjectMeta,
    Quantity,
    find_condition,
    is_true,
)
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Service, ServicePort, ServiceSpec
from steersman.api.events_v1 import Event
from steersman.errors import Invalid
from steersman.observability import metrics
from steersman_testing import InMemoryApiServer, virtual_time

from my_operator.api.v1.myapp import MyApp, MyAppDatabase, MyAppSpec, MyAppStatus, Release
from my_operator.controllers.metrics import RECONCILES, RESULTS
from my_operator.foreign.databases_steersman_dev_v1alpha1 import Database
from my_operator.main import setup
from my_operator.resources import has_database, migration_key, release_of, selector_labels

KEY = ObjectKey("default", "my-application")
OLD, NEW = "example.com/myapp:1.2.0", "example.com/myapp:1.3.0"


class OperatorHarness:
    """Runs the operator, and observes it like a user."""

    def __init__(self, server: InMemoryApiServer, registry: ImageRegistry) -> None:
        self.server = server
        self.registry = registry
        self.user = Client(server, field_manager="user")

    async def create(self, *, database: bool = True, **settings: str) -> None:
        config = FrozenDict(settings)
        spec = MyAppSpec(version="1.2.0", config=config, replicas=3, database=MyAppDatabase(enabled=database))
        await self.user.create(MyApp(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec))
        await self.wait_until_settled()

    async def patch_spec(self, **spec: Any) -> None:
        await self.user.patch(MyApp, KEY, MergePatch({"spec": spec}))
        await self.wait_until_settled()

    async def wait_until_settled(self) -> None:
        await asyncio.sleep(300)

    async def app(self) -> MyApp:
        return await self.user.get(MyApp, KEY)

    async def status(self) -> MyAppStatus:
        status = (await self.app()).status
        return status

    def deployment(self) -> Deployment:
        found = self.server.read(Deployment, KEY)
        assert found is not None
        return found

    def image(self) -> str:
        return self.release().image

    def release(self) -> Release:
        found = release_of(self.deployment().spec.template.spec)
        assert found is not None
        return found

    def settings(self) -> dict[str, dict[str, str]]:
        """Return the content of each ConfigMap of the app, by name."""
        return {found.metadata.name: dict(found.data) for found in self.server.read_all(ConfigMap)}


@asynccontextmanager
async def running_operator(server: InMemoryApiServer, **registry: Any) -> AsyncGenerator[OperatorHarness]:
    running = OperatorHarness(server, ImageRegistry(**registry))
    manager = Manager(server, runtime=server.runtime)
    setup(manager)
    cluster = FakeCluster(server, Client(server, field_manager="cluster"), running.registry)
    tasks = [asyncio.create_task(manager.run()), asyncio.create_task(cluster.run())]
    try:
        yield running
    finally:
        manager.stop()
        await tasks[0]
        tasks[1].cancel()


@pytest.mark.requirement("programming/status", "overview/myapp", "overview/status-fields")
@virtual_time
async def test_new_app_becomes_ready_with_one_migration(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create()
        status = await running.status()
        assert (status.phase, status.replicas, status.ready_replicas) == ("Ready", 3, 3)
        assert (status.version, status.release) == ("1.2.0", Release(image=OLD))
        assert is_true(status.conditions, "Ready")
        assert not is_true(status.conditions, "Degraded")
        deployment = running.deployment()
        pod = deployment.spec.template
        assert running.release() == Release(image=OLD) and has_database(pod.spec)
        assert status.selector == ",".join(f"{k}={v}" for k, v in selector_labels(await running.app()).items())
        service, database = apiserver.read(Service, KEY), apiserver.read(Database, KEY)
        assert service is not None and service.spec.selector == selector_labels(await running.app())
        assert database is not None and database.spec.storage_size == Quantity("1Gi")
        assert running.registry.migrations == [OLD]


@virtual_time
async def test_upgrade_without_database_runs_no_migration(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create(database=False)
        await running.patch_spec(version="1.3.0")
        assert (await running.status()).version == "1.3.0"
        assert not has_database(running.deployment().spec.template.spec)
        assert not apiserver.read_all(Database)
        assert running.registry.migrations == []


@pytest.mark.requirement("pattern/upgrades")
@virtual_time
async def test_a_new_version_is_migrated_to_once(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create()
        await running.patch_spec(version="1.3.0")
        await running.patch_spec(replicas=5)
        status = await running.status()
        assert (status.phase, status.version, status.ready_replicas) == ("Ready", "1.3.0", 5)
        assert running.registry.migrations == [OLD, NEW]
        assert [j.key for j in apiserver.read_all(Job)] == [migration_key(await running.app(), NEW)]


@virtual_time
async def test_failed_migration_keeps_previous_version(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_migrations={NEW}) as running:
        await running.create()
        await running.patch_spec(version="1.3.0")
        status = await running.status()
        degraded = find_condition(status.conditions, "Degraded")
        assert degraded is not None
        assert (status.phase, status.version, status.ready_replicas) == ("RolledBack", "1.2.0", 3)
        assert (degraded.status, degraded.reason) == ("True", "MigrationFailed")
        assert "kubectl logs" in degraded.message
        assert not is_true(status.conditions, "Ready")
        assert running.image() == OLD
        events = (await running.user.list(Event, namespace=KEY.namespace)).items
        assert [(e.type, e.reason) for e in events if e.reason == "MigrationFailed"] == [
            ("Warning", "MigrationFailed")
        ]
        (job,) = apiserver.read_all(Job)
        assert job.metadata.name in degraded.message, "its logs are to be read"
        await running.patch_spec(replicas=4)
        assert running.registry.migrations == [OLD, NEW], "it is not tried again"
        await running.patch_spec(version="1.3.1")
        assert ((await running.status()).phase, running.image()) == ("Ready", "example.com/myapp:1.3.1")
        assert job.key not in [j.key for j in apiserver.read_all(Job)]


@pytest.mark.requirement("overview/upgrade-and-rollback")
@virtual_time
async def test_failed_rollout_is_rolled_back(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_rollouts={NEW}) as running:
        await running.create()
        await running.patch_spec(version="1.3.0")
        status = await running.status()
        assert (status.phase, status.version, running.image()) == ("RolledBack", "1.2.0", OLD)
        degraded = find_condition(status.conditions, "Degraded")
        assert degraded is not None and degraded.reason == "RolloutFailed"
        generation = running.deployment().metadata.generation
        await asyncio.sleep(2 * 3600)
        assert running.deployment().metadata.generation == generation, "it is not tried again"
        await running.patch_spec(replicas=4)
        assert (running.deployment().spec.replicas, running.image()) == (4, OLD), "what serves is still kept"
        running.registry.failing_rollouts.clear()
        await running.patch_spec(version="1.2.0")
        assert is_true((await running.status()).conditions, "Ready")
        await running.patch_spec(version="1.3.0")
        assert ((await running.status()).version, running.image()) == ("1.3.0", NEW)
        assert running.registry.migrations == [OLD, NEW], "the database was there already"


@pytest.mark.requirement("overview/deploy")
@virtual_time
async def test_changed_settings_roll_out_without_migration(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create(LOG_LEVEL="info")
        first = running.release().config
        assert running.settings() == {first: {"LOG_LEVEL": "info"}}
        assert apiserver.read_all(ConfigMap)[0].immutable
        await running.patch_spec(config={"LOG_LEVEL": "debug"})
        second = running.release().config
        assert running.settings() == {second: {"LOG_LEVEL": "debug"}}, "no release needs the first one"
        status = await running.status()
        assert (status.phase, status.release) == ("Ready", Release(image=OLD, config=second))
        assert running.registry.migrations == [OLD]
        await running.patch_spec(config=None)
        assert (running.release(), running.settings()) == (Release(image=OLD), {})


@virtual_time
async def test_migration_has_the_settings_of_its_release(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_migration_levels={"nonsense"}) as running:
        await running.create(LOG_LEVEL="info")
        (job,) = apiserver.read_all(Job)
        assert release_of(job.spec.template.spec) == running.release()
        await running.patch_spec(version="1.3.0", config={"LOG_LEVEL": "nonsense"})
        assert ((await running.status()).phase, running.image()) == ("RolledBack", OLD)
        # The migration runs again with corrected settings, and only then.
        await running.patch_spec(config={"LOG_LEVEL": "debug"})
        assert ((await running.status()).phase, running.image()) == ("Ready", NEW)
        await running.patch_spec(config={"LOG_LEVEL": "info"})
        assert (await running.status()).phase == "Ready"
        assert running.registry.migrations == [OLD, NEW, NEW]


@virtual_time
async def test_reverted_settings_stay_while_pods_use_them(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create(LOG_LEVEL="info")
        good = running.release().config
        await running.user.patch(MyApp, KEY, MergePatch({"spec": {"config": {"LOG_LEVEL": "debug"}}}))
        await asyncio.sleep(1)
        reverted = running.release().config
        await running.user.patch(MyApp, KEY, MergePatch({"spec": {"config": {"LOG_LEVEL": "info"}}}))
        await asyncio.sleep(1)
        assert running.release().config == good != reverted
        assert running.settings().keys() == {good, reverted}
        await running.wait_until_settled()
        assert running.settings().keys() == {good}


@virtual_time
async def test_failed_settings_are_rolled_back(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_levels={"nonsense"}) as running:
        await running.create(LOG_LEVEL="info")
        good = running.release()
        await running.patch_spec(config={"LOG_LEVEL": "nonsense"})
        status = await running.status()
        assert (status.phase, status.release, running.release()) == ("RolledBack", good, good)
        assert running.settings()[good.config] == {"LOG_LEVEL": "info"}
        degraded = find_condition(status.conditions, "Degraded")
        assert degraded is not None and "previous settings is running" in degraded.message
        await running.patch_spec(config={"LOG_LEVEL": "debug"})
        assert (await running.status()).phase == "Ready"
        assert list(running.settings().values()) == [{"LOG_LEVEL": "debug"}]


@pytest.mark.requirement("pattern/upgrades")
@virtual_time
async def test_settings_roll_back_with_their_version(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_rollouts={NEW}) as running:
        await running.create(database=False, LOG_LEVEL="info")
        good = running.release()
        await running.patch_spec(version="1.3.0", config={"LOG_FORMAT": "json", "LOG_LEVEL": None})
        assert ((await running.status()).phase, running.release()) == ("RolledBack", good)
        assert running.settings()[good.config] == {"LOG_LEVEL": "info"}
        await running.patch_spec(version="1.2.0", config={"LOG_FORMAT": None, "LOG_LEVEL": "info"})
        assert ((await running.status()).phase, running.release()) == ("Ready", good)
        assert running.settings() == {good.config: {"LOG_LEVEL": "info"}}


@virtual_time
async def test_failed_first_version_becomes_ready_when_fixed(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_rollouts={OLD}, failing_migrations={NEW}) as running:
        await running.create()
        status = await running.status()
        assert (status.phase, status.version, running.image()) == ("Failed", None, OLD)
        running.registry.failing_rollouts.clear()
        await running.patch_spec(rolloutDeadlineSeconds=60)
        assert (await running.status()).phase == "Ready", "what comes up late is welcome"


@virtual_time
async def test_failed_first_migration_creates_no_deployment(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, failing_migrations={OLD}) as running:
        await running.create()
        assert (await running.status()).phase == "Failed"
        assert not apiserver.read_all(Deployment)


@virtual_time
async def test_database_added_and_removed(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create(database=False)
        await running.patch_spec(database={"enabled": True})
        assert has_database(running.deployment().spec.template.spec)
        assert running.registry.migrations == [OLD], "a new database has no tables"
        await running.user.delete(Database, KEY)
        await running.wait_until_settled()
        assert running.registry.migrations == [OLD, OLD], "nor has another one"
        await running.patch_spec(database={"enabled": False})
        assert not has_database(running.deployment().spec.template.spec)
        assert not apiserver.read_all(Database)
        assert (await running.status()).migrated is None


@virtual_time
async def test_disabled_database_outlives_its_migration(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver, endless_migrations={OLD}) as running:
        await running.create()
        (job,) = apiserver.read_all(Job)
        await running.user.patch(Job, job.key, MergePatch({"metadata": {"finalizers": ["example.com/pods-run"]}}))
        await running.patch_spec(database={"enabled": False})
        assert apiserver.read_all(Job)[0].metadata.deletion_timestamp is not None
        assert apiserver.read_all(Database)
        await running.user.patch(Job, job.key, MergePatch({"metadata": {"finalizers": None}}))
        await running.wait_until_settled()
        assert not apiserver.read_all(Job)
        assert not apiserver.read_all(Database)
        assert (await running.status()).phase == "Ready"


@pytest.mark.requirement("design/children")
@virtual_time
async def test_foreign_changes_are_reverted(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create()
        foreign_containers = [{"name": "app", "image": "example.com/evil:1"}]
        await running.user.patch(
            Deployment, KEY, MergePatch({"spec": {"template": {"spec": {"containers": foreign_containers}}}})
        )
        await running.user.delete(Service, KEY)
        await running.wait_until_settled()
        assert running.image() == OLD
        assert apiserver.read(Service, KEY) is not None
        assert running.registry.migrations == [OLD]


@virtual_time
async def test_foreign_service_causes_name_conflict(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        spec = ServiceSpec(ports=(ServicePort(port=80),))
        foreign_service = Service(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), spec=spec)
        await running.user.create(foreign_service)
        await running.create()
        ready = find_condition((await running.status()).conditions, "Ready")
        assert ready is not None and ready.reason == "NameTaken" and "Service" in ready.message
        found = apiserver.read(Service, KEY)
        assert found is not None and not found.metadata.owner_references
        await running.user.delete(Service, KEY)
        await asyncio.sleep(3600)
        assert (await running.status()).phase == "Ready"


@pytest.mark.requirement("overview/metrics")
@virtual_time
async def test_metric_is_removed_with_its_object(apiserver: InMemoryApiServer) -> None:
    RECONCILES.clear()  # series of tests that ended with objects

    def shown() -> dict[str, float]:
        named = {"namespace": KEY.namespace, "name": KEY.name}
        values = {
            r: metrics.registry.get_sample_value("myapp_reconcile_total", {**named, "result": r}) for r in RESULTS
        }
        return {result: value for result, value in values.items() if value}

    async with running_operator(apiserver) as running:
        await running.create()
        assert set(shown()) == {"success"}
        await running.user.delete(MyApp, KEY)
        await running.wait_until_settled()
        assert not shown()
        assert not apiserver.read_all(Deployment) and not apiserver.read_all(Database)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"version": "latest and greatest"}, "spec.version"),
        ({"version": "1", "replicas": -1}, "spec.replicas"),
        ({"version": "1", "database": {"storage": "0"}}, "more than 0"),
        ({"version": "1", "config": {"log.level": "info"}}, "named like environment variables"),
        ({"version": "1", "config": {"DATABASE_URL": "postgresql://other"}}, "but not DATABASE_URL"),
        ({"version": "1", "config": {"LOG_LEVEL": "x" * 4097}}, "spec.config"),
    ],
)
@virtual_time
async def test_invalid_spec_is_rejected(apiserver: InMemoryApiServer, spec: dict[str, Any], said: str) -> None:
    body = {"apiVersion": "example.com/v1", "kind": "MyApp", "metadata": {"name": "a", "namespace": "default"}}
    with pytest.raises(Invalid, match=said):
        await apiserver_request(apiserver, {**body, "spec": spec})


async def apiserver_request(server: InMemoryApiServer, body: dict[str, Any]) -> None:
    from steersman.meta import unstructured

    kind = unstructured(MyApp.api_resource)
    await Client(server).create(kind.of(body))


@virtual_time
async def test_storage_shrink_is_rejected(apiserver: InMemoryApiServer) -> None:
    async with running_operator(apiserver) as running:
        await running.create()
        await running.patch_spec(database={"storage": "2Gi"})
        database = apiserver.read(Database, KEY)
        assert database is not None and database.spec.storage_size == Quantity("2Gi")
        with pytest.raises(Invalid, match="never shrink"):
            await running.user.patch(MyApp, KEY, MergePatch({"spec": {"database": {"storage": "1Gi"}}}))
