"""The admission policy of the how-to page "Recover from a disaster"."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import yaml

from framework_support.documented_code import documented_files
from steersman.api.core_v1 import Namespace
from steersman.client import Client
from steersman.errors import ApiError
from steersman.meta import ApiResource, FrozenDict, ObjectKey, ObjectMeta, unstructured
from steersman_testing.envtest import Envtest

PAGE = "how-to/recover-from-a-disaster.md"
PROTECTED = FrozenDict({"deletion-protection": "true"})


async def _apply_policy(client: Client) -> None:
    for manifest in cast("list[dict[str, Any]]", list(yaml.safe_load_all(documented_files(PAGE)["policy.yaml"]))):
        group, _, version = manifest["apiVersion"].partition("/")
        plural = "validatingadmissionpolicies" if manifest["kind"].endswith("Policy") else ""
        resource = ApiResource(
            group=group,
            version=version,
            kind=manifest["kind"],
            plural=plural or "validatingadmissionpolicybindings",
            namespaced=False,
        )
        await client.apply(unstructured(resource).of(manifest))


async def _refusal(client: Client, name: str) -> str:
    """Try to delete a namespace. Returns the message of the API server, empty if the deletion is permitted."""
    try:
        await client.delete(Namespace, ObjectKey("", name), dry_run=True)
    except ApiError as error:
        return str(error)
    return ""


async def test_labelled_namespace_cannot_be_deleted(envtest: Envtest) -> None:
    async with envtest.client() as client:
        await client.create(Namespace(metadata=ObjectMeta(name="protected", labels=PROTECTED)))
        await client.create(Namespace(metadata=ObjectMeta(name="unprotected")))
        await _apply_policy(client)
        async with asyncio.timeout(30):
            while not (refusal := await _refusal(client, "protected")):
                await asyncio.sleep(0.1)
        assert "namespace protected has databases: delete them first and wait for their final backups" in refusal
        assert await _refusal(client, "unprotected") == ""
