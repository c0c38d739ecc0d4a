"""Names and labels. Source: "Recommended Labels" in the Kubernetes documentation."""

from __future__ import annotations

from dataclasses import dataclass

from steersman.meta import Object, ObjectKey
from steersman_databases.api import Database

MANAGED_BY = "steersman-databases"
_PREFIX = "app.kubernetes.io"
_COMPONENT = "database"
OF_CLUSTERS = "cluster"
"""The component that objects of clusters bear: a cluster may have the name of a ``Database``."""


@dataclass(frozen=True, slots=True)
class Names:
    """The keys of everything that belongs to one ``Database``; they are derived from its own, so none is stored."""

    database: ObjectKey

    @property
    def primary_service(self) -> ObjectKey:
        return self._named(f"{self.database.name}-primary")

    @property
    def application_secret(self) -> ObjectKey:
        return self._named(f"{self.database.name}-app")

    @property
    def host(self) -> str:
        """Where clients connect, from any namespace."""
        return f"{self.primary_service.name}.{self.database.namespace}"

    def _named(self, name: str) -> ObjectKey:
        return ObjectKey(self.database.namespace, name)


def labels_of(database: Database) -> dict[str, str]:
    """The recommended labels."""
    return {
        f"{_PREFIX}/name": database.engine,
        f"{_PREFIX}/instance": database.metadata.name,
        f"{_PREFIX}/managed-by": MANAGED_BY,
        f"{_PREFIX}/component": _COMPONENT,
        f"{_PREFIX}/part-of": database.metadata.name,
    }


def is_ours(obj: Object, database: Database) -> bool:
    """Whether ``obj`` was made for a ``Database`` of this name, and not by somebody else under the same name."""
    return database.key in instance_of(obj) and obj.metadata.labels.get(f"{_PREFIX}/component") != OF_CLUSTERS


def instance_of(obj: Object) -> tuple[ObjectKey, ...]:
    """The ``Database`` that ``obj`` belongs to, by its labels; maps changes of what carries no owner reference."""
    labels = obj.metadata.labels
    if labels.get(f"{_PREFIX}/managed-by") != MANAGED_BY or not (name := labels.get(f"{_PREFIX}/instance")):
        return ()
    return (ObjectKey(obj.metadata.namespace, name),)


def opened_by(secret: Object) -> ObjectKey | None:
    """The ``Database`` whose application's Secret this is; None where it is none of that kind."""
    name = secret.metadata.name.removesuffix("-app")
    strange = name == secret.metadata.name or secret.metadata.labels.get(f"{_PREFIX}/component") == OF_CLUSTERS
    return None if strange else ObjectKey(secret.metadata.namespace, name)
