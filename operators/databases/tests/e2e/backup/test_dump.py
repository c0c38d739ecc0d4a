"""Dumps of a database on a server of ``serverRef``: on demand, before it is dropped, and restored there again."""

from __future__ import annotations

import pytest

from database_support.e2e.backups import final_backup_of
from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.engines import EACH_ENGINE
from database_support.e2e.external_server import ExternalServer
from devcluster.store import ObjectStore, manifests

pytestmark = [pytest.mark.xdist_group("dump"), pytest.mark.timeout(1200), EACH_ENGINE]

BACKUP = {"storeRef": {"name": manifests.STORE}}


def test_dropped_database_is_restored_from_its_final_dump(
    shared: NamespaceClient, store: ObjectStore, server: ExternalServer
) -> None:
    reference = server.server_ref()
    shared.apply("Database", "shop", {**reference, "deletionPolicy": "Delete", "backup": BACKUP})
    shared.wait_reason("database", "shop", "DatabaseReady", seconds=120)
    login = shared.secret("shop-app")
    server.query_as(login, "CREATE TABLE sold (number INT PRIMARY KEY)")
    server.query_as(login, "INSERT INTO sold VALUES (41)")

    shared.apply("Backup", "before-release", {"databaseRef": {"name": "shop"}})
    shared.until("the dump is complete", lambda: _phase(shared, "before-release") == "Completed", 300)

    server.query_as(login, "INSERT INTO sold VALUES (42)")
    shared.kubectl("delete", "database", "shop", "--timeout=300s", seconds=310)
    final = final_backup_of(shared, "shop")

    for name, source, last in (("released", "before-release", "41"), ("returned", final, "42")):
        recovery = {"recovery": {"backup": {"name": source}}}
        shared.apply("Database", name, {**reference, "deletionPolicy": "Delete", "bootstrap": recovery})
        shared.wait_reason("database", name, "DatabaseReady", seconds=300)
        assert shared.condition("database", name, "Recovered")["status"] == "True"
        assert server.query_as(shared.secret(f"{name}-app"), "SELECT MAX(number) FROM sold") == last


def _phase(client: NamespaceClient, name: str) -> str | None:
    return client.get("backup", name).get("status", {}).get("phase")
