"""The operator's webhooks and the real API server, as users with rights of their own meet both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from database_support.servers.process import free_port
from steersman.client import Client, JsonPatch, MergePatch, connect
from steersman.errors import ApiError, Invalid
from steersman.manager import Manager, ManagerOptions
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, unstructured
from steersman.webhook.registry import VALIDATING_CONFIGURATION
from steersman_databases.api import Database, DatabaseSpec, DatabaseStatus, DatabaseUser, PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec, PostgreSQLSettings
from steersman_databases.api.references import AdministratorReference, ServerReference
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.main import WEBHOOKS
from steersman_databases.webhooks import setup_webhooks
from steersman_manifests.rbac import cluster_role
from steersman_testing.envtest import Envtest

CONFIGURATION = Path(__file__).parents[5] / "operators/databases/config/webhook/manifests.yaml"
OURS = {"apiGroups": ["databases.steersman.dev"], "resources": ["*"], "verbs": ["*"]}
READS = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["rds"], "verbs": ["get"]}


@pytest.fixture
def space(envtest: Envtest) -> Iterator[str]:
    """A namespace, on an API server that knows our kinds."""
    envtest.install_crds(Database, DatabaseUser, PostgreSQLCluster)
    with envtest.namespace("hooked") as name:
        yield name


@asynccontextmanager
async def operator(envtest: Envtest) -> AsyncGenerator[Manager]:
    """The webhooks, served by who may do no more than they need, as the shipped configuration has them asked."""
    given = envtest.webhooks
    serving = replace(
        WEBHOOKS, bind_address=f"{given.host}:{given.port}", cert_path=str(given.directory), drain_seconds=0
    )
    options = ManagerOptions(webhooks=serving, health_probe_bind_address=f"127.0.0.1:{free_port()}")
    async with connect(envtest.user("hooked-operator").config) as transport:
        manager = Manager(transport, options)
        setup_webhooks(manager, sql_engine_named)
        envtest.user("hooked-operator", rules=cluster_role("hooked", manager.permissions)["rules"])
        running = asyncio.create_task(manager.run())
        try:
            await asyncio.to_thread(envtest.install_webhooks, CONFIGURATION)
            yield manager
        finally:
            manager.stop()
            await running
            async with envtest.client() as client:
                await client.delete(
                    unstructured(VALIDATING_CONFIGURATION), ObjectKey("", WEBHOOKS.configuration_name)
                )


def database(space: str, **spec: object) -> Database:
    server = ServerReference(host="db.example.com", administrator=AdministratorReference(name="rds"))
    fields: dict[str, Any] = {"engine": "mysql", "server_ref": server, **spec}
    return Database(metadata=ObjectMeta(name="orders", namespace=space), spec=DatabaseSpec(**fields))


async def created(client: Client, obj: Database) -> None:
    """Creates it, as soon as the operator may ask about rights: that was allowed a moment ago."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.create(obj)
            except ApiError as error:
                assert "failed calling webhook" in str(error), error
                await asyncio.sleep(0.05)
            else:
                return


async def test_webhooks_answer_users(envtest: Envtest, space: str) -> None:
    rights = {"jane": [OURS], "ada": [OURS, READS]}
    users = [envtest.user(name, rules=rules, namespace=space) for name, rules in rights.items()]
    key = ObjectKey(space, "orders")
    async with operator(envtest) as manager, envtest.client(users[0]) as jane, envtest.client(users[1]) as ada:
        await created(ada, database(space))
        with pytest.raises(Invalid) as refused:
            await jane.create(database(space, database_name="sys"))
        first, second = refused.value.causes
        assert first.field == "spec.databaseName"
        assert second.field == "spec.serverRef.administrator"
        assert f'user "jane" may not get Secret rds in namespace {space}' in second.message

        # What was named before is nobody's question.
        await jane.patch(Database, key, MergePatch({"spec": {"deletionPolicy": "Delete"}}))
        other = {"serverRef": {"administrator": {"name": "other"}}}
        with pytest.raises(Invalid, match="may not get Secret other"):
            await ada.patch(Database, key, MergePatch({"spec": other}))
        settings = PostgreSQLSettings(pg_hba=("host all all all",), parameters=FrozenDict({"fsync": "off"}))
        cluster = PostgreSQLCluster(
            metadata=ObjectMeta(name="main", namespace=space), spec=PostgreSQLClusterSpec(postgresql=settings)
        )
        with pytest.raises(Invalid) as wrong:
            await jane.create(cluster)
        assert [c.field for c in wrong.value.causes] == [
            "spec.postgresql.parameters[fsync]",
            "spec.postgresql.pgHba[0]",
        ]

        manager.stop()
        await nobody_answers(ada, key)
        # Nothing new is declared now, and all else goes on.
        changed = {"metadata": {"finalizers": ["databases.steersman.dev/database"], "labels": {"a": "b"}}}
        await jane.patch(Database, key, MergePatch(changed))
        await jane.apply_status(await jane.get(Database, key), DatabaseStatus(phase="Pending"))
        await jane.delete(Database, key)
        await jane.patch(Database, key, JsonPatch([{"op": "remove", "path": "/metadata/finalizers"}]))
        assert not (await jane.list(Database, namespace=space)).items


async def nobody_answers(client: Client, key: ObjectKey) -> None:
    """Until a new declaration is refused because the operator is away."""
    async with asyncio.timeout(20):
        while True:
            try:
                await client.patch(Database, key, MergePatch({"spec": {"adopt": True}}), dry_run=True)
            except ApiError as error:
                if "failed calling webhook" in str(error):
                    return
            await asyncio.sleep(0.05)
