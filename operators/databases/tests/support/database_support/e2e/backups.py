"""Backups of clusters under test."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from devcluster.store import manifests

BACKUP: dict[str, Any] = {"storeRef": {"name": manifests.STORE}, "archive": {"interval": "5s"}}
"""``spec.backup`` with the object store of the devcluster."""


def request_backup(cluster: ClusterUnderTest, name: str, **spec: Any) -> None:
    """Create a ``Backup`` of a cluster."""
    reference = {"kind": cluster.engine.kind, "name": cluster.name}
    cluster.namespace_client.apply("Backup", name, {"clusterRef": reference, **spec})


def backup_status(cluster: ClusterUnderTest, name: str) -> dict[str, Any]:
    """Return the status of a ``Backup``. Empty before it has one."""
    return cluster.namespace_client.get("backup", name).get("status", {})


def final_backup_of(client: NamespaceClient, cluster: str) -> str:
    """Return the name of the completed final backup of a deleted cluster."""
    names = [each["metadata"]["name"] for each in client.all("backups")]
    (name,) = [name for name in names if name.startswith(f"{cluster}-final-")]
    assert client.get("backup", name)["status"]["trigger"] == "Final"
    assert client.condition("backup", name, "Complete")["reason"] == "Completed"
    return name


def wait_archived_after(cluster: ClusterUnderTest, moment: datetime) -> None:
    """Wait until the archive has a recovery point after a moment."""

    def covered() -> bool:
        last = cluster.status["backup"].get("lastRecoveryPoint")
        return last is not None and datetime.fromisoformat(last) > moment

    cluster.until(f"the archive covers {moment}", covered, 120)
