"""Alerts about PostgreSQL."""

from __future__ import annotations

from functools import partial

from .model import Alert

_POD = "{{ $labels.namespace }}/{{ $labels.pod }}"
_CLUSTER = "{{ $labels.namespace }}/{{ $labels.dbcluster }}"
_P = "steersman_postgresql"
_alert = partial(Alert, group="postgresql")

ALERTS = (
    _alert(
        name="PostgreSQLNoPrimary",
        expression=f"""
            count by (namespace, dbcluster) ({_P}_up)
            unless on (namespace, dbcluster) ({_P}_is_primary == 1)
        """,
        minutes=1,
        severity="critical",
        summary=f"Cluster {_CLUSTER} has no primary. Writes fail.",
        action=(
            "Read the condition Available of the cluster, which names the cause: kubectl steersman status CLUSTER.",
            "Follow the page Recover from failures.",
        ),
    ),
    _alert(
        name="PostgreSQLTwoPrimaries",
        expression=f"sum by (namespace, dbcluster) ({_P}_is_primary) > 1",
        minutes=1,
        severity="critical",
        summary=f"{{{{ $value }}}} instances of cluster {_CLUSTER} are not in recovery.",
        action=(
            "Read which instance holds the leader lock: kubectl steersman status CLUSTER.",
            "Fence the other one, and compare its data before it becomes a replica again.",
        ),
    ),
    _alert(
        name="PostgreSQLReplicaNotStreaming",
        expression=f"{_P}_wal_receiver_streaming == 0",
        minutes=5,
        severity="warning",
        summary=f"Replica {_POD} does not stream from another instance.",
        action=(
            "Read its logs, which name the error: kubectl logs POD -c server.",
            "If WAL that it needs is removed, it needs a new copy: set spec.replaceFailedInstances to Automatic.",
        ),
    ),
    _alert(
        name="PostgreSQLReplicationLag",
        expression=f"{_P}_replay_lag_seconds > 60",
        minutes=5,
        severity="warning",
        summary=f"Replica {_POD} is {{{{ $value | humanizeDuration }}}} behind.",
        action=(
            "End long queries on the replica, which delay the replay: they are in pg_stat_activity.",
            "Compare its disk and CPU with those of the primary.",
        ),
    ),
    _alert(
        name="PostgreSQLNoSynchronousReplica",
        expression=f"""
            ({_P}_synchronous_replication == 1 and on (namespace, pod) {_P}_is_primary == 1)
            unless on (namespace, pod) ({_P}_replica_synchronous == 1)
        """,
        minutes=2,
        severity="critical",
        summary=f"No replica confirms the commits of {_POD}. They wait, or would be lost with it.",
        action=("Restore a replica: read the members of the cluster by kubectl steersman status CLUSTER.",),
    ),
    _alert(
        name="PostgreSQLSlotRunsOut",
        expression=f"""
            {_P}_slot_safe_bytes / ({_P}_slot_safe_bytes + {_P}_slot_retained_bytes) < 0.25
        """,
        minutes=5,
        severity="warning",
        summary=f"Slot {{{{ $labels.slot }}}} of {_POD} loses WAL soon: {{{{ $value | humanizePercentage }}}} left.",
        action=(
            "Start the client of the slot, or drop the slot by pg_drop_replication_slot().",
            "A slot of a replica disappears 30 minutes after the replica.",
        ),
    ),
    _alert(
        name="PostgreSQLSlotLost",
        expression=f"{_P}_slot_lost == 1",
        minutes=1,
        severity="warning",
        summary=f"WAL that the slot {{{{ $labels.slot }}}} of {_POD} needs is removed.",
        action=("Drop the slot, and copy the data of its client again.",),
    ),
    _alert(
        name="PostgreSQLConnectionsRunOut",
        expression=f"{_P}_connections / {_P}_max_connections > 0.9",
        minutes=5,
        severity="warning",
        summary=f"{{{{ $value | humanizePercentage }}}} of the connections of {_POD} are in use.",
        action=(
            "Find who holds them: SELECT usename, state, count(*) FROM pg_stat_activity GROUP BY 1, 2.",
            "Declare spec.pooler, or increase max_connections.",
        ),
    ),
    _alert(
        name="PostgreSQLLongTransaction",
        expression=f"{_P}_longest_transaction_seconds > 3600",
        minutes=5,
        severity="warning",
        summary=f"A transaction of {_POD} is open for {{{{ $value | humanizeDuration }}}}.",
        action=(
            "Find it: SELECT pid, usename, state, xact_start FROM pg_stat_activity ORDER BY xact_start.",
            "End it by pg_terminate_backend(), and set idle_in_transaction_session_timeout.",
        ),
    ),
    _alert(
        name="PostgreSQLLocksWait",
        expression=f"{_P}_longest_lock_wait_seconds > 120",
        minutes=2,
        severity="warning",
        summary=f"A session of {_POD} waits for a lock for {{{{ $value | humanizeDuration }}}}.",
        action=(
            "Find who blocks it: SELECT pid, pg_blocking_pids(pid) FROM pg_stat_activity.",
            "End the blocking transaction by pg_terminate_backend().",
        ),
    ),
    _alert(
        name="PostgreSQLWraparoundApproaches",
        expression=f"""
            {_P}_transaction_id_age > 1.07e9 or {_P}_multixact_id_age > 1.07e9
            or ({_P}_transaction_id_age > 1.5 * {_P}_autovacuum_freeze_max_age
                and {_P}_transaction_id_age > {_P}_transaction_id_age offset 6h)
        """,
        minutes=15,
        severity="critical",
        summary=f"The oldest unfrozen ID of {_POD} is {{{{ $value | humanize }}}} transactions old.",
        action=(
            "Find what prevents it by the metric steersman_postgresql_xmin_age, and end or drop it.",
            "Run VACUUM (FREEZE) on the tables with the highest age(relfrozenxid).",
        ),
    ),
    _alert(
        name="PostgreSQLCleanupBlocked",
        expression=f"{_P}_xmin_age > 1e7",
        minutes=60,
        severity="warning",
        summary=f"A {{{{ $labels.holder }}}} of {_POD} blocks cleanup of {{{{ $value | humanize }}}} transactions.",
        action=("End the session, finish the prepared transaction, or drop the slot.",),
    ),
    _alert(
        name="PostgreSQLDataCorrupted",
        expression=f"increase({_P}_database_checksum_failures_total[1h]) > 0",
        minutes=0,
        severity="critical",
        summary=f"Pages of the database {{{{ $labels.database }}}} of {_POD} have wrong checksums.",
        action=(
            (
                "Switch over if it is the primary. Replace it by the annotation "
                "databases.steersman.dev/replace-instance."
            ),
            "Check the disk of the node.",
        ),
    ),
    _alert(
        name="PostgreSQLArchivingFails",
        expression=f"""
            {_P}_last_archive_failure_timestamp_seconds > {_P}_last_archive_timestamp_seconds
            or ({_P}_last_archive_failure_timestamp_seconds unless {_P}_last_archive_timestamp_seconds)
        """,
        minutes=10,
        severity="critical",
        summary=f"WAL of {_POD} is not archived. It fills the volume, and recovery points are missing.",
        action=("Read the condition ContinuousArchiving of the cluster, which names the cause.",),
    ),
    _alert(
        name="PostgreSQLApiServerUnreachable",
        expression="steersman_patroni_failsafe == 1",
        minutes=5,
        severity="warning",
        summary=f"Patroni of {_POD} does not reach the API server. No failover is possible.",
        action=("Check the API server, and the network between it and the node.",),
    ),
    _alert(
        name="PostgreSQLUnmanaged",
        expression="steersman_patroni_paused == 1",
        minutes=60,
        severity="warning",
        summary=f"Patroni of {_POD} is paused. No failover is possible.",
        action=("Resume it: patronictl resume in the container server.",),
    ),
)
