"""The subresource ``pods/resize``: CPU and memory of containers change, everything else stays.

Source: ``pkg/registry/core/pod/strategy.go`` and ``ValidatePodResize`` in ``pkg/apis/core/validation``, Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_testing.apiserver.builtin.pods import quality_of_service
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object, without_keys

_RESIZED_FIELDS = ("resources", "resizePolicy")
_RESIZABLE = ("cpu", "memory")


def resized_pod(old: JsonObject, new: JsonObject) -> JsonObject:
    """Return ``old`` with the resources of ``new``.

    If the containers differ, their list is taken over, and the validation rejects it.
    """
    result: JsonObject = clone(old)
    result["metadata"]["resourceVersion"] = new["metadata"].get("resourceVersion")
    present, desired = get_array(old["spec"], "containers"), get_array(get_object(new, "spec"), "containers")
    if [c.get("name") for c in present] == [c.get("name") for c in desired]:
        desired = [
            {**without_keys(p, _RESIZED_FIELDS), **{n: d[n] for n in _RESIZED_FIELDS if n in d}}
            for p, d in zip(present, desired, strict=True)
        ]
    result["spec"]["containers"] = clone(desired)
    return result


def validate_pod_resize(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    """Reject changes beyond CPU and memory, and of the QoS class."""
    before, after = get_object(old, "spec"), get_object(new, "spec")
    if quality_of_service(before) != quality_of_service(after):
        qos_class = get_object(new, "status").get("qosClass")
        yield invalid_value("spec", qos_class, "Pod QOS Class may not change as a result of resizing")
    running = [
        c for c in get_array(get_object(old, "status"), "containerStatuses") if "running" in c.get("state", {})
    ]
    if running and running[0].get("resources") is None:
        yield forbidden_field("spec", "Pod running on node without support for resize")
    present, desired = get_array(before, "containers"), get_array(after, "containers")
    if len(present) != len(desired):
        yield forbidden_field("spec.containers", "containers may not be added or removed on resize")
        return
    renamed = [n for n, (p, d) in enumerate(zip(present, desired, strict=True)) if p.get("name") != d.get("name")]
    for number in renamed:
        text = "containers may not be renamed or reordered on resize"
        yield forbidden_field(f"spec.containers[{number}].name", text)
    if renamed:
        return
    for number, (p, d) in enumerate(zip(present, desired, strict=True)):
        yield from _removed_resources(p, d, f"spec.containers[{number}].resources")
    for p, d in zip(present, desired, strict=True):
        if _fixed_fields(p) != _fixed_fields(d):
            yield forbidden_field("spec", "only cpu and memory resources are mutable")


def _removed_resources(present: JsonObject, desired: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    for kind in ("requests", "limits"):
        before, after = (get_object(get_object(c, "resources"), kind) for c in (present, desired))
        if before.keys() - after.keys():
            yield forbidden_field(f"{path}.{kind}", f"resource {kind} cannot be removed")


def _fixed_fields(container: JsonObject) -> JsonObject:
    """Return the fields of a container without CPU and memory."""
    resources = get_object(container, "resources")
    others = {kind: without_keys(get_object(resources, kind), _RESIZABLE) for kind in ("requests", "limits")}
    return {**container, "resources": {**resources, **others}}
