"""The kinds of ``databases.steersman.dev/v1alpha1``."""

from steersman_databases.api.database import Database, DatabaseSpec, DatabaseStatus
from steersman_databases.api.postgresql_cluster import (
    PostgreSQLCluster,
    PostgreSQLClusterSpec,
    PostgreSQLClusterStatus,
)
from steersman_databases.api.users import DatabaseUser, DatabaseUserSpec, DatabaseUserStatus, UserCondition

__all__ = [
    "Database",
    "DatabaseSpec",
    "DatabaseStatus",
    "DatabaseUser",
    "DatabaseUserSpec",
    "DatabaseUserStatus",
    "PostgreSQLCluster",
    "PostgreSQLClusterSpec",
    "PostgreSQLClusterStatus",
    "UserCondition",
]
