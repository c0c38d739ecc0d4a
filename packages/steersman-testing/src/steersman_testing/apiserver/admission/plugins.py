"""Admission plugins that are not implemented. Their decisions are rejected with 501.

Source: "Admission Controllers Reference" of the Kubernetes documentation, the plugins that are on by default.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.kinds import NAMESPACES, GroupResource, ServedKind
from steersman_testing.apiserver.storage import Storage
from steersman_testing.apiserver.values import JsonObject, get_object

_LIMITS = GroupResource("", "limitranges")
_QUOTAS = GroupResource("", "resourcequotas")
_STORAGE_CLASSES = GroupResource("storage.k8s.io", "storageclasses")
_ENFORCE_LABEL = "pod-security.kubernetes.io/enforce"
_DEFAULT_CLASS_ANNOTATION = "storageclass.kubernetes.io/is-default-class"
_POD_RESOURCES = ("cpu", "memory", "ephemeral-storage", "limits", "requests", "hugepages")


def reject_unsupported_plugins(storage: Storage, kind: ServedKind, obj: JsonObject) -> None:
    """Reject a create that a plugin without implementation would decide.

    Raises:
        ApiError: 501.
    """
    if kind.is_custom and not storage.list(_QUOTAS):
        return
    for feature in _unsupported_features(storage, kind, obj):
        raise failures.not_implemented(feature)


def _unsupported_features(storage: Storage, kind: ServedKind, obj: JsonObject) -> Iterator[str]:
    namespace = obj["metadata"].get("namespace", "")
    plural, spec = kind.resource.plural, get_object(obj, "spec")
    for quota in storage.list(_QUOTAS, namespace) if namespace else ():
        if _quota_applies(get_object(get_object(quota.object, "spec"), "hard"), kind):
            yield f"counting {plural} for the ResourceQuota {quota.key.name}"
    if kind.resource.group:
        return
    if plural in ("pods", "persistentvolumeclaims"):
        for limits in storage.list(_LIMITS, namespace):
            yield f"enforcing the LimitRange {limits.key.name} on {plural}"
    if plural == "pods":
        for field in ("priorityClassName", "runtimeClassName"):
            if spec.get(field):
                yield f"{field} of a pod"
        for owner in storage.list(NAMESPACES):
            level = get_object(owner.object["metadata"], "labels").get(_ENFORCE_LABEL, "privileged")
            if owner.key.name == namespace and level != "privileged":
                yield f"the Pod Security Standard {level}, which namespace {namespace} enforces"
    if plural == "persistentvolumeclaims" and spec.get("storageClassName") is None:
        for found in storage.list(_STORAGE_CLASSES):
            if get_object(found.object["metadata"], "annotations").get(_DEFAULT_CLASS_ANNOTATION) == "true":
                yield f"defaulting storageClassName of a PVC to the StorageClass {found.key.name}"


def _quota_applies(hard: JsonObject, kind: ServedKind) -> bool:
    plural, group = kind.resource.plural, kind.resource.group
    if plural in hard or f"count/{plural}.{group}".removesuffix(".") in hard:
        return True
    match group, plural:
        case "", "pods":
            return any(name.partition(".")[0] in _POD_RESOURCES for name in hard if name != "requests.storage")
        case "", "persistentvolumeclaims":
            return any("storage" in name for name in hard)
        case "", "services":
            return any(name.startswith("services.") for name in hard)
        case _:
            return False
