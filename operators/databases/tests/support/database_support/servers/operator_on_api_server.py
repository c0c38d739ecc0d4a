"""The operator on the real API server, with no more rights than its generated role gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from steersman.client import Client, HttpRequest, Transport, connect
from steersman.errors import NotFound
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import encode
from steersman.observability.runtime import Runtime
from steersman_databases.api import (
    Backup,
    BackupStore,
    Database,
    DatabaseUser,
    MySQLCluster,
    PostgreSQLCluster,
    Restore,
)
from steersman_databases.main import NAME
from steersman_databases.setup import setup
from steersman_testing.envtest import Envtest

USER = "the-operator"
KINDS = ("backups", "backupstores", "databases", "databaseusers", "mysqlclusters", "postgresqlclusters", "restores")
CONFIG = Path(__file__).parents[6] / "operators/databases/config"


async def install(envtest: Envtest) -> None:
    """Give an API server the kinds, and the generated role, bound to a user who may do nothing else."""
    async with connect(envtest.config) as transport:
        for manifest in (*_generated(), _binding("Cluster"), _binding()):
            await _apply(transport, manifest)
        client = Client(transport)
        async with asyncio.timeout(30):
            while not await _serves(client):
                await asyncio.sleep(0.05)


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
        for kind in (Backup, BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster, Restore):
            await client.list(kind)
    except NotFound:
        return False
    return True


@asynccontextmanager
async def admin_client(environment: Envtest, namespace: str) -> AsyncGenerator[Client]:
    """An administrator's client, and a fresh namespace."""
    async with connect(environment.config) as transport:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        request = HttpRequest(method="POST", path="/api/v1/namespaces", body=encode(body))
        response = await transport.request(request)
        assert response.status == 201, response.body
        yield Client(transport, field_manager="test")


@asynccontextmanager
async def running_operator(environment: Envtest, namespace: str) -> AsyncGenerator[Manager]:
    """The operator for one namespace, as that user."""
    async with connect(environment.user(USER).config) as transport:
        options = ManagerOptions(
            name=NAME,
            namespaces=(namespace,),
            leader_election=LeaderElection(name=NAME, namespace="default"),
        )
        manager = Manager(transport, options, Runtime())
        setup(manager)
        running = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await running
