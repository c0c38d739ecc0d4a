"""Outcome of one reconcile of a cluster."""

from __future__ import annotations

from dataclasses import dataclass, field

from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.sizing import SizingStatus
from steersman_databases.api.autopilot.tuning import TuningStatus
from steersman_databases.api.backups.backup_common import ClusterBackupStatus
from steersman_databases.api.cluster_common import ClusterPhase
from steersman_databases.api.read_replicas import ReadReplicasStatus
from steersman_databases.cluster.executor import Snapshot
from steersman_databases.cluster.state import ClusterState, has_data, served_identity
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.automation import AutomationReport
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.outcome import RESYNC_SECONDS
from steersman_databases.features.certificates.stage import (
    ClusterData,
)
from steersman_databases.features.maintenance.model import Maintenance

# Not every change that matters is a watch event of an object, so a cluster in progress is reconciled soon again.
REQUEUE_WHILE_PROGRESSING_SECONDS = 2.0


@dataclass(slots=True)
class ReconcileResult:
    """Outcome of one reconcile. ``finalized``: the object is gone and has no status."""

    conditions: ConditionSet
    context: ClusterContext | None = None
    state: ClusterState | None = None
    operator_image: str = ""
    phase: ClusterPhase | None = None
    switchover_refusal: str = ""
    progressing: bool = False
    awaiting_reload: bool = False
    finalized: bool = False
    backup: ClusterBackupStatus | None = None
    backup_observed: bool = False
    sizing: SizingStatus | None = None
    maintenance: Maintenance = field(default_factory=Maintenance)
    automation: AutomationReport = field(default_factory=AutomationReport)
    growth_announced: bool = False
    tuning: TuningStatus | None = None
    tuning_observed: bool = False
    read_replicas: ReadReplicasStatus | None = None
    read_replicas_observed: bool = False

    @property
    def retry_after(self) -> float:
        soon = self.progressing or self.awaiting_reload or self.growth_announced
        return REQUEUE_WHILE_PROGRESSING_SECONDS if soon else RESYNC_SECONDS


def was_provisioned(cluster: Cluster) -> bool:
    """Return True if a server of the cluster has run before."""
    return bool(cluster.status.version)


def data_state_of(cluster: Cluster, snapshot: Snapshot) -> ClusterData:
    """State of the PVCs, for Secrets that live with the data."""
    # Between a major upgrade and the new server's first start the members report no system identifier.
    initialized = snapshot.state.members.is_initialized or was_provisioned(cluster)
    return ClusterData(
        pvcs=snapshot.pvcs_in_use,
        pvcs_present=snapshot.pvcs,
        is_initialized=initialized,
        identity=served_identity(snapshot.state),
        is_new=not any(map(has_data, snapshot.state.instances)),
    )
