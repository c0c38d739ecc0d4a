"""The operator against the real API server: its CRD is taken, its rules hold, its generated role suffices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from database_support.servers.operator_on_api_server import admin_client, running_operator
from steersman.api.core_v1 import Secret
from steersman.client import Client, MergePatch
from steersman.errors import Invalid, NotFound
from steersman.meta import ObjectKey, ObjectMeta, Quantity
from steersman_databases.api import CLUSTER_KINDS, Database, DatabaseSpec
from steersman_testing.envtest import Envtest

pytestmark = pytest.mark.xdist_group("admission-and-rbac")


def _database(namespace: str, name: str = "orders", **spec: Any) -> Database:
    fields: dict[str, Any] = {"engine": "postgresql", "version": "17", "storage_size": Quantity("1Gi"), **spec}
    return Database(metadata=ObjectMeta(name=name, namespace=namespace), spec=DatabaseSpec(**fields))


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "engine": ({"engine": "oracle"}, "spec.engine", "Unsupported value"),
    "size": ({"storage_size": "lots"}, "spec.storageSize", "should match"),
    "zero": ({"storage_size": Quantity(0)}, "spec.storageSize", "must be greater than 0"),
    "policy": ({"deletion_policy": "Maybe"}, "spec.deletionPolicy", "Unsupported value"),
    "empty-version": ({"version": ""}, "spec.version", "at least 1"),
    "long-name": ({"database_name": "x" * 65}, "spec.databaseName", "64"),
}


async def test_invalid_spec_is_rejected_with_field(installed: Envtest) -> None:
    async with admin_client(installed, "refused") as client:
        for fields, path, message in REFUSED.values():
            with pytest.raises(Invalid) as refusal:
                await client.create(_database("refused", **fields))
            assert path in {cause.field for cause in refusal.value.causes}
            assert message in str(refusal.value)
        for name in ("9lives", "x" * 46, "dotted.name"):
            with pytest.raises(Invalid, match=r"metadata\.name must be"):
                await client.create(_database("refused", name))


CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "engine": ({"engine": "mysql"}, "the field is immutable"),
    "databaseName": ({"databaseName": "other"}, "databaseName is immutable"),
    "username": ({"username": "other"}, "username is immutable"),
    "shrink": ({"storageSize": "1023Mi"}, "storageSize cannot be lowered below"),
}


async def test_immutable_change_rejected_explicit_default_allowed(installed: Envtest) -> None:
    async with admin_client(installed, "changes") as client:
        database = await client.create(_database("changes"))
        for fields, message in CHANGES.values():
            with pytest.raises(Invalid, match=message):
                await client.patch(Database, database.key, MergePatch({"spec": fields}))
        same = {"databaseName": "orders", "username": "orders", "storageSize": "1024Mi"}
        await client.patch(Database, database.key, MergePatch({"spec": same}))
        grown = await client.patch(Database, database.key, MergePatch({"spec": {"storageSize": 2 * 1024**3}}))
        assert grown.spec.storage_size == Quantity("2Gi")


@pytest.mark.requirement("overview/single-purpose")
async def test_generated_role_is_sufficient(installed: Envtest) -> None:
    async with admin_client(installed, "roles") as client, running_operator(installed, "roles"), asyncio.timeout(60):
        made = (_database("roles"), _database("roles", "stock", engine="mysql", version="9.7"))
        for key in [(await client.create(database)).key for database in made]:
            await _until_reason(client, key, "ServerStarting")
            await _until_password(client, ObjectKey("roles", f"{key.name}-admin"))
            await client.delete(Database, key)
            await _until_gone(client, key)
        for kind in CLUSTER_KINDS:
            assert not (await client.list(kind, namespace="roles")).items


async def _until_reason(client: Client, key: ObjectKey, reason: str) -> None:
    while True:
        status = (await client.get(Database, key)).status
        if status.conditions:
            assert status.phase != "Failed", status.conditions[0].message
            if status.conditions[0].reason == reason:
                return
        await asyncio.sleep(0.05)


async def _until_password(client: Client, key: ObjectKey) -> None:
    while True:
        try:
            assert (await client.get(Secret, key)).data["password"]
        except NotFound:
            await asyncio.sleep(0.05)
        else:
            return


async def _until_gone(client: Client, key: ObjectKey) -> None:
    while True:
        try:
            await client.get(Database, key)
        except NotFound:
            return
        await asyncio.sleep(0.05)
