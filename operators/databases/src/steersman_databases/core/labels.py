"""Labels of what belongs to a cluster. Source: "Recommended Labels" in the Kubernetes documentation."""

from __future__ import annotations

from steersman.meta import Object
from steersman_databases.core.database_naming import (
    CLUSTER_COMPONENT,
    MANAGED_BY,
    TRACKING_LABEL,
    database_of,
    is_of_database,
)
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.naming import CLUSTER_LABEL, INSTANCE_LABEL

_PREFIX = "app.kubernetes.io"


def cluster_selector(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the immutable labels of the objects that the cluster controls."""
    return {**engine_selector(cluster), TRACKING_LABEL: cluster.key.name}


def engine_selector(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the labels of all objects of all clusters of this engine."""
    return {f"{_PREFIX}/name": cluster.engine, f"{_PREFIX}/managed-by": MANAGED_BY}


def cluster_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the recommended labels of the objects that the cluster controls."""
    return {
        **cluster_selector(cluster),
        f"{_PREFIX}/component": CLUSTER_COMPONENT,
        f"{_PREFIX}/part-of": cluster.key.name,
    }


def data_labels(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the labels of objects that outlive the cluster.

    They are PVCs, Secrets, and ConfigMaps of the members. They have no controller, so a GitOps tool that tracks
    objects by `app.kubernetes.io/instance` would delete them if its application has the name of the cluster.

    Source: Argo CD, "Resource Tracking"; it does not prune objects with an owner reference.
    """
    return {
        **engine_selector(cluster),
        CLUSTER_LABEL: cluster.key.name,
        f"{_PREFIX}/component": CLUSTER_COMPONENT,
        f"{_PREFIX}/part-of": cluster.key.name,
    }


def instance_selector(cluster: DeclaredCluster, ordinal: int) -> dict[str, str]:
    """Return the immutable labels of the objects of one instance."""
    return {**cluster_selector(cluster), INSTANCE_LABEL: str(ordinal)}


def instance_labels(cluster: DeclaredCluster, ordinal: int) -> dict[str, str]:
    """Return the recommended labels with the instance's number."""
    return {**cluster_labels(cluster), INSTANCE_LABEL: str(ordinal)}


def volume_labels(cluster: DeclaredCluster, ordinal: int) -> dict[str, str]:
    """Return the labels of the PVCs of one instance."""
    return {**data_labels(cluster), INSTANCE_LABEL: str(ordinal)}


def belongs_to(obj: Object, cluster: DeclaredCluster) -> bool:
    """Return True if the object belongs to a cluster of this name.

    The engine must match, too. A foreign object may have the same name.
    """
    if cluster.key not in database_of(obj):
        return False
    # Objects of a Database may have the cluster's name. Neither may take or delete the other's data.
    return obj.metadata.labels.get(f"{_PREFIX}/name") == cluster.engine and not is_of_database(obj)
