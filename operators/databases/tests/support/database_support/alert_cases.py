"""Series that make each alert fire, and the same series without the fault."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

POD = 'namespace="shop",dbcluster="orders",pod="orders-0-0"'
REPLICA = 'namespace="shop",dbcluster="orders",pod="orders-1-0"'
CLUSTER = 'namespace="shop",dbcluster="orders"'
DAY = 86400


@dataclass(frozen=True, kw_only=True)
class AlertCase:
    """Values of an alert's case, each minute, in the notation of promtool.

    Args:
        fault: series that make it fire.
        quiet: the same series as they are without the fault.
        after: minutes after which it must fire.
        labels: labels of the firing alert, without its name and severity.
    """

    fault: Mapping[str, str]
    quiet: Mapping[str, str]
    after: int
    labels: str = POD
    always: Mapping[str, str] = field(default_factory=dict[str, str])


def threshold(
    metric: str, fault: float, quiet: float, after: int, more: str = "", always: Mapping[str, str] | None = None
) -> AlertCase:
    """Return the case of an alert on one series of a pod."""
    labels = f"{POD},{more}" if more else POD
    series = f"{metric}{{{labels}}}"
    constant = {"fault": f"{fault}x800", "quiet": f"{quiet}x800"}
    return AlertCase(
        fault={series: constant["fault"]},
        quiet={series: constant["quiet"]},
        after=after,
        labels=labels,
        always=always or {},
    )


def _pods(metric: str, first: float, second: float) -> dict[str, str]:
    return {f"{metric}{{{POD}}}": f"{first}x800", f"{metric}{{{REPLICA}}}": f"{second}x800"}


def _volume(available: str) -> dict[str, str]:
    labels = f'{POD},volume="data"'
    return {
        f"steersman_volume_available_bytes{{{labels}}}": available,
        f"steersman_volume_size_bytes{{{labels}}}": "1000000x800",
    }


def _no_primary(engine: str) -> AlertCase:
    ups = _pods(f"steersman_{engine}_up", 1, 1)
    primaries = f"steersman_{engine}_is_primary"
    return AlertCase(fault=_pods(primaries, 0, 0), quiet=_pods(primaries, 1, 0), after=2, labels=CLUSTER, always=ups)


_DATA = f'{POD},volume="data"'
_P, _M = "steersman_postgresql", "steersman_mysql"
CASES: Mapping[str, AlertCase] = {
    "DatabaseInstanceDown": threshold(f"{_M}_up", 0, 1, 3),
    "DatabaseMetricsMissing": threshold("up", 0, 1, 6),
    "DatabaseCollectorFails": threshold(
        "steersman_exporter_collector_success", 0, 1, 11, 'collector="tables"', {f"{_P}_up{{{POD}}}": "1x800"}
    ),
    "DatabaseSeriesDropped": threshold("steersman_exporter_dropped_series", 5, 0, 31),
    "VolumeFillsUp": AlertCase(
        fault=_volume("480000-200x800"), quiet=_volume("480000-1x800"), after=420, labels=_DATA
    ),
    "VolumeAlmostFull": AlertCase(fault=_volume("90000x800"), quiet=_volume("110000x800"), after=6, labels=_DATA),
    "VolumeFull": AlertCase(fault=_volume("20000x800"), quiet=_volume("40000x800"), after=2, labels=_DATA),
    "CertificateExpires": threshold(
        "steersman_certificate_not_after_timestamp_seconds", 6 * DAY, 30 * DAY, 61, 'certificate="server"'
    ),
    "PostgreSQLNoPrimary": _no_primary("postgresql"),
    "PostgreSQLTwoPrimaries": AlertCase(
        fault=_pods(f"{_P}_is_primary", 1, 1), quiet=_pods(f"{_P}_is_primary", 1, 0), after=2, labels=CLUSTER
    ),
    "PostgreSQLReplicaNotStreaming": threshold(f"{_P}_wal_receiver_streaming", 0, 1, 6),
    "PostgreSQLReplicationLag": threshold(f"{_P}_replay_lag_seconds", 61, 2, 6),
    "PostgreSQLNoSynchronousReplica": AlertCase(
        fault={f'{_P}_replica_synchronous{{{POD},replica="orders-1-0"}}': "0x800"},
        quiet={f'{_P}_replica_synchronous{{{POD},replica="orders-1-0"}}': "1x800"},
        after=3,
        always={f"{_P}_synchronous_replication{{{POD}}}": "1x800", f"{_P}_is_primary{{{POD}}}": "1x800"},
    ),
    "PostgreSQLSlotRunsOut": threshold(
        f"{_P}_slot_safe_bytes",
        10,
        90,
        6,
        'slot="orders_1_0"',
        {f'{_P}_slot_retained_bytes{{{POD},slot="orders_1_0"}}': "90x800"},
    ),
    "PostgreSQLSlotLost": threshold(f"{_P}_slot_lost", 1, 0, 2, 'slot="orders_1_0"'),
    "PostgreSQLConnectionsRunOut": threshold(
        f"{_P}_connections", 95, 10, 6, "", {f"{_P}_max_connections{{{POD}}}": "100x800"}
    ),
    "PostgreSQLLongTransaction": threshold(f"{_P}_longest_transaction_seconds", 4000, 3, 6),
    "PostgreSQLLocksWait": threshold(f"{_P}_longest_lock_wait_seconds", 130, 0, 3),
    "PostgreSQLWraparoundApproaches": threshold(f"{_P}_transaction_id_age", 1.1e9, 2.1e8, 16),
    "PostgreSQLCleanupBlocked": threshold(f"{_P}_xmin_age", 2e7, 100, 61, 'holder="slot"'),
    "PostgreSQLDataCorrupted": AlertCase(
        fault={f'{_P}_database_checksum_failures_total{{{POD},database="shop"}}': "0x10 1x700"},
        quiet={f'{_P}_database_checksum_failures_total{{{POD},database="shop"}}': "0x800"},
        after=12,
        labels=f'{POD},database="shop"',
    ),
    "PostgreSQLArchivingFails": threshold(
        f"{_P}_last_archive_failure_timestamp_seconds",
        2000,
        10,
        11,
        "",
        {f"{_P}_last_archive_timestamp_seconds{{{POD}}}": "1000x800"},
    ),
    "PostgreSQLApiServerUnreachable": threshold("steersman_patroni_failsafe", 1, 0, 6),
    "PostgreSQLUnmanaged": threshold("steersman_patroni_paused", 1, 0, 61),
    "MySQLNoPrimary": _no_primary("mysql"),
    "MySQLQuorumLost": threshold(
        f"{_M}_group_members_reachable", 1, 3, 2, "", {f"{_M}_group_members{{{POD}}}": "3x800"}
    ),
    "MySQLMemberOffline": threshold(f"{_M}_member_state", 0, 1, 6, 'state="Online"'),
    "MySQLErrantTransactions": threshold(f"{_M}_errant", 1, 0, 2),
    "MySQLReplicationLag": threshold(f"{_M}_apply_lag_seconds", 61, 0, 6),
    "MySQLConnectionsRunOut": threshold(
        f"{_M}_connections", 95, 10, 6, "", {f"{_M}_max_connections{{{POD}}}": "100x800"}
    ),
    "MySQLLongTransaction": threshold(f"{_M}_longest_transaction_seconds", 4000, 3, 6),
    "MySQLLocksWait": threshold(f"{_M}_longest_lock_wait_seconds", 40, 0, 3),
    "MySQLPurgeDelayed": threshold(f"{_M}_undo_history_length", 2e6, 100, 61),
    "DatabaseClusterNotReady": AlertCase(
        fault={f'steersman_cluster_phase{{{CLUSTER},phase="Degraded"}}': "1x800"},
        quiet={f'steersman_cluster_phase{{{CLUSTER},phase="Degraded"}}': "0x800"},
        after=31,
        labels=f'{CLUSTER},phase="Degraded"',
    ),
    "DatabaseInstancesMissing": AlertCase(
        fault={f"steersman_cluster_ready_instances{{{CLUSTER}}}": "2x800"},
        quiet={f"steersman_cluster_ready_instances{{{CLUSTER}}}": "3x800"},
        after=31,
        labels=CLUSTER,
        always={f"steersman_cluster_instances{{{CLUSTER}}}": "3x800"},
    ),
    "DatabaseBackupTooOld": AlertCase(
        fault={f'steersman_cluster_condition{{{CLUSTER},type="BackedUp",reason="Overdue"}}': "0x800"},
        quiet={f'steersman_cluster_condition{{{CLUSTER},type="BackedUp",reason="UpToDate"}}': "1x800"},
        after=16,
        labels=f'{CLUSTER},type="BackedUp",reason="Overdue"',
    ),
    "DatabaseBackupVerificationFailed": AlertCase(
        fault={
            f'steersman_cluster_condition{{{CLUSTER},type="BackupsVerified",reason="VerificationFailed"}}': "0x800"
        },
        quiet={f'steersman_cluster_condition{{{CLUSTER},type="BackupsVerified",reason="Verified"}}': "1x800"},
        after=16,
        labels=f'{CLUSTER},type="BackupsVerified",reason="VerificationFailed"',
    ),
    "DatabaseWritesRejected": AlertCase(
        fault={f'steersman_cluster_condition{{{CLUSTER},type="Available",reason="WritesRejected"}}': "0x800"},
        quiet={f'steersman_cluster_condition{{{CLUSTER},type="Available",reason="FailingOver"}}': "0x800"},
        after=2,
        labels=f'{CLUSTER},type="Available",reason="WritesRejected"',
    ),
    "DatabaseArchivingFails": AlertCase(
        fault={f'steersman_cluster_condition{{{CLUSTER},type="ContinuousArchiving",reason="StoreFull"}}': "0x800"},
        quiet={f'steersman_cluster_condition{{{CLUSTER},type="ContinuousArchiving",reason="Archiving"}}': "1x800"},
        after=16,
        labels=f'{CLUSTER},type="ContinuousArchiving",reason="StoreFull"',
    ),
    "DatabaseVolumeCannotGrow": AlertCase(
        fault={f'steersman_cluster_condition{{{CLUSTER},type="AutogrowReady",reason="AtMaxSize"}}': "0x800"},
        quiet={f'steersman_cluster_condition{{{CLUSTER},type="AutogrowReady",reason="Recommended"}}': "0x800"},
        after=6,
        labels=f'{CLUSTER},type="AutogrowReady",reason="AtMaxSize"',
    ),
    "DatabaseOperatorMissing": AlertCase(
        fault={'leader_election_master_status{name="steersman-databases"}': "0x800"},
        quiet={'leader_election_master_status{name="steersman-databases"}': "1x800"},
        after=11,
        labels="",
    ),
    "DatabaseReconcileFails": AlertCase(
        fault={'controller_runtime_reconcile_errors_total{controller="mysqlcluster"}': "0+2x800"},
        quiet={'controller_runtime_reconcile_errors_total{controller="mysqlcluster"}': "5x800"},
        after=40,
        labels='controller="mysqlcluster"',
    ),
}
"""By the name of the alert."""
