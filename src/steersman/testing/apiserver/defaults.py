"""What the real server fills into new built-in objects, as far as operators rely on it. All else stays as sent.

Secret: ``type``, ``stringData`` into ``data``. Service: ``type``, ``sessionAffinity``, ``protocol``, ``targetPort``
of ports, ``clusterIP``. Deployment, StatefulSet, ReplicaSet: ``replicas``, StatefulSet's ``podManagementPolicy``,
``updateStrategy`` and ``revisionHistoryLimit``, Deployment's ``strategy``. Pod (and pod templates):
``restartPolicy``, ``dnsPolicy``, ``schedulerName``, ``terminationGracePeriodSeconds``, ``imagePullPolicy``, port
``protocol``. PersistentVolumeClaim: ``volumeMode``. Namespace: its name as a label, its phase.
Job: ``parallelism``, ``completions``, ``backoffLimit``. First status of Pod, PersistentVolumeClaim and Namespace.

Source: ``pkg/apis/*/v1/defaults.go`` of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from random import Random
from typing import Any

from steersman.testing.apiserver.values import JsonObject, is_list, is_map, metadata, section


def apply_defaults(kind: str, obj: JsonObject) -> None:
    """Fills in what is missing in ``obj``, on creation and on every change."""
    if fill := _BY_KIND.get(kind):
        fill(obj)


def complete_new(kind: str, obj: JsonObject, random: Random) -> None:
    """Fills in what is decided once, when ``obj`` is created: addresses, the first status."""
    match kind:
        case "Service":
            _allocate_address(obj, random)
        case "Pod":
            obj["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
        case "PersistentVolumeClaim":
            obj["status"] = {"phase": "Pending"}
        case "Namespace":
            section(obj, "spec")["finalizers"] = ["kubernetes"]
            obj["status"] = {"phase": "Active"}
        case "Job":
            _select_own_pods(obj)
        case _:
            return


def carry_over(kind: str, old: JsonObject, obj: JsonObject) -> None:
    """Keeps what was decided at creation where an update leaves it out."""
    if kind != "Service":
        return
    before, after = section(old, "spec"), section(obj, "spec")
    if "ExternalName" not in (before.get("type"), after.get("type")):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if name in before:
                after.setdefault(name, before[name])


def _secret(obj: JsonObject) -> None:
    obj.setdefault("type", "Opaque")
    texts = obj.pop("stringData", None)
    if is_map(texts):
        data = section(obj, "data")
        data.update({k: base64.b64encode(str(v).encode()).decode() for k, v in texts.items()})


def _service(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in _items(spec, "ports"):
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _allocate_address(obj: JsonObject, random: Random) -> None:
    spec = section(obj, "spec")
    if spec.get("type") == "ExternalName":
        return
    address = spec.get("clusterIP") or f"10.96.{random.randrange(256)}.{random.randrange(1, 255)}"
    spec["clusterIP"] = address
    spec.setdefault("clusterIPs", [address])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _pod(obj: JsonObject) -> None:
    _pod_spec(section(obj, "spec"))


def _pod_spec(spec: JsonObject) -> None:
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("schedulerName", "default-scheduler")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("securityContext", {})
    for container in (*_items(spec, "containers"), *_items(spec, "initContainers")):
        image = str(container.get("image", ""))
        latest = image.endswith(":latest") or ":" not in image.rpartition("/")[2]
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        container.setdefault("resources", {})
        for port in _items(container, "ports"):
            port.setdefault("protocol", "TCP")


def _template(spec: JsonObject) -> None:
    template = section(spec, "template")
    metadata(template)
    _pod_spec(section(template, "spec"))


def _deployment(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = section(spec, "strategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        rolling = section(strategy, "rollingUpdate")
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    _template(spec)


def _stateful_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = section(spec, "updateStrategy")
    if strategy.setdefault("type", "RollingUpdate") == "RollingUpdate":
        section(strategy, "rollingUpdate").setdefault("partition", 0)
    retention = section(spec, "persistentVolumeClaimRetentionPolicy")
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    for claim in _items(spec, "volumeClaimTemplates"):
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("status", {"phase": "Pending"})
        _claim(claim)
    _template(spec)


def _replica_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("replicas", 1)
    _template(spec)


def _daemon_set(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("revisionHistoryLimit", 10)
    _template(spec)


def _claim(obj: JsonObject) -> None:
    section(obj, "spec").setdefault("volumeMode", "Filesystem")


def _job(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    _template(spec)


def _select_own_pods(obj: JsonObject) -> None:
    uid, name = obj["metadata"]["uid"], obj["metadata"]["name"]
    labels = section(metadata(section(section(obj, "spec"), "template")), "labels")
    labels |= {"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": name}
    obj["spec"]["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _cron_job(obj: JsonObject) -> None:
    spec = section(obj, "spec")
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)


def _namespace(obj: JsonObject) -> None:
    section(metadata(obj), "labels")["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def _items(parent: JsonObject, name: str) -> list[JsonObject]:
    found: Any = parent.get(name)
    return [item for item in found if is_map(item)] if is_list(found) else []


_BY_KIND: dict[str, Callable[[JsonObject], None]] = {
    "Secret": _secret,
    "Service": _service,
    "Pod": _pod,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "ReplicaSet": _replica_set,
    "DaemonSet": _daemon_set,
    "PersistentVolumeClaim": _claim,
    "Job": _job,
    "CronJob": _cron_job,
    "Namespace": _namespace,
}
