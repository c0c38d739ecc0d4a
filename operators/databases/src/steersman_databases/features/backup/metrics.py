"""Metrics of backups, by cluster."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from prometheus_client import CollectorRegistry, Gauge

from steersman.meta import ObjectKey
from steersman_databases.api.backups.backup import BackupVerificationStatus
from steersman_databases.api.backups.backup_common import ClusterBackupStatus, VerificationSummary
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
        self._verified = gauge("verified_timestamp_seconds", "End of the last successful verification.")
        self._verification = gauge(
            "verification_seconds", "Duration of the last successful verification, by phase.", "phase"
        )
        self._data_loss = gauge(
            "verification_data_loss_seconds", "Age of the last restored commit at the start of the verification."
        )
        self._stored = gauge("stored_bytes", "Size of all backups in the object store.")
        points = (self._first_point, self._last_point)
        verification = (self._verified, self._verification, self._data_loss)
        self._gauges = (self._last_success, self._stored, *points, *verification)

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

    def update_verification(
        self, cluster: ObjectKey, success: VerificationSummary | None, figures: BackupVerificationStatus | None
    ) -> None:
        """Set the gauges of the last successful verification of a cluster.

        Args:
            figures: None if its ``Backup`` no longer exists.
        """
        labels = (cluster.namespace, cluster.name)
        if success is not None:
            self._verified.labels(*labels).set(success.time.timestamp())
        if success is not None and success.data_loss_seconds is not None:
            self._data_loss.labels(*labels).set(success.data_loss_seconds)
        if figures is None:
            return
        phases = (
            ("Restore", figures.restore_seconds),
            ("Replay", figures.replay_seconds),
            ("Check", figures.check_seconds),
        )
        for phase, seconds in phases:
            if seconds is not None:
                self._verification.labels(*labels, phase).set(seconds)

    def forget(self, cluster: ObjectKey) -> None:
        """Remove the gauges of a cluster without backups."""
        labels = {"namespace": cluster.namespace, "cluster": cluster.name}
        for gauge in self._gauges:
            gauge.remove_by_labels(labels)


@cache
def backup_metrics(registry: CollectorRegistry) -> BackupMetrics:
    """The gauges in ``registry``: controllers of both engines share them."""
    return BackupMetrics(registry)
