"""The cluster of one instance that a ``Database`` without a reference makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.api.apply import meta
from steersman.meta import ApplyConfiguration, Quantity
from steersman_databases.api import Cluster, Database, MySQLCluster, PostgreSQLCluster
from steersman_databases.resources.names import Names, labels_of


class OwnClusterApply(ApplyConfiguration[Cluster]):
    """What a ``Database`` declares of its cluster. All else is the default's, or whoever's sets it."""

    spec: Mapping[str, Any]


class _PostgreSQLClusterApply(OwnClusterApply):
    read_type = PostgreSQLCluster


class _MySQLClusterApply(OwnClusterApply):
    read_type = MySQLCluster


def own_cluster(database: Database, storage: Quantity) -> OwnClusterApply:
    """The cluster of the ``Database``'s own name and engine, with volumes of the size ``storage``."""
    declared = _MySQLClusterApply if database.engine == "mysql" else _PostgreSQLClusterApply
    primary = Names(database.key).primary_service.name
    return declared(
        metadata=meta.ObjectMeta(
            name=database.metadata.name, namespace=database.metadata.namespace, labels=labels_of(database)
        ),
        spec={
            "version": database.version,
            "instances": 1,
            "storage": {"size": str(storage)},
            "services": {"additional": [{"name": primary, "role": "rw"}]},
            "deletionPolicy": database.spec.deletion_policy,
        },
    )
