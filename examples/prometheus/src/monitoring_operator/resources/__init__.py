"""Kubernetes objects of each Prometheus."""

from monitoring_operator.resources.names import (
    MANAGED_BY,
    PORT,
    REVISION_ANNOTATION,
    owning_prometheus,
    selector_labels,
    workload_key,
)
from monitoring_operator.resources.secret import ConfigurationTooLarge, configuration_secret
from monitoring_operator.resources.service import headless_service
from monitoring_operator.resources.statefulset import DEFAULT_SERVICE_ACCOUNT, StorageChanged, statefulset

__all__ = [
    "DEFAULT_SERVICE_ACCOUNT",
    "MANAGED_BY",
    "PORT",
    "REVISION_ANNOTATION",
    "ConfigurationTooLarge",
    "StorageChanged",
    "configuration_secret",
    "headless_service",
    "owning_prometheus",
    "selector_labels",
    "statefulset",
    "workload_key",
]
