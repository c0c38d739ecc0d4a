"""Alerts about MySQL."""

from __future__ import annotations

from functools import partial

from .model import Alert

_POD = "{{ $labels.namespace }}/{{ $labels.pod }}"
_CLUSTER = "{{ $labels.namespace }}/{{ $labels.dbcluster }}"
_P = "steersman_mysql"
_alert = partial(Alert, group="mysql")

ALERTS = (
    _alert(
        name="MySQLNoPrimary",
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
        name="MySQLQuorumLost",
        expression=f"{_P}_group_members_reachable * 2 <= {_P}_group_members and {_P}_group_members > 0",
        minutes=1,
        severity="critical",
        summary=f"{_POD} reaches too few members: the group has lost quorum, and writes are blocked.",
        action=("Restore the other members, or follow the page Recover from failures.",),
    ),
    _alert(
        name="MySQLMemberOffline",
        expression=f'{_P}_member_state{{state="Online"}} == 0',
        minutes=5,
        severity="warning",
        summary=f"{_POD} is not an online member of its group.",
        action=(
            "Read why: kubectl steersman status CLUSTER, and the logs of the container server.",
            "A member that copies data joins when the copy is complete.",
        ),
    ),
    _alert(
        name="MySQLErrantTransactions",
        expression=f"{_P}_errant == 1",
        minutes=1,
        severity="critical",
        summary=f"{_POD} has transactions that its group does not have. It stays out of the group.",
        action=(
            (
                "Save what you need of them, and replace the instance by the annotation "
                "databases.steersman.dev/replace-instance."
            ),
        ),
    ),
    _alert(
        name="MySQLReplicationLag",
        expression=f"{_P}_apply_lag_seconds > 60 or {_P}_apply_queue > 10000",
        minutes=5,
        severity="warning",
        summary=f"{_POD} applies transactions late.",
        action=(
            "Split large transactions, and give each table a primary key.",
            "Compare its disk and CPU with those of the primary.",
        ),
    ),
    _alert(
        name="MySQLConnectionsRunOut",
        expression=f"{_P}_connections / {_P}_max_connections > 0.9",
        minutes=5,
        severity="warning",
        summary=f"{{{{ $value | humanizePercentage }}}} of the connections of {_POD} are in use.",
        action=(
            "Find who holds them: SELECT USER, COMMAND, COUNT(*) FROM performance_schema.processlist GROUP BY 1, 2.",
            "Limit the pools of the applications, or increase max_connections.",
        ),
    ),
    _alert(
        name="MySQLLongTransaction",
        expression=f"{_P}_longest_transaction_seconds > 3600",
        minutes=5,
        severity="warning",
        summary=f"A transaction of {_POD} is open for {{{{ $value | humanizeDuration }}}}.",
        action=("Find it: SELECT * FROM information_schema.INNODB_TRX ORDER BY trx_started. End it by KILL.",),
    ),
    _alert(
        name="MySQLLocksWait",
        expression=f"{_P}_longest_lock_wait_seconds > 30",
        minutes=2,
        severity="warning",
        summary=f"A transaction of {_POD} waits for a lock for {{{{ $value | humanizeDuration }}}}.",
        action=("Find who blocks it: SELECT * FROM sys.innodb_lock_waits. End the blocking transaction by KILL.",),
    ),
    _alert(
        name="MySQLPurgeDelayed",
        expression=f"{_P}_undo_history_length > 1e6",
        minutes=60,
        severity="warning",
        summary=f"{{{{ $value | humanize }}}} undo log entries of {_POD} wait for the purge.",
        action=("End the oldest transaction, which needs them: it is in information_schema.INNODB_TRX.",),
    ),
)
