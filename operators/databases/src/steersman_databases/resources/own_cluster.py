"""The cluster of one instance that a ``Database`` without a reference makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.meta import ApplyConfiguration, ObjectMetaApply, Quantity
from steersman_databases.api import Database, PostgreSQLCluster
from steersman_databases.resources.names import Names, labels_of


class PostgreSQLClusterApply(ApplyConfiguration[PostgreSQLCluster]):
    """What a ``Database`` declares of its cluster. All else is the default's, or whoever's sets it."""

    read_type = PostgreSQLCluster

    spec: Mapping[str, Any]


def own_cluster(database: Database, storage: Quantity) -> PostgreSQLClusterApply:
    """The cluster of the ``Database``'s own name, with volumes of the size ``storage``."""
    primary = Names(database.key).primary_service.name
    return PostgreSQLClusterApply(
        metadata=ObjectMetaApply(
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
