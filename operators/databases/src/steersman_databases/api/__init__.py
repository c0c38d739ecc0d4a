"""The kinds of ``databases.steersman.dev/v1alpha1``."""

from steersman_databases.api.backups.backup import Backup, BackupSpec, BackupStatus
from steersman_databases.api.backups.backup_store import BackupStore, BackupStoreSpec, BackupStoreStatus
from steersman_databases.api.backups.restore import Restore, RestoreSpec, RestoreStatus
from steersman_databases.api.cluster_common import ClusterStatus
from steersman_databases.api.database import Database, DatabaseSpec, DatabaseStatus
from steersman_databases.api.database_user import DatabaseUser, DatabaseUserSpec, DatabaseUserStatus, UserCondition
from steersman_databases.api.mysql_cluster import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus
from steersman_databases.api.postgresql_cluster import (
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
    PostgreSQLClusterStatus,
)

Cluster = PostgreSQLCluster | MySQLCluster
"""A cluster of any engine."""
CLUSTER_KINDS: tuple[type[Cluster], ...] = (PostgreSQLCluster, MySQLCluster)
"""The kinds of clusters."""

__all__ = [
    "CLUSTER_KINDS",
    "Backup",
    "BackupSpec",
    "BackupStatus",
    "BackupStore",
    "BackupStoreSpec",
    "BackupStoreStatus",
    "Cluster",
    "ClusterStatus",
    "Database",
    "DatabaseSpec",
    "DatabaseStatus",
    "DatabaseUser",
    "DatabaseUserSpec",
    "DatabaseUserStatus",
    "MySQLCluster",
    "MySQLClusterSpec",
    "MySQLClusterStatus",
    "PostgreSQLCluster",
    "PostgreSQLClusterSpec",
    "PostgreSQLClusterStatus",
    "Restore",
    "RestoreSpec",
    "RestoreStatus",
    "UserCondition",
]
