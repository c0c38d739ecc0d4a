"""Metrics that the controllers of clusters report."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry

from steersman_databases.features.backup.metrics import BackupMetrics, backup_metrics
from steersman_databases.features.monitoring.cluster_metrics import ClusterMetrics, cluster_metrics


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """Metrics of a manager, shared by the controllers of clusters."""

    clusters: ClusterMetrics
    backups: BackupMetrics

    @classmethod
    def of(cls, registry: CollectorRegistry) -> ControllerMetrics:
        """Return the metrics in ``registry``, the same ones in each call."""
        return cls(cluster_metrics(registry), backup_metrics(registry))
