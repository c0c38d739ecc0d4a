"""Names and labels of the objects of a Prometheus."""

from __future__ import annotations

from steersman import Object, ObjectKey
from steersman.api.apply import meta

from monitoring_operator.api.v1.prometheus import Prometheus

MANAGED_BY = "monitoring-operator"
PORT = 9090
REVISION_ANNOTATION = "monitoring-operator.example.com/revision"
"""Annotation of pods. A change of it makes the kubelet update the volumes of the pod at once."""

_INSTANCE_LABEL = "app.kubernetes.io/instance"


def workload_key(prometheus: Prometheus) -> ObjectKey:
    """Return the key of StatefulSet, Service and Secret."""
    return ObjectKey(prometheus.metadata.namespace, f"prometheus-{prometheus.metadata.name}")


def selector_labels(prometheus: Prometheus) -> dict[str, str]:
    """Return the labels of the pods. They must never change."""
    return {
        "app.kubernetes.io/name": "prometheus",
        _INSTANCE_LABEL: prometheus.metadata.name,
        "app.kubernetes.io/managed-by": MANAGED_BY,
    }


def object_metadata(prometheus: Prometheus) -> meta.ObjectMeta:
    """Return the metadata of StatefulSet, Service and Secret."""
    key = workload_key(prometheus)
    return meta.ObjectMeta(name=key.name, namespace=key.namespace, labels=selector_labels(prometheus))


def owning_prometheus(obj: Object) -> list[ObjectKey]:
    """Return the Prometheus that a pod belongs to."""
    name = obj.metadata.labels.get(_INSTANCE_LABEL)
    return [ObjectKey(obj.metadata.namespace, name)] if name else []
