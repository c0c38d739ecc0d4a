"""Names and labels. Source: "Recommended Labels" in the Kubernetes documentation."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.meta import Object, ObjectKey
from steersman_databases.api import Database
from steersman_databases.api.group import GROUP
from steersman_databases.engines.naming import CLUSTER_LABEL, READ_REPLICA_LABEL

TRACKING_LABEL = "app.kubernetes.io/instance"
"""Label of controlled objects only.

Argo CD and other tools track their own objects by it.
"""
DATABASE_LABEL = f"{GROUP}/database"
"""Label of the Secret of a `Database`."""
MANAGED_BY = "steersman-databases"
_PREFIX = "app.kubernetes.io"
_DATABASE_COMPONENT = "database"
CLUSTER_COMPONENT = "cluster"
"""Label value of objects of clusters.

A cluster may have the name of a `Database`.
"""


@dataclass(frozen=True, slots=True)
class DatabaseNames:
    """Keys of all objects of a `Database`, derived from its own key."""

    database: ObjectKey

    @property
    def primary_service(self) -> ObjectKey:
        return self._named(f"{self.database.name}-primary")

    @property
    def application_secret(self) -> ObjectKey:
        return self._named(f"{self.database.name}-app")

    @property
    def dump_store(self) -> ObjectKey:
        """Secret with the object store of dumps."""
        return self._named(f"{self.database.name}-dumps")

    @property
    def restore_job(self) -> ObjectKey:
        """Job that restores a dump, with its ConfigMap and its Secret."""
        return self._named(f"{self.database.name}-restore")

    @property
    def host(self) -> str:
        """Host name for clients in any namespace."""
        return f"{self.primary_service.name}.{self.database.namespace}"

    def _named(self, name: str) -> ObjectKey:
        return ObjectKey(self.database.namespace, name)


def database_labels(database: Database) -> dict[str, str]:
    """Return the recommended labels of objects that a `Database` controls."""
    return {**_common_labels(database), TRACKING_LABEL: database.metadata.name}


def database_secret_labels(database: Database) -> dict[str, str]:
    """Return the labels of the Secret of a `Database`."""
    return {**_common_labels(database), DATABASE_LABEL: database.metadata.name}


def _common_labels(database: Database) -> dict[str, str]:
    return {
        f"{_PREFIX}/name": database.engine,
        f"{_PREFIX}/managed-by": MANAGED_BY,
        f"{_PREFIX}/component": _DATABASE_COMPONENT,
        f"{_PREFIX}/part-of": database.metadata.name,
    }


def belongs_to_database(obj: Object, database: Database) -> bool:
    """Return True if the object belongs to a `Database` of this name.

    A foreign object may have the same name.
    """
    return database.key in database_of(obj) and obj.metadata.labels.get(f"{_PREFIX}/component") != CLUSTER_COMPONENT


def is_of_database(obj: Object) -> bool:
    """Return True if the object belongs to a `Database`."""
    return obj.metadata.labels.get(f"{_PREFIX}/component") == _DATABASE_COMPONENT


def database_of(obj: Object) -> tuple[ObjectKey, ...]:
    """Return the `Database` of an object by its labels.

    It maps changes of objects without owner references.
    """
    labels = obj.metadata.labels
    if labels.get(f"{_PREFIX}/managed-by") != MANAGED_BY:
        return ()
    # Pods of read replicas have the label of their cluster, and are not its instances.
    preferred = () if READ_REPLICA_LABEL in labels else (CLUSTER_LABEL, DATABASE_LABEL)
    names = (name for label in (*preferred, TRACKING_LABEL) if (name := labels.get(label)))
    name = next(names, "")
    return (ObjectKey(obj.metadata.namespace, name),) if name else ()


def database_of_secret(secret: Object) -> ObjectKey | None:
    """Return the `Database` of an application's Secret, or None."""
    name = secret.metadata.name.removesuffix("-app")
    is_foreign = (
        name == secret.metadata.name or secret.metadata.labels.get(f"{_PREFIX}/component") == CLUSTER_COMPONENT
    )
    return None if is_foreign else ObjectKey(secret.metadata.namespace, name)
