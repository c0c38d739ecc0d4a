"""Dedicated cluster with one instance of a `Database` without a reference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.api.apply import meta
from steersman.meta import ApplyConfiguration, Quantity, to_builtins
from steersman_databases.api import Cluster, Database, MySQLCluster, PostgreSQLCluster
from steersman_databases.core.database_naming import DatabaseNames, database_labels


class DedicatedClusterApply(ApplyConfiguration[Cluster]):
    """Fields of the cluster that a `Database` declares.

    Others have their defaults, or belong to other field managers.
    """

    spec: Mapping[str, Any]


class _PostgreSQLClusterApply(DedicatedClusterApply):
    read_type = PostgreSQLCluster


class _MySQLClusterApply(DedicatedClusterApply):
    read_type = MySQLCluster


def dedicated_cluster(database: Database, storage: Quantity) -> DedicatedClusterApply:
    """Return the cluster with the name and the engine of the `Database`.

    Args:
        storage: size of its volumes.
    """
    declared = _MySQLClusterApply if database.engine == "mysql" else _PostgreSQLClusterApply
    spec = database.spec
    passed = {
        "backup": spec.backup,
        # The database of the new server is imported by a Job of the Database.
        "bootstrap": None if database.import_settings is not None else spec.bootstrap,
        "resources": spec.resources,
        "monitoring": spec.monitoring,
        "maintenance": spec.maintenance,
    }
    engine = {} if spec.sizing is None else {database.engine: {"sizing": spec.sizing}}
    autogrow = {} if spec.autogrow is None else {"autogrow": to_builtins(spec.autogrow)}
    primary = DatabaseNames(database.key).primary_service.name
    return declared(
        metadata=meta.ObjectMeta(
            name=database.metadata.name, namespace=database.metadata.namespace, labels=database_labels(database)
        ),
        spec={
            "version": database.version,
            "instances": 1,
            "storage": {"size": str(storage), **autogrow},
            "services": {"additional": [{"name": primary, "role": "rw"}]},
            "deletionPolicy": spec.deletion_policy,
            **engine,
            **{name: to_builtins(value) for name, value in passed.items() if value is not None},
        },
    )
