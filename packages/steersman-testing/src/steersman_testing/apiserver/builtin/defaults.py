"""Defaults of built-in kinds that operators rely on. Other fields stay as sent.

| kind | defaults |
| Secret | ``type``, ``stringData`` into ``data`` |
| Service | ``type``, ``sessionAffinity``, traffic policies, ports, ``clusterIP``, IP families |
| workloads | ``replicas``, strategies, history limits, pod template |
| pods and templates | policies, ``imagePullPolicy``, port ``protocol``, probes, ``defaultMode`` of volumes |
| Pod | tolerations and priority |
| PersistentVolumeClaim | ``volumeMode``, protection finalizer |
| Job, CronJob | policies, limits, labels and selector |
| Namespace | label with its name |

StorageClass, EndpointSlice and other kinds have defaults as well. Kinds with a status get their initial status.

Source: ``pkg/apis/*/v1/defaults.go`` and the admission plugins of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from steersman_testing.apiserver.builtin.pods import quality_of_service
from steersman_testing.apiserver.values import (
    JsonObject,
    clone,
    ensure_map,
    ensure_metadata,
    get_array,
    get_object,
    is_list,
    is_map,
)

_TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
PVC_PROTECTION = "kubernetes.io/pvc-protection"
PV_PROTECTION = "kubernetes.io/pv-protection"
_NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}

_INITIAL_STATUS: dict[str, JsonObject] = {
    "Deployment": {},
    "ReplicaSet": {"replicas": 0},
    "StatefulSet": {"replicas": 0, "availableReplicas": 0},
    "DaemonSet": {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    "CronJob": {},
    "PodDisruptionBudget": {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0},
    "Ingress": {"loadBalancer": {}},
    "ResourceQuota": {},
}


def apply_defaults(kind: str, obj: JsonObject) -> None:
    """Set missing fields of ``obj`` in each create and update."""
    if set_kind_defaults := _DEFAULTERS.get(kind):
        set_kind_defaults(obj)


def set_creation_fields(kind: str, obj: JsonObject) -> None:
    """Set the fields of a new object, such as the initial status."""
    match kind:
        case "Service":
            obj["status"] = {"loadBalancer": {}}
        case "Pod":
            _admit_pod(obj)
        case "PersistentVolumeClaim":
            obj["status"] = {"phase": "Pending"}
            ensure_map(obj, "metadata")["finalizers"] = [*get_array(obj["metadata"], "finalizers"), PVC_PROTECTION]
        case "Namespace":
            ensure_map(obj, "spec")["finalizers"] = ["kubernetes"]
            obj["status"] = {"phase": "Active"}
        case "PersistentVolume":
            obj["status"] = {"phase": "Pending", "lastPhaseTransitionTime": obj["metadata"]["creationTimestamp"]}
            ensure_map(obj, "metadata")["finalizers"] = [*get_array(obj["metadata"], "finalizers"), PV_PROTECTION]
        case "Node":
            _taint_not_ready(ensure_map(obj, "spec"))
        case "Job":
            _set_job_selector(obj)
            obj["status"] = {}
        case _:
            if kind in _INITIAL_STATUS:
                obj["status"] = clone(_INITIAL_STATUS[kind])


def keep_allocated_fields(kind: str, old: JsonObject, obj: JsonObject, subresource: str = "") -> None:
    """Keep fields that were decided at creation if an update omits them.

    Args:
        subresource: the subresource that is written. Empty for the object itself.
    """
    if kind == "DaemonSet":
        _bump_template_generation(old, obj)
    if kind == "Namespace":
        spec = ensure_map(obj, "spec")
        if subresource != "finalize":
            spec.update(get_object(old, "spec"))
        elif not spec.get("finalizers"):
            spec.pop("finalizers", None)
    if kind != "Service":
        return
    before, after = ensure_map(old, "spec"), ensure_map(obj, "spec")
    if "ExternalName" not in (before.get("type"), after.get("type")):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if name in before:
                after.setdefault(name, before[name])


def _bump_template_generation(old: JsonObject, obj: JsonObject) -> None:
    """Count changes of the template in the deprecated annotation of DaemonSets."""
    count = int(get_object(ensure_metadata(old), "annotations").get(_TEMPLATE_GENERATION, "1"))
    changed = get_object(old, "spec").get("template") != get_object(obj, "spec").get("template")
    ensure_map(ensure_metadata(obj), "annotations")[_TEMPLATE_GENERATION] = str(count + changed)


def _secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    texts = obj.pop("stringData", None)
    if is_map(texts):
        data = ensure_map(obj, "data")
        data.update({k: base64.b64encode(str(v).encode()).decode() for k, v in texts.items()})


def _service(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    for port in _items(spec, "ports"):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _pod(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("enableServiceLinks", True)
    _pod_spec(spec)


def _admit_pod(obj: JsonObject) -> None:
    """Run the admission plugins Priority and DefaultTolerationSeconds."""
    spec = ensure_map(obj, "spec")
    spec.setdefault("priority", 0)
    spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = get_array(spec, "tolerations")
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(t.get("key") in (key, None) for t in tolerations):
            added = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations = [*tolerations, added]
    spec["tolerations"] = tolerations
    obj["status"] = {"phase": "Pending", "qosClass": quality_of_service(spec)}


def _pod_spec(spec: JsonObject) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    for container in (*_items(spec, "containers"), *_items(spec, "initContainers")):
        image = str(container.get("image", ""))
        is_latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if is_latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        limits = get_object(container["resources"], "limits")
        if limits:
            # Requests default to limits.
            ensure_map(container["resources"], "requests").update(
                limits | get_object(container["resources"], "requests")
            )
        for port in _items(container, "ports"):
            port.setdefault("protocol", "TCP")
        for name in ("readinessProbe", "livenessProbe", "startupProbe"):
            _probe_defaults(container.get(name))
    for volume in _items(spec, "volumes"):
        for source in ("configMap", "secret", "downwardAPI", "projected"):
            if is_map(volume.get(source)):
                volume[source].setdefault("defaultMode", 0o644)


def _probe_defaults(probe: Any) -> None:
    if not is_map(probe):
        return
    for name, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        probe.setdefault(name, value)
    if is_map(probe.get("httpGet")):
        probe["httpGet"].setdefault("scheme", "HTTP")
        probe["httpGet"].setdefault("path", "/")
    if is_map(probe.get("grpc")):
        probe["grpc"].setdefault("service", "")


def _pod_template(spec: JsonObject) -> None:
    template = ensure_map(spec, "template")
    ensure_metadata(template)
    _pod_spec(ensure_map(template, "spec"))


def _deployment(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = ensure_map(spec, "strategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = ensure_map(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    _pod_template(spec)


def _stateful_set(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = ensure_map(spec, "updateStrategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        ensure_map(strategy, "rollingUpdate").setdefault("partition", 0)
    retention = ensure_map(spec, "persistentVolumeClaimRetentionPolicy")
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    for claim in _items(spec, "volumeClaimTemplates"):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("status", {"phase": "Pending"})
        _persistent_volume_claim(claim)
    _pod_template(spec)


def _replica_set(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("replicas", 1)
    _pod_template(spec)


def _daemon_set(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = ensure_map(spec, "updateStrategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = ensure_map(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    ensure_map(ensure_metadata(obj), "annotations").setdefault(_TEMPLATE_GENERATION, "1")
    _pod_template(spec)


def _taint_not_ready(spec: JsonObject) -> None:
    """Add the taint ``node.kubernetes.io/not-ready`` to a new node.

    The real server does this in the admission plugin TaintNodesByCondition.
    """
    taints = get_array(spec, "taints")
    if _NOT_READY not in taints:
        spec["taints"] = [*taints, _NOT_READY]


def _persistent_volume(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("volumeMode", "Filesystem")
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    if is_map(spec.get("hostPath")):
        spec["hostPath"].setdefault("type", "")


def _persistent_volume_claim(obj: JsonObject) -> None:
    ensure_map(obj, "spec").setdefault("volumeMode", "Filesystem")


def _job(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    labels = get_object(ensure_metadata(ensure_map(spec, "template")), "labels")
    if labels and not ensure_metadata(obj).get("labels"):
        ensure_metadata(obj)["labels"] = dict(labels)
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    _pod_template(spec)


def _set_job_selector(obj: JsonObject) -> None:
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    labels = ensure_map(ensure_metadata(ensure_map(ensure_map(obj, "spec"), "template")), "labels")
    own = {"controller-uid": uid, "job-name": name}
    own |= {f"batch.kubernetes.io/{k}": v for k, v in own.items()}
    labels |= own
    ensure_map(ensure_metadata(obj), "labels").update(own)
    obj["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _cron_job(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = ensure_map(spec, "jobTemplate")
    ensure_metadata(template)
    _pod_template(ensure_map(template, "spec"))


def _namespace(obj: JsonObject) -> None:
    ensure_map(ensure_metadata(obj), "labels")["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def _network_policy(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    for rule in (*_items(spec, "ingress"), *_items(spec, "egress")):
        for port in _items(rule, "ports"):
            port.setdefault("protocol", "TCP")


def _horizontal_pod_autoscaler(obj: JsonObject) -> None:
    spec = ensure_map(obj, "spec")
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]


def _priority_class(obj: JsonObject) -> None:
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _storage_class(obj: JsonObject) -> None:
    obj.setdefault("reclaimPolicy", "Delete")
    obj.setdefault("volumeBindingMode", "Immediate")


def _endpoint_slice(obj: JsonObject) -> None:
    for port in _items(obj, "ports"):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for endpoint in _items(obj, "endpoints"):
        ensure_map(endpoint, "conditions")


def _items(parent: JsonObject, name: str) -> list[JsonObject]:
    found: Any = parent.get(name)
    return [item for item in found if is_map(item)] if is_list(found) else []


_DEFAULTERS: dict[str, Callable[[JsonObject], None]] = {
    "Secret": _secret,
    "Service": _service,
    "Pod": _pod,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "DaemonSet": _daemon_set,
    "PersistentVolume": _persistent_volume,
    "PersistentVolumeClaim": _persistent_volume_claim,
    "Job": _job,
    "CronJob": _cron_job,
    "Namespace": _namespace,
    "NetworkPolicy": _network_policy,
    "HorizontalPodAutoscaler": _horizontal_pod_autoscaler,
    "PriorityClass": _priority_class,
    "StorageClass": _storage_class,
    "EndpointSlice": _endpoint_slice,
}
