"""The Kubernetes objects that make up databases and clusters, each as a pure function of what is declared."""

from steersman_databases.resources.names import MANAGED_BY, Names, instance_of, is_ours, labels_of
from steersman_databases.resources.secrets import owned_by

__all__ = [
    "MANAGED_BY",
    "Names",
    "instance_of",
    "is_ours",
    "labels_of",
    "owned_by",
]
