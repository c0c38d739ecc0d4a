"""Storage version migration on the real API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from steersman.client import Client, MergePatch
from steersman.errors import Invalid, NotFound
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman.webhook.registry import CUSTOM_RESOURCE_DEFINITION
from steersman_cli.storage_version import migrate_storage_version
from steersman_testing.envtest import Envtest

GADGET = ApiResource("stored.example.com", "v1", "Gadget", "gadgets")
NEW = unstructured(GADGET._replace(version="v2"))
NAME = ObjectKey("", "gadgets.stored.example.com")


def versions(*names: str) -> list[dict[str, Any]]:
    """The first one is stored."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return [{"name": n, "served": True, "storage": n == names[0], "schema": schema} for n in names]


async def served(client: Client, kind: Any) -> Any:
    """All objects, once the API server serves them in this version."""
    async with asyncio.timeout(20):
        while True:
            try:
                return (await client.list(kind)).items
            except NotFound:
                await asyncio.sleep(0.05)


@pytest.mark.requirement("programming/versions")
async def test_migration_allows_version_removal(envtest: Envtest) -> None:
    definitions = unstructured(CUSTOM_RESOURCE_DEFINITION)
    spec = {"group": GADGET.group, "scope": "Namespaced", "names": {"plural": GADGET.plural, "kind": GADGET.kind}}
    async with envtest.client() as client:
        made = definitions.of({"metadata": {"name": NAME.name}, "spec": {**spec, "versions": versions("v1", "v2")}})
        await client.create(made)
        try:
            await served(client, NEW)
            for number in range(3):
                metadata = {"name": f"b{number}", "namespace": "default"}
                await client.create(unstructured(GADGET).of({"metadata": metadata, "spec": {"n": number}}))
            await client.patch(definitions, NAME, MergePatch({"spec": {"versions": versions("v2", "v1")}}))
            with pytest.raises(Invalid, match="storedVersions"):
                await client.patch(definitions, NAME, MergePatch({"spec": {"versions": versions("v2")}}))
            done = await migrate_storage_version(client, GADGET)
            assert (done.objects_written, done.removed_versions) == (3, ("v1",))
            await client.patch(definitions, NAME, MergePatch({"spec": {"versions": versions("v2")}}))
            async with asyncio.timeout(20):
                while f"{GADGET.group}/v1" in (await client.raw(f"/apis/{GADGET.group}")).decode():
                    await asyncio.sleep(0.05)
            assert [b.content["spec"]["n"] for b in await served(client, NEW)] == [0, 1, 2]
        finally:
            await client.delete(definitions, NAME)
