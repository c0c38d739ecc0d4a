"""``kubectl steersman clone``."""

from __future__ import annotations

import asyncio

import yaml

from database_support.unit.backup_objects import backup_settings
from database_support.unit.plugin import KEY, call, reached, server
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey, to_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]


def declare_backups(server: InMemoryApiServer) -> None:
    body = {"spec": {"backup": to_builtins(backup_settings())}}
    asyncio.run(Client(server).patch(PostgreSQLCluster, KEY, MergePatch(body)))


def test_clone_prints_manifest_with_target(server: InMemoryApiServer) -> None:
    declare_backups(server)
    result = call("clone", "shop", "copy", "-n", "prod", "--at", "2026-03-01T12:30:00Z")
    manifest = yaml.safe_load(result.stdout)
    assert manifest["metadata"] == {"name": "copy", "namespace": "prod"}
    assert manifest["spec"]["bootstrap"] == {
        "recovery": {"cluster": {"name": "shop"}, "target": {"time": "2026-03-01T12:30:00Z"}}
    }
    assert "backup" not in manifest["spec"]


def test_clone_creates_cluster_in_other_namespace(server: InMemoryApiServer) -> None:
    declare_backups(server)
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "test"}})
    assert call("clone", "shop", "copy", "-n", "test", "--from-namespace", "prod", "--create").exit_code == 0
    created = asyncio.run(Client(server).get(PostgreSQLCluster, ObjectKey("test", "copy")))
    assert created.spec.bootstrap is not None and created.spec.bootstrap.recovery is not None
    source = created.spec.bootstrap.recovery.cluster
    assert source is not None and (source.name, source.namespace) == ("shop", "prod")


def test_clone_refuses_time_without_zone_and_source_without_archive(server: InMemoryApiServer) -> None:
    assert call("clone", "shop", "copy", "-n", "prod", "--at", "2026-03-01T12:30:00").exit_code == 2
    assert "spec.backup" in call("clone", "shop", "copy", "-n", "prod").stderr
