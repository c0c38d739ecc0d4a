"""Labels of what belongs to a cluster. Source: "Recommended Labels" in the Kubernetes documentation."""

from __future__ import annotations

from steersman.meta import Object
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.cluster_names import INSTANCE_LABEL
from steersman_databases.resources.names import MANAGED_BY, OF_CLUSTERS, instance_of

_PREFIX = "app.kubernetes.io"
# Apart from what is a Database's, which may have the cluster's name: one must not take or delete the other's data.
_OF_DATABASES = "database"


def cluster_selector(cluster: ClusterView) -> dict[str, str]:
    """What all objects of the cluster bear, and never changes."""
    return {
        f"{_PREFIX}/name": cluster.engine,
        f"{_PREFIX}/instance": cluster.key.name,
        f"{_PREFIX}/managed-by": MANAGED_BY,
    }


def cluster_labels(cluster: ClusterView) -> dict[str, str]:
    """The recommended labels."""
    return {
        **cluster_selector(cluster),
        f"{_PREFIX}/component": OF_CLUSTERS,
        f"{_PREFIX}/part-of": cluster.key.name,
    }


def instance_selector(cluster: ClusterView, number: int) -> dict[str, str]:
    """What the objects of one instance bear, and never changes."""
    return {**cluster_selector(cluster), INSTANCE_LABEL: str(number)}


def instance_labels(cluster: ClusterView, number: int) -> dict[str, str]:
    """The recommended labels, and the instance's number."""
    return {**cluster_labels(cluster), INSTANCE_LABEL: str(number)}


def belongs_to(obj: Object, cluster: ClusterView) -> bool:
    """Whether ``obj`` was made for a cluster of this name and engine, and not by a stranger under the same name."""
    if cluster.key not in instance_of(obj):
        return False
    labels = obj.metadata.labels
    return labels.get(f"{_PREFIX}/name") == cluster.engine and labels.get(f"{_PREFIX}/component") != _OF_DATABASES
