"""``kubectl steersman backup`` and ``kubectl steersman backups``."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from database_support.unit.backup_objects import backup_settings
from database_support.unit.plugin import GROUP, KEY, call, reached, server
from steersman.client import Client, MergePatch
from steersman.meta import to_builtins
from steersman_databases.api import Backup, PostgreSQLCluster
from steersman_databases.kubectl import waiting
from steersman_databases.kubectl.command import OperationRejected
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]


def declare_backups(server: InMemoryApiServer) -> None:
    body = {"spec": {"backup": to_builtins(backup_settings())}}
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body)))


def database(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "orders", "namespace": KEY.namespace}
    return {"apiVersion": f"{GROUP}/v1alpha1", "kind": "Database", "metadata": metadata, "spec": spec}


def external(**spec: Any) -> dict[str, Any]:
    reference = {"host": "db.example.com", "administrator": {"name": "root"}}
    return database(engine="postgresql", serverRef=reference, **spec)


def only_backup(server: InMemoryApiServer) -> Backup:
    (found,) = asyncio.run(Client(server).list(Backup, namespace=KEY.namespace)).items
    return found


async def set_status(server: InMemoryApiServer, backup: Backup, **status: Any) -> None:
    await Client(server).patch(Backup, backup.key, MergePatch({"status": status}), subresource="status")


def test_backup_of_a_cluster_is_created(server: InMemoryApiServer) -> None:
    declare_backups(server)
    result = call("backup", "shop", "-n", "prod", "--type", "Incremental", "--no-wait")
    created = only_backup(server)
    assert (result.exit_code, result.stdout) == (0, f"backup/{created.metadata.name} requested\n")
    assert created.spec.cluster_ref is not None and created.spec.cluster_ref.kind == "PostgreSQLCluster"
    assert (created.spec.cluster_ref.name, created.spec.type) == ("shop", "Incremental")


def test_dump_of_a_database_is_created(server: InMemoryApiServer) -> None:
    server.load(external(backup={"storeRef": {"name": "archive"}}))
    assert call("backup", "--database", "orders", "-n", "prod", "--no-wait").exit_code == 0
    created = only_backup(server)
    assert created.spec.database_ref is not None and created.spec.database_ref.name == "orders"


def test_source_without_backups_is_rejected(server: InMemoryApiServer) -> None:
    server.load(external())
    for arguments in (["shop"], ["--database", "orders"]):
        result = call("backup", *arguments, "-n", "prod", "--no-wait")
        assert result.exit_code == 1 and "has no spec.backup" in result.stderr
    assert not asyncio.run(Client(server).list(Backup, namespace=KEY.namespace)).items


def test_database_of_a_cluster_is_rejected(server: InMemoryApiServer) -> None:
    server.load(database(clusterRef={"name": "shop"}))
    result = call("backup", "--database", "orders", "-n", "prod", "--no-wait")
    assert result.exit_code == 1 and "back up its cluster shop" in result.stderr


@pytest.mark.parametrize(
    "arguments", [[], ["shop", "--database", "orders"], ["--database", "orders", "--type", "Incremental"]]
)
def test_ambiguous_arguments_are_rejected(server: InMemoryApiServer, arguments: list[str]) -> None:
    assert call("backup", *arguments, "-n", "prod", "--no-wait").exit_code == 2


def test_end_of_a_backup_is_awaited(server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0)
    declare_backups(server)
    assert call("backup", "shop", "-n", "prod", "--no-wait").exit_code == 0
    created = only_backup(server)

    async def awaited(**status: Any) -> Backup:
        task = asyncio.create_task(waiting.wait_until_completed(Client(server), created, 60))
        await set_status(server, created, **status)
        return await task

    found = asyncio.run(awaited(phase="Completed", backupId="20261120-100000F"))
    assert found.status.backup_id == "20261120-100000F"
    with pytest.raises(OperationRejected, match="failed: the store is full"):
        asyncio.run(awaited(phase="Failed", message="the store is full"))


def test_backup_that_takes_too_long_continues(server: InMemoryApiServer) -> None:
    declare_backups(server)
    result = call("backup", "shop", "-n", "prod", "--timeout", "0")
    assert result.exit_code == 1 and "has not completed within 0 s and continues" in result.stderr


def test_backups_are_listed_newest_first(server: InMemoryApiServer) -> None:
    assert "No backups found" in call("backups", "-n", "prod").stderr
    for name, cluster, stopped in (("a", "shop", "20"), ("b", "shop", "21"), ("c", "other", "22")):
        backup = {
            "apiVersion": f"{GROUP}/v1alpha1",
            "kind": "Backup",
            "metadata": {"name": name, "namespace": "prod"},
            "spec": {"clusterRef": {"name": cluster}},
        }
        server.load(backup)
        status = {"phase": "Completed", "stopTime": f"2026-11-{stopped}T10:00:00Z", "sizeBytes": 3 << 30}
        (created,) = [b for b in asyncio.run(Client(server).list(Backup)).items if b.metadata.name == name]
        asyncio.run(set_status(server, created, **status))
    rows = [line.split() for line in call("backups", "shop", "-n", "prod").stdout.splitlines()]
    assert [row[0] for row in rows] == ["NAME", "b", "a"]
    assert rows[1][1:5] == ["shop", "Full", "Completed", "2026-11-21"]
    listed = json.loads(call("backups", "-n", "prod", "-o", "json").stdout)
    assert [each["name"] for each in listed] == ["c", "b", "a"]
    assert listed[0]["sizeBytes"] == 3 << 30
