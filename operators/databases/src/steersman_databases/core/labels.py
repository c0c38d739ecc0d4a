"""Labels of what belongs to a cluster. Source: "Recommended Labels" in the Kubernetes documentation."""

from __future__ import annotations

from steersman.meta import Object
from steersman_databases.core.database_naming import CLUSTER_COMPONENT, MANAGED_BY, database_of
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import INSTANCE_LABEL

_PREFIX = "app.kubernetes.io"
# Objects of a Database may have the cluster's name. Neither may take or delete the other's data.
_DATABASE_COMPONENT = "database"


def cluster_selector(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the immutable labels of all objects of the cluster."""
    return {
        f"{_PREFIX}/name": cluster.engine,
        f"{_PREFIX}/instance": cluster.key.name,
        f"{_PREFIX}/managed-by": MANAGED_BY,
    }


def cluster_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the recommended labels."""
    return {
        **cluster_selector(cluster),
        f"{_PREFIX}/component": CLUSTER_COMPONENT,
        f"{_PREFIX}/part-of": cluster.key.name,
    }


def instance_selector(cluster: DeclaredCluster, ordinal: int) -> dict[str, str]:
    """Return the immutable labels of the objects of one instance."""
    return {**cluster_selector(cluster), INSTANCE_LABEL: str(ordinal)}


def instance_labels(cluster: DeclaredCluster, ordinal: int) -> dict[str, str]:
    """Return the recommended labels with the instance's number."""
    return {**cluster_labels(cluster), INSTANCE_LABEL: str(ordinal)}


def belongs_to(obj: Object, cluster: DeclaredCluster) -> bool:
    """Return True if the object belongs to a cluster of this name.

    The engine must match, too. A foreign object may have the same name.
    """
    if cluster.key not in database_of(obj):
        return False
    labels = obj.metadata.labels
    return (
        labels.get(f"{_PREFIX}/name") == cluster.engine and labels.get(f"{_PREFIX}/component") != _DATABASE_COMPONENT
    )
