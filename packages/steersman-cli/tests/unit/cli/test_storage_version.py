"""Stored objects are rewritten once each, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.client import Client, MergePatch
from steersman.errors import ConfigurationError, ConnectionFailed, Invalid, SteersmanError
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman.webhook.registry import CUSTOM_RESOURCE_DEFINITION
from steersman_cli.migrate import migrate_kinds
from steersman_cli.storage_version import migrate_storage_version
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

WEBAPP = ApiResource("example.com", "v1", "WebApp", "webapps")
NAME = ObjectKey("", "webapps.example.com")


def webapps(storage: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": v, "served": True, "storage": v == storage, "schema": schema} for v in ("v1", "v2")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "webapps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "webapps", "kind": "WebApp"},
            "versions": versions,
        },
    }


class MigrationCluster:
    def __init__(self, count: int = 7) -> None:
        self.server = InMemoryApiServer(virtual_runtime())
        self.client = Client(self.server, field_manager="migration")
        self.server.load(webapps("v1"))
        for number in range(count):
            metadata = {"name": f"l{number}", "namespace": "default"}
            self.server.load(
                {"apiVersion": "example.com/v1", "kind": "WebApp", "metadata": metadata, "spec": {"a": 1}}
            )

    async def store(self, version: str) -> None:
        definitions = unstructured(CUSTOM_RESOURCE_DEFINITION)
        await self.client.patch(
            definitions, NAME, MergePatch({"spec": {"versions": webapps(version)["spec"]["versions"]}})
        )

    async def stored(self) -> tuple[str, ...]:
        found: Unstructured = await self.client.get(unstructured(CUSTOM_RESOURCE_DEFINITION), NAME)
        return tuple(found.content["status"]["storedVersions"])


@virtual_time
async def test_migration_writes_objects_once_and_drops_version() -> None:
    cluster = MigrationCluster()
    assert (await migrate_storage_version(cluster.client, WEBAPP)).objects_written == 0
    await cluster.store("v2")
    assert await cluster.stored() == ("v1", "v2")
    done = await migrate_storage_version(cluster.client, WEBAPP)
    assert (done.storage_version, done.objects_written, done.removed_versions) == ("v2", 7, ("v1",))
    assert await cluster.stored() == ("v2",)
    assert {m["apiVersion"] for m in cluster.server.manifests() if m["kind"] == "WebApp"} == {"example.com/v2"}
    cluster.server.requests.clear()
    assert (await migrate_storage_version(cluster.client, WEBAPP)).objects_written == 0
    assert len(cluster.server.requests) == 1


@virtual_time
async def test_migration_dry_run_validates_and_stores_no_objects() -> None:
    cluster = MigrationCluster()
    await cluster.store("v2")
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    done = await migrate_storage_version(cluster.client, WEBAPP, dry_run=True, on_progress=progress)
    assert (done.storage_version, done.objects_written, done.removed_versions) == ("v2", 7, ("v1",))
    assert seen == [(number, 7) for number in range(8)]
    assert await cluster.stored() == ("v1", "v2")
    cluster.server.fail_next(matching("PATCH", "/webapps/l3"), 422)
    with pytest.raises(Invalid):
        await migrate_storage_version(cluster.client, WEBAPP, dry_run=True)


@virtual_time
async def test_migration_of_ambiguous_kind_name_raises() -> None:
    cluster = MigrationCluster()
    await cluster.store("v2")
    cluster.server.load(of_group(webapps("v1"), "example.org"))
    for name, message in (
        ("WebApp", "give one of webapps.example.com, webapps.example.org"),
        ("cronjob", "no custom resource"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            await migrate_kinds(cluster.client, [name], dry_run=False)
    expected = {"name": "webapps.example.com", "storageVersion": "v2", "written": 7, "dropped": ["v1"]}
    assert await migrate_kinds(cluster.client, ["webapps.example.com"], dry_run=True) == [expected]
    # All that need it.
    assert await migrate_kinds(cluster.client, [], dry_run=False) == [expected]
    assert await migrate_kinds(cluster.client, [], dry_run=False) == []


def of_group(definition: dict[str, Any], group: str) -> dict[str, Any]:
    return {
        **definition,
        "metadata": {"name": f"webapps.{group}"},
        "spec": {**definition["spec"], "group": group},
    }


@virtual_time
async def test_migration_interrupted_is_resumed() -> None:
    cluster = MigrationCluster()
    await cluster.store("v2")
    cluster.server.fail_next(matching("PATCH", "/webapps/l3"), ConnectionFailed("cut"))
    with pytest.raises(ConnectionFailed):
        await migrate_storage_version(cluster.client, WEBAPP)
    assert await cluster.stored() == ("v1", "v2")
    await migrate_storage_version(cluster.client, WEBAPP)
    assert await cluster.stored() == ("v2",)


@virtual_time
async def test_migration_concurrent_change_counts_as_done() -> None:
    cluster = MigrationCluster()
    await cluster.store("v2")
    for code in (409, 404):
        cluster.server.fail_next(matching("PATCH", "/webapps/l3"), code)
        cluster.server.fail_next(matching("PATCH", "/customresourcedefinitions"), 422)
        with pytest.raises(Invalid):
            await migrate_storage_version(cluster.client, WEBAPP)
    assert (await migrate_storage_version(cluster.client, WEBAPP)).removed_versions == ("v1",)


@virtual_time
async def test_migration_storage_version_change_is_detected() -> None:
    cluster = MigrationCluster()
    await cluster.store("v2")

    class ConcurrentWriter(Client):
        async def list(self, *arguments: Any, **more: Any) -> Any:
            await cluster.store("v1")
            return await super().list(*arguments, **more)

    with pytest.raises(SteersmanError, match="the storage version changed from v2 during the migration"):
        await migrate_storage_version(ConcurrentWriter(cluster.server), WEBAPP)
    assert await cluster.stored() == ("v1", "v2")
