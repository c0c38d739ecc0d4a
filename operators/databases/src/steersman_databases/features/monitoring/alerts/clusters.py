"""Alerts about clusters by the operator's metrics, and about the operator itself."""

from __future__ import annotations

from functools import partial

from .model import Alert

_CLUSTER = "{{ $labels.namespace }}/{{ $labels.dbcluster }}"
_alert = partial(Alert, group="clusters")

ALERTS = (
    _alert(
        name="DatabaseClusterNotReady",
        expression='steersman_cluster_phase{phase=~"Degraded|Failed"} == 1',
        minutes=30,
        severity="warning",
        summary=f"Cluster {_CLUSTER} is {{{{ $labels.phase }}}}.",
        action=("Read its conditions, which name the cause: kubectl steersman status CLUSTER.",),
    ),
    _alert(
        name="DatabaseWritesRejected",
        expression='steersman_cluster_condition{type="Available",reason="WritesRejected"} == 0',
        minutes=1,
        severity="critical",
        summary=f"The primary of cluster {_CLUSTER} serves, and accepts no writes.",
        action=(
            "Read the condition Available, which has the server's error: kubectl steersman status CLUSTER.",
            "Remove the cause: see A primary that accepts no writes, on the page Recover from failures.",
        ),
    ),
    _alert(
        name="DatabaseInstancesMissing",
        expression="steersman_cluster_ready_instances < steersman_cluster_instances",
        minutes=30,
        severity="warning",
        summary=f"Only {{{{ $value }}}} instances of cluster {_CLUSTER} are ready.",
        action=("Read its members and conditions: kubectl steersman status CLUSTER.",),
    ),
    _alert(
        name="DatabaseBackupTooOld",
        expression='steersman_cluster_condition{type="BackedUp"} == 0',
        minutes=15,
        severity="critical",
        summary=f"Cluster {_CLUSTER} has no recent backup: {{{{ $labels.reason }}}}.",
        action=("Read the condition BackedUp, and the failed Backup: kubectl get backups.",),
    ),
    _alert(
        name="DatabaseBackupVerificationFailed",
        expression='steersman_cluster_condition{type="BackupsVerified"} == 0',
        minutes=15,
        severity="critical",
        summary=f"The backups of cluster {_CLUSTER} are not verified: {{{{ $labels.reason }}}}.",
        action=(
            "Read the condition Verified of the Backup, which names what is damaged or missing: kubectl get backups.",
            "Take a full backup and verify it: kubectl steersman backup CLUSTER, kubectl steersman verify BACKUP.",
            "Find out why the object store lost or changed an object before you rely on it again.",
        ),
    ),
    _alert(
        name="DatabaseArchivingFails",
        expression='steersman_cluster_condition{type="ContinuousArchiving"} == 0',
        minutes=15,
        severity="critical",
        summary=f"Cluster {_CLUSTER} does not archive: {{{{ $labels.reason }}}}.",
        action=("Read the condition ContinuousArchiving, and check the BackupStore.",),
    ),
    _alert(
        name="DatabaseVolumeCannotGrow",
        expression="""
            steersman_cluster_condition{
                type="AutogrowReady",
                reason=~"AtMaxSize|FillsTooFast|NotExpandable|QuotaExceeded|ResizeIncomplete|WALRetained"} == 0
        """,
        minutes=5,
        severity="warning",
        summary=f"A volume of cluster {_CLUSTER} cannot grow: {{{{ $labels.reason }}}}.",
        action=("Read the condition AutogrowReady, which names the volume and the cause.",),
    ),
    _alert(
        name="DatabaseOperatorMissing",
        expression='absent(leader_election_master_status{name=~"steersman-databases.*"} == 1)',
        minutes=10,
        severity="warning",
        summary="No database operator is the leader. Databases work, but nothing repairs or changes them.",
        action=("Read the logs of the Deployment steersman-databases in its namespace.",),
        about_cluster=False,
    ),
    _alert(
        name="DatabaseReconcileFails",
        expression="""
            increase(controller_runtime_reconcile_errors_total{
                controller=~"postgresqlcluster|mysqlcluster"}[15m]) > 10
        """,
        minutes=15,
        severity="warning",
        summary="The database operator fails to reconcile {{ $labels.controller }}.",
        action=("Read the logs of the operator for the error.",),
        about_cluster=False,
    ),
)
