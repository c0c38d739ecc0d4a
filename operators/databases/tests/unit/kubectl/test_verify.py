"""``kubectl steersman verify`` and the column of ``kubectl steersman backups``."""

from __future__ import annotations

import asyncio
from typing import Any

from database_support.unit.plugin import call, reached, server
from steersman.client import Client, MergePatch
from steersman.meta import ObjectKey
from steersman_databases.api import Backup
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]
KEY = ObjectKey("prod", "b")


def load(server: InMemoryApiServer, phase: str, *conditions: dict[str, str]) -> None:
    """Put a backup into the server."""
    server.load(
        {
            "apiVersion": "databases.steersman.dev/v1alpha1",
            "kind": "Backup",
            "metadata": {"name": "b", "namespace": "prod"},
            "spec": {"clusterRef": {"name": "shop"}},
        }
    )
    status = MergePatch({"status": {"phase": phase, "conditions": list(conditions)}})
    asyncio.run(Client(server).patch(Backup, KEY, status, subresource="status"))


def annotations_of(server: InMemoryApiServer) -> dict[str, Any]:
    found = asyncio.run(Client(server).get(Backup, KEY))
    return dict(found.metadata.annotations)


def test_verify_requests_a_verification(server: InMemoryApiServer) -> None:
    load(
        server,
        "Completed",
        {
            "type": "Verified",
            "status": "Unknown",
            "reason": "NeverVerified",
            "lastTransitionTime": "2026-11-20T10:00:00Z",
        },
    )
    result = call("verify", "b", "-n", "prod", "--no-wait")
    assert (result.exit_code, result.stdout) == (0, "backup/b verification requested\n")
    assert annotations_of(server)["databases.steersman.dev/verify"]
    assert "NeverVerified" in call("backups", "-n", "prod").stdout


def test_verify_refuses_an_incomplete_backup(server: InMemoryApiServer) -> None:
    load(server, "Running")
    result = call("verify", "b", "-n", "prod", "--no-wait")
    assert result.exit_code == 1 and "is not completed" in result.stderr
    assert annotations_of(server) == {}
