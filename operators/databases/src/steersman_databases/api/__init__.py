"""The kinds of ``databases.steersman.dev/v1alpha1``."""

from steersman_databases.api.cluster_parts import ClusterStatus
from steersman_databases.api.database import Database, DatabaseSpec, DatabaseStatus
from steersman_databases.api.mysql_cluster import MySQLCluster, MySQLClusterSpec, MySQLClusterStatus
from steersman_databases.api.postgresql_cluster import (
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
    PostgreSQLClusterStatus,
)
from steersman_databases.api.users import DatabaseUser, DatabaseUserSpec, DatabaseUserStatus, UserCondition

Cluster = PostgreSQLCluster | MySQLCluster
"""A cluster of any engine's."""
CLUSTERS: tuple[type[Cluster], ...] = (PostgreSQLCluster, MySQLCluster)
"""Their kinds."""

__all__ = [
    "CLUSTERS",
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
    "UserCondition",
]
