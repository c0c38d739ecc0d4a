"""The operator against the real API server: its CRD is taken, its rules hold, its generated role suffices."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from steersman.api.core_v1 import Secret
from steersman.client import Client, HttpRequest, MergePatch, Transport, connect
from steersman.errors import Invalid, NotFound
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, Quantity, encode
from steersman.observability.runtime import Runtime
from steersman.testing.envtest import Envtest
from steersman_databases.api import Database, DatabaseSpec, DatabaseUser, PostgreSQLCluster
from steersman_databases.controllers import setup
from steersman_databases.main import NAME

USER = "the-operator"
KINDS = ("databases", "databaseusers", "postgresqlclusters")
CONFIG = Path(__file__).parents[4] / "operators/databases/config"


@pytest.fixture(scope="module")
def installed(envtest: Envtest) -> Envtest:
    """An API server with the CRD, and the generated role bound to a user who may do nothing else."""

    async def install() -> None:
        async with connect(envtest.config) as transport:
            for manifest in (*_generated(), _binding("Cluster"), _binding()):
                await _apply(transport, manifest)
            client = Client(transport)
            async with asyncio.timeout(30):
                while not await _serves(client):
                    await asyncio.sleep(0.05)

    asyncio.run(install())
    return envtest


def _generated() -> Iterator[dict[str, Any]]:
    for path in (
        *(f"crd/bases/databases.steersman.dev_{kind}.yaml" for kind in KINDS),
        "rbac/role.yaml",
        "rbac/leader_election_role.yaml",
    ):
        manifest: dict[str, Any] = yaml.safe_load((CONFIG / path).read_text())
        if manifest["kind"] == "Role":
            manifest["metadata"]["namespace"] = "default"
        yield manifest


def _binding(scope: str = "") -> dict[str, Any]:
    """Of the operator's ClusterRole (``Cluster``), or of its Role of leader election."""
    name = "steersman-databases-manager-role" if scope else "steersman-databases-leader-election"
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": f"{scope}RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": f"{scope}Role", "name": name},
        "subjects": [{"kind": "User", "name": USER}],
    }


async def _apply(transport: Transport, manifest: dict[str, Any]) -> None:
    group, _, version = manifest["apiVersion"].rpartition("/")
    plural = f"{manifest['kind'].lower()}s"
    scope = "/namespaces/default" if manifest["kind"] in ("Role", "RoleBinding") else ""
    path = f"/apis/{group}/{version}{scope}/{plural}/{manifest['metadata']['name']}"
    request = HttpRequest(
        method="PATCH",
        path=path,
        query={"fieldManager": "test", "force": "true", "fieldValidation": "Strict"},
        body=yaml.safe_dump(manifest).encode(),
        content_type="application/apply-patch+yaml",
    )
    response = await transport.request(request)
    assert response.status < 300, response.body


async def _serves(client: Client) -> bool:
    try:
        for kind in (Database, DatabaseUser, PostgreSQLCluster):
            await client.list(kind)
    except NotFound:
        return False
    return True


@asynccontextmanager
async def _client(environment: Envtest, namespace: str) -> AsyncGenerator[Client]:
    """An administrator's client, and a fresh namespace."""
    async with connect(environment.config) as transport:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        request = HttpRequest(method="POST", path="/api/v1/namespaces", body=encode(body))
        response = await transport.request(request)
        assert response.status == 201, response.body
        yield Client(transport, field_manager="test")


def _database(namespace: str, name: str = "orders", **spec: Any) -> Database:
    fields: dict[str, Any] = {"engine": "postgresql", "version": "17", "storage_size": Quantity("1Gi"), **spec}
    return Database(metadata=ObjectMeta(name=name, namespace=namespace), spec=DatabaseSpec(**fields))


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "engine": ({"engine": "oracle"}, "spec.engine", "Unsupported value"),
    "size": ({"storage_size": "lots"}, "spec.storageSize", "should match"),
    "zero": ({"storage_size": Quantity(0)}, "spec.storageSize", "must be more than 0"),
    "policy": ({"deletion_policy": "Maybe"}, "spec.deletionPolicy", "Unsupported value"),
    "empty-version": ({"version": ""}, "spec.version", "at least 1"),
    "long-name": ({"database_name": "x" * 65}, "spec.databaseName", "64"),
}


async def test_wrong_specs_are_refused_with_field_and_message(installed: Envtest) -> None:
    async with _client(installed, "refused") as client:
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
    "shrink": ({"storageSize": "1023Mi"}, "storageSize can grow but never shrink"),
}


async def test_what_may_not_change_is_refused_and_a_written_default_is_no_change(installed: Envtest) -> None:
    async with _client(installed, "changes") as client:
        database = await client.create(_database("changes"))
        for fields, message in CHANGES.values():
            with pytest.raises(Invalid, match=message):
                await client.patch(Database, database.key, MergePatch({"spec": fields}))
        same = {"databaseName": "orders", "username": "orders", "storageSize": "1024Mi"}
        await client.patch(Database, database.key, MergePatch({"spec": same}))
        grown = await client.patch(Database, database.key, MergePatch({"spec": {"storageSize": 2 * 1024**3}}))
        assert grown.spec.storage_size == Quantity("2Gi")


async def test_the_generated_role_is_all_that_the_operator_needs(installed: Envtest) -> None:
    async with (
        _client(installed, "roles") as client,
        connect(installed.user(USER).config) as transport,
        asyncio.timeout(60),
    ):
        options = ManagerOptions(
            name=NAME,
            namespaces=("roles",),
            leader_election=LeaderElection(name=NAME, namespace="default"),
        )
        manager = Manager(transport, options, Runtime())
        setup(manager)
        running = asyncio.create_task(manager.run())
        try:
            made = (_database("roles"), _database("roles", "stock", engine="mysql", version="9.7"))
            for key in [(await client.create(database)).key for database in made]:
                await _until_reason(client, key, "ServerStarting")
                await _until_password(client, ObjectKey("roles", f"{key.name}-admin"))
                await client.delete(Database, key)
                await _until_gone(client, key)
            assert not (await client.list(PostgreSQLCluster, namespace="roles")).items
        finally:
            manager.stop()
            await running


async def _until_reason(client: Client, key: ObjectKey, reason: str) -> None:
    while True:
        status = (await client.get(Database, key)).status
        if status is not None and status.conditions:
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
