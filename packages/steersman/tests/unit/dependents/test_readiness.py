"""Readiness by kind, as in kstatus."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.dependents import Readiness, default_readiness
from steersman.meta import ApiResource, unstructured

DEPLOYED = {"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3, "readyReplicas": 3}
RESOURCES = {
    "Deployment": ApiResource("apps", "v1", "Deployment", "deployments"),
    "StatefulSet": ApiResource("apps", "v1", "StatefulSet", "statefulsets"),
    "DaemonSet": ApiResource("apps", "v1", "DaemonSet", "daemonsets"),
    "ReplicaSet": ApiResource("apps", "v1", "ReplicaSet", "replicasets"),
    "Job": ApiResource("batch", "v1", "Job", "jobs"),
    "Pod": ApiResource("", "v1", "Pod", "pods"),
    "PersistentVolumeClaim": ApiResource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    "Service": ApiResource("", "v1", "Service", "services"),
    "ConfigMap": ApiResource("", "v1", "ConfigMap", "configmaps"),
    "CustomResourceDefinition": ApiResource(
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", False
    ),
    "Cluster": ApiResource("example.com", "v1", "Cluster", "clusters"),
}


def readiness(kind: str, spec: Any, status: Any, **metadata: Any) -> Readiness:
    content = {"metadata": {"name": "a", "generation": 2, **metadata}, "spec": spec, "status": status}
    return default_readiness(unstructured(RESOURCES[kind]).of(content))


def observed_condition(type: str, status: str, generation: object) -> dict[str, object]:
    return {"type": type, "status": status, "message": "why", "observedGeneration": generation}


def conditions(**statuses: str) -> list[dict[str, str]]:
    return [{"type": t, "status": s, "reason": "Because", "message": "why"} for t, s in statuses.items()]


@pytest.mark.parametrize(
    ("kind", "spec", "status"),
    [
        ("Deployment", {"replicas": 3}, DEPLOYED),
        ("Deployment", {"replicas": 0}, {"observedGeneration": 2}),
        ("StatefulSet", {"replicas": 3}, DEPLOYED | {"currentRevision": "b", "updateRevision": "b"}),
        (
            "StatefulSet",
            {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}},
            DEPLOYED | {"updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
        ),
        (
            "StatefulSet",
            {"replicas": 3, "updateStrategy": {"type": "OnDelete"}},
            DEPLOYED | {"updatedReplicas": 0, "currentRevision": "a", "updateRevision": "b"},
        ),
        (
            "DaemonSet",
            {},
            {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 2},
        ),
        ("ReplicaSet", {"replicas": 3}, DEPLOYED),
        ("Job", {}, {"conditions": conditions(Complete="True")}),
        ("Pod", {}, {"phase": "Running", "conditions": conditions(Ready="True")}),
        ("Pod", {}, {"phase": "Succeeded", "conditions": conditions(Ready="False")}),
        ("PersistentVolumeClaim", {}, {"phase": "Bound"}),
        ("Service", {"type": "ClusterIP"}, {}),
        ("Service", {"type": "LoadBalancer"}, {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}),
        ("ConfigMap", {}, {}),
        ("CustomResourceDefinition", {}, {"conditions": conditions(Established="True")}),
        ("Cluster", {}, {}),
        ("Cluster", {}, {"observedGeneration": 2, "conditions": conditions(Ready="True", Reconciling="False")}),
        ("Cluster", {}, {"conditions": [observed_condition("Ready", "True", 2)]}),
    ],
)
def test_readiness_complete_object_is_ready(kind: str, spec: Any, status: Any) -> None:
    assert readiness(kind, spec, status) == Readiness(ready=True)


@pytest.mark.parametrize(
    ("kind", "spec", "status", "message"),
    [
        ("Deployment", {}, {}, "its controller has not observed it yet"),
        ("Deployment", {"replicas": 3}, DEPLOYED | {"observedGeneration": 1}, "generation 2 is not observed yet"),
        ("Deployment", {"replicas": 3}, DEPLOYED | {"updatedReplicas": 1}, "1 of 3 replicas are updated"),
        ("Deployment", {"replicas": 3}, DEPLOYED | {"replicas": 4}, "1 old replicas remain"),
        ("Deployment", {"replicas": 3}, DEPLOYED | {"availableReplicas": 2}, "2 of 3 replicas are available"),
        ("StatefulSet", {"replicas": 3}, DEPLOYED | {"readyReplicas": 0}, "0 of 3 replicas are ready"),
        ("StatefulSet", {"replicas": 2}, DEPLOYED, "1 replicas are being removed"),
        (
            "StatefulSet",
            {"replicas": 3},
            DEPLOYED | {"updatedReplicas": 1, "currentRevision": "a", "updateRevision": "b"},
            "1 of 3 replicas are updated",
        ),
        (
            "DaemonSet",
            {},
            {"observedGeneration": 2, "desiredNumberScheduled": 2, "updatedNumberScheduled": 2, "numberAvailable": 1},
            "1 of 2 pods are available",
        ),
        ("Job", {"completions": 2}, {"succeeded": 1}, "1 of 2 pods have succeeded"),
        ("Pod", {}, {"phase": "Running"}, "it is Running and not ready"),
        ("Pod", {}, {"conditions": conditions(PodScheduled="False")}, "it cannot be scheduled: why"),
        ("PersistentVolumeClaim", {}, {"phase": "Pending"}, "it is Pending, not Bound"),
        ("Service", {"type": "LoadBalancer"}, {}, "its load balancer has no address"),
        ("CustomResourceDefinition", {}, {}, "it is not established"),
        ("Cluster", {}, {"observedGeneration": 1}, "generation 2 is not observed yet"),
        (
            "Cluster",
            {},
            {"conditions": [observed_condition("Ready", "True", 1)]},
            "generation 2 is not observed yet",
        ),
        ("Cluster", {}, {"conditions": conditions(Ready="False")}, "it is not ready: why"),
        ("Cluster", {}, {"conditions": conditions(Ready="Unknown")}, "it is not ready: why"),
        ("Cluster", {}, {"conditions": conditions(Reconciling="True")}, "it is reconciling: why"),
    ],
)
def test_readiness_incomplete_object_is_waited_for(kind: str, spec: Any, status: Any, message: str) -> None:
    assert readiness(kind, spec, status) == Readiness(ready=False, message=message)


@pytest.mark.parametrize(
    ("kind", "status", "message"),
    [
        (
            "Deployment",
            {"conditions": [{"type": "Progressing", "reason": "ProgressDeadlineExceeded", "message": "late"}]},
            "its progress deadline is exceeded: late",
        ),
        ("Job", {"conditions": conditions(Failed="True")}, "it has failed: why"),
        ("Pod", {"phase": "Failed", "reason": "Evicted"}, "it has failed: Evicted"),
        ("Cluster", {"conditions": conditions(Stalled="True", Ready="False")}, "it is stalled: why"),
    ],
)
def test_readiness_failed_object_is_reported(kind: str, status: Any, message: str) -> None:
    assert readiness(kind, {}, status) == Readiness(ready=False, message=message, failed=True)


def test_readiness_object_being_deleted_is_not_ready() -> None:
    found = readiness("ConfigMap", {}, {}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert found == Readiness(ready=False, message="it is being deleted")


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": "x"},
        {"conditions": [1, {"type": "Ready"}]},
        {"conditions": [observed_condition("Ready", "True", "x")]},
        {"observedGeneration": "x"},
        None,
        {},
    ],
)
def test_readiness_malformed_status_raises_nothing(status: Any) -> None:
    default_readiness(
        unstructured(RESOURCES["Cluster"]).of({"metadata": {"name": "a", "generation": 2}, "status": status})
    )


def test_readiness_long_foreign_message_is_cut() -> None:
    status = {"conditions": [{"type": "Ready", "status": "False", "message": "x" * 10_000}]}
    assert len(readiness("Cluster", {}, status).message) == 300
