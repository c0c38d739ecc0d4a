"""Immutable fields of built-in kinds that operators use.

Specs: all fields of a StatefulSet except updatable ones, selectors of workloads, template and selector of a Job. A
PVC is immutable except for requests of a bound one, and a pod except for images. A Service keeps its ``clusterIP``, a
binding its ``roleRef``, and a Secret its type. ConfigMaps and Secrets may be immutable. StorageClasses,
PriorityClasses and EndpointSlices have immutable fields as well.

Source: ``pkg/apis/*/validation`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_testing.apiserver.builtin.pods import validate_pod_update
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value
from steersman_testing.apiserver.values import MISSING, JsonObject, get_field, is_map

_STATEFUL_SET_UPDATABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)

_IMMUTABLE_SPEC_FIELDS = {
    "Deployment": ("selector",),
    "ReplicaSet": ("selector",),
    "DaemonSet": ("selector",),
    "Job": ("selector", "template", "completionMode"),
}


def validate_immutable_fields(kind: str, old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors for changes of immutable fields."""
    for field in _IMMUTABLE_SPEC_FIELDS.get(kind, ()):
        before, after = get_field(old.get("spec"), field), get_field(new.get("spec"), field)
        if before != after:
            formatted = None if after is MISSING else after
            yield invalid_value(f"spec.{field}", formatted, "field is immutable")
    match kind:
        case "StatefulSet":
            yield from _stateful_set(old, new)
        case "ConfigMap" | "Secret":
            yield from _data(kind, old, new)
        case "RoleBinding" | "ClusterRoleBinding" if old.get("roleRef") != new.get("roleRef"):
            yield invalid_value("roleRef", new.get("roleRef"), "cannot change roleRef")
        case "PersistentVolumeClaim":
            yield from _persistent_volume_claim(old, new)
        case "Service":
            yield from _service(old, new)
        case "StorageClass":
            for field in ("provisioner", "parameters"):
                if old.get(field) != new.get(field):
                    yield forbidden_field(field, f"updates to {field} are forbidden.")
            yield from _unchanged_fields(old, new, "reclaimPolicy", "volumeBindingMode")
        case "Event" if new.get("apiVersion") == "events.k8s.io/v1":
            # Only the series is mutable.
            changeable = ("apiVersion", "kind", "metadata", "series")
            yield from _unchanged_fields(old, new, *(n for n in sorted({*old, *new}) if n not in changeable))
        case "EndpointSlice":
            yield from _unchanged_fields(old, new, "addressType")
        case "PriorityClass":
            for field in ("value", "preemptionPolicy"):
                if old.get(field) != new.get(field):
                    yield forbidden_field(field, "may not be changed in an update.")
        case "Pod":
            yield from validate_pod_update(old, new)
        case _:
            return


def _unchanged_fields(old: JsonObject, new: JsonObject, *names: str) -> Iterator[InvalidFieldError]:
    for name in names:
        if old.get(name) != new.get(name):
            yield invalid_value(name, new.get(name), "field is immutable")


def _stateful_set(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    before, after = (
        {k: v for k, v in o.get("spec", {}).items() if k not in _STATEFUL_SET_UPDATABLE} for o in (old, new)
    )
    if before != after:
        *most, last = (f"'{f}'" for f in _STATEFUL_SET_UPDATABLE)
        text = f"updates to statefulset spec for fields other than {', '.join(most)} and {last} are forbidden"
        yield forbidden_field("spec", text)


def _data(kind: str, old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    if kind == "Secret" and old.get("type") != new.get("type"):
        yield invalid_value("type", new.get("type"), "field is immutable")
    if not old.get("immutable"):
        return
    for field in ("immutable", "data", "binaryData"):
        if old.get(field) != new.get(field):
            yield forbidden_field(field, "field is immutable when `immutable` is set")


def _persistent_volume_claim(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    def immutable_fields(claim: JsonObject) -> JsonObject:
        bound = get_field(old.get("status"), "phase") == "Bound"
        mutable = {"resources", "volumeAttributesClassName"} if bound else set[str]()
        # The volume controller may set an empty volumeName.
        if not old.get("spec", {}).get("volumeName"):
            mutable.add("volumeName")
        return {k: v for k, v in claim.get("spec", {}).items() if k not in mutable}

    if immutable_fields(old) != immutable_fields(new):
        text = (
            "spec is immutable after creation except resources.requests and "
            "volumeAttributesClassName for bound claims"
        )
        yield forbidden_field("spec", text)


def _service(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    before, after = old.get("spec"), new.get("spec")
    if not is_map(before) or not is_map(after) or "ExternalName" in (before.get("type"), after.get("type")):
        return
    address = after.get("clusterIP")
    if before.get("clusterIP") and address != before["clusterIP"]:
        yield invalid_value("spec.clusterIPs[0]", address, "may not change once set")
