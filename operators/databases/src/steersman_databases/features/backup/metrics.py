"""Metrics of backups, by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Gauge

from steersman.meta import ObjectKey
from steersman_databases.api.backup_common import ClusterBackupStatus
from steersman_databases.features.backup.model import FinishedBackup

_LABELS = ["namespace", "cluster"]


class BackupMetrics:
    """Gauges of the backups of all clusters. One for a registry: see `backup_metrics`."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(f"steersman_backup_{name}", documentation, [*_LABELS, *labels], registry=registry)

        self._last_success = gauge(
            "last_success_timestamp_seconds", "End of the last completed backup, by type.", "type"
        )
        self._first_point = gauge(
            "first_recovery_point_timestamp_seconds", "Earliest moment of a point-in-time recovery."
        )
        self._last_point = gauge(
            "last_recovery_point_timestamp_seconds", "Latest moment of a point-in-time recovery."
        )
        self._stored = gauge("stored_bytes", "Size of all backups in the object store.")

    def update(self, cluster: ObjectKey, completed: Sequence[FinishedBackup], status: ClusterBackupStatus) -> None:
        """Set the gauges of a cluster.

        Args:
            completed: its completed backups, the oldest first.
        """
        labels = (cluster.namespace, cluster.name)
        for backup in completed:
            self._last_success.labels(*labels, backup.type).set(backup.stop.timestamp())
        points = ((self._first_point, status.first_recovery_point), (self._last_point, status.last_recovery_point))
        for gauge, time in points:
            if time is not None:
                gauge.labels(*labels).set(time.timestamp())
        if status.stored_bytes is not None:
            self._stored.labels(*labels).set(status.stored_bytes)

    def forget(self, cluster: ObjectKey) -> None:
        """Remove the gauges of a cluster without backups."""
        labels = {"namespace": cluster.namespace, "cluster": cluster.name}
        for gauge in (self._last_success, self._first_point, self._last_point, self._stored):
            gauge.remove_by_labels(labels)


@cache
def backup_metrics(registry: CollectorRegistry) -> BackupMetrics:
    """The gauges in ``registry``: controllers of both engines share them."""
    return BackupMetrics(registry)
