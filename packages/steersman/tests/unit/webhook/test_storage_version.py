"""Stored objects are rewritten once each, whatever happens meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.client import Client, MergePatch
from steersman.errors import ConfigurationError, ConnectionFailed, Invalid, SteersmanError
from steersman.meta import ApiResource, ObjectKey, Unstructured, unstructured
from steersman.webhook import migrate_storage_version
from steersman.webhook.registry import DEFINITION
from steersman_cli.migrate import migrated
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

LAMP = ApiResource("example.com", "v1", "Lamp", "lamps")
NAME = ObjectKey("", "lamps.example.com")


def lamps(storage: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    versions = [{"name": v, "served": True, "storage": v == storage, "schema": schema} for v in ("v1", "v2")]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "lamps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "lamps", "kind": "Lamp"},
            "versions": versions,
        },
    }


class Street:
    def __init__(self, count: int = 7) -> None:
        self.server = InMemoryApiServer(virtual_runtime())
        self.client = Client(self.server, field_manager="migration")
        self.server.load(lamps("v1"))
        for number in range(count):
            metadata = {"name": f"l{number}", "namespace": "default"}
            self.server.load({"apiVersion": "example.com/v1", "kind": "Lamp", "metadata": metadata, "spec": {"a": 1}})

    async def store(self, version: str) -> None:
        definitions = unstructured(DEFINITION)
        await self.client.patch(
            definitions, NAME, MergePatch({"spec": {"versions": lamps(version)["spec"]["versions"]}})
        )

    async def stored(self) -> tuple[str, ...]:
        found: Unstructured = await self.client.get(unstructured(DEFINITION), NAME)
        return tuple(found.content["status"]["storedVersions"])


@virtual_time
async def test_all_objects_are_written_once_and_the_former_version_can_go() -> None:
    street = Street()
    assert (await migrate_storage_version(street.client, LAMP)).written == 0
    await street.store("v2")
    assert await street.stored() == ("v1", "v2")
    done = await migrate_storage_version(street.client, LAMP)
    assert (done.storage_version, done.written, done.dropped) == ("v2", 7, ("v1",))
    assert await street.stored() == ("v2",)
    assert {m["apiVersion"] for m in street.server.manifests() if m["kind"] == "Lamp"} == {"example.com/v2"}
    street.server.requests.clear()
    assert (await migrate_storage_version(street.client, LAMP)).written == 0
    assert len(street.server.requests) == 1


@virtual_time
async def test_a_dry_run_has_every_write_checked_and_stores_nothing() -> None:
    street = Street()
    await street.store("v2")
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))

    done = await migrate_storage_version(street.client, LAMP, dry_run=True, on_progress=progress)
    assert (done.storage_version, done.written, done.dropped) == ("v2", 7, ("v1",))
    assert seen == [(number, 7) for number in range(8)]
    assert await street.stored() == ("v1", "v2")
    street.server.fail_next(matching("PATCH", "/lamps/l3"), 422)
    with pytest.raises(Invalid):
        await migrate_storage_version(street.client, LAMP, dry_run=True)


@virtual_time
async def test_kinds_are_named_as_for_kubectl() -> None:
    street = Street()
    await street.store("v2")
    street.server.load(of_group(lamps("v1"), "example.org"))
    for name, told in (("Lamp", "may be lamps.example.com, lamps.example.org"), ("cronjob", "no custom kind")):
        with pytest.raises(ConfigurationError, match=told):
            await migrated(street.client, [name], dry_run=False)
    expected = {"name": "lamps.example.com", "storageVersion": "v2", "written": 7, "dropped": ["v1"]}
    assert await migrated(street.client, ["lamps.example.com"], dry_run=True) == [expected]
    # All that need it.
    assert await migrated(street.client, [], dry_run=False) == [expected]
    assert await migrated(street.client, [], dry_run=False) == []


def of_group(definition: dict[str, Any], group: str) -> dict[str, Any]:
    return {
        **definition,
        "metadata": {"name": f"lamps.{group}"},
        "spec": {**definition["spec"], "group": group},
    }


@virtual_time
async def test_what_is_cut_short_is_begun_again() -> None:
    street = Street()
    await street.store("v2")
    street.server.fail_next(matching("PATCH", "/lamps/l3"), ConnectionFailed("cut"))
    with pytest.raises(ConnectionFailed):
        await migrate_storage_version(street.client, LAMP)
    assert await street.stored() == ("v1", "v2")
    await migrate_storage_version(street.client, LAMP)
    assert await street.stored() == ("v2",)


@virtual_time
async def test_who_changes_or_deletes_an_object_has_done_it() -> None:
    street = Street()
    await street.store("v2")
    for code in (409, 404):
        street.server.fail_next(matching("PATCH", "/lamps/l3"), code)
        street.server.fail_next(matching("PATCH", "/customresourcedefinitions"), 422)
        with pytest.raises(Invalid):
            await migrate_storage_version(street.client, LAMP)
    assert (await migrate_storage_version(street.client, LAMP)).dropped == ("v1",)


@virtual_time
async def test_a_change_of_the_storage_version_meanwhile_is_noticed() -> None:
    street = Street()
    await street.store("v2")

    class Meddling(Client):
        async def list(self, *arguments: Any, **more: Any) -> Any:
            await street.store("v1")
            return await super().list(*arguments, **more)

    with pytest.raises(SteersmanError, match="the storage version was changed from v2 meanwhile: begin again"):
        await migrate_storage_version(Meddling(street.server), LAMP)
    assert await street.stored() == ("v1", "v2")
