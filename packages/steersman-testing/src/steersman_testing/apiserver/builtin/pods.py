"""Validation of pods and workloads.

Source: ``pkg/apis/core/validation``, ``pkg/apis/apps/validation`` and ``pkg/apis/batch/validation``, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steersman.meta import Quantity
from steersman_testing.apiserver.failures import (
    InvalidFieldError,
    duplicate_value,
    forbidden_field,
    format_value,
    invalid_value,
    required_value,
    unsupported_value,
)
from steersman_testing.apiserver.names import label_error
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, without_keys

_MUTABLE_FIELDS = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_IMMUTABLE_ERROR = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_workload(kind: str, spec: JsonObject) -> Iterator[InvalidFieldError]:
    """Validate the spec of a Deployment, StatefulSet, ReplicaSet or DaemonSet."""
    replicas = spec.get("replicas", 0)
    if isinstance(replicas, int) and replicas < 0:
        yield invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    selector = spec.get("selector")
    if selector is None and kind != "DaemonSet":
        yield required_value("spec.selector")
    elif not selector and kind != "DaemonSet":
        yield invalid_value("spec.selector", selector, f"empty selector is invalid for {kind.lower()}")
    template = get_object(spec, "template")
    labels = get_object(get_object(template, "metadata"), "labels")
    match_labels = get_object(selector, "matchLabels")
    if (not selector and (selector is not None or kind == "DaemonSet")) or any(
        labels.get(k) != v for k, v in match_labels.items()
    ):
        text = f"Invalid value: {format_value(labels)}: `selector` does not match template `labels`"
        yield InvalidFieldError("spec.template.metadata.labels", "FieldValueInvalid", text)
    pod = get_object(template, "spec")
    # The StatefulSet controller adds a volume for each volumeClaimTemplate.
    claims = [get_object(claim, "metadata").get("name") for claim in get_array(spec, "volumeClaimTemplates")]
    volumes = [*get_array(pod, "volumes"), *({"name": name} for name in claims)]
    yield from validate_pod_spec({**pod, "volumes": volumes}, "spec.template.spec")
    if pod.get("restartPolicy") != "Always":
        yield unsupported_value("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ["Always"])
    if kind == "Deployment":
        yield from _strategy(get_object(spec, "strategy"))


def _strategy(strategy: JsonObject) -> Iterator[InvalidFieldError]:
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        text = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden_field("spec.strategy.rollingUpdate", text)


def validate_job(spec: JsonObject, path: str = "spec") -> Iterator[InvalidFieldError]:
    """Validate the spec of a Job."""
    pod = get_object(get_object(spec, "template"), "spec")
    yield from validate_pod_spec(pod, f"{path}.template.spec")
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        yield required_value(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def validate_cron_job(spec: JsonObject) -> Iterator[InvalidFieldError]:
    """Validate the spec of a CronJob."""
    schedule = str(spec.get("schedule") or "")
    fields = schedule.split()
    if not schedule:
        yield required_value("spec.schedule")
    elif len(fields) != 5 and not schedule.startswith("@"):
        text = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        yield invalid_value("spec.schedule", schedule, text)
    yield from validate_job(get_object(get_object(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec")


def validate_pod_spec(spec: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    """Validate a pod spec at ``path``."""
    containers = get_array(spec, "containers")
    volumes = {v.get("name") for v in get_array(spec, "volumes")}
    if not containers:
        yield required_value(f"{path}.containers")
    seen: set[str] = set()
    for position, container in enumerate(containers):
        container_path = f"{path}.containers[{position}]"
        name = container.get("name") or ""
        if not name:
            yield required_value(f"{container_path}.name")
        elif name_error := label_error(f"{container_path}.name", name):
            yield name_error
        if name and name in seen:
            yield duplicate_value(f"{container_path}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield required_value(f"{container_path}.image")
        for number, mount in enumerate(get_array(container, "volumeMounts")):
            if mount.get("name") not in volumes:
                text = f"Not found: {format_value(mount.get('name'))}"
                yield InvalidFieldError(f"{container_path}.volumeMounts[{number}].name", "FieldValueNotFound", text)
        yield from _resources(get_object(container, "resources"), f"{container_path}.resources.requests")


def _resources(resources: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    limits = get_object(resources, "limits")
    for name, request in get_object(resources, "requests").items():
        limit = limits.get(name)
        if limit is not None and Quantity(request) > Quantity(limit):
            yield invalid_value(path, request, f"must be less than or equal to {name} limit of {limit}")


def validate_pod_update(old: JsonObject, new: JsonObject) -> Iterator[InvalidFieldError]:
    """Reject changes of a pod spec beyond images.

    A few other fields are mutable as well.
    """
    if _immutable_fields(get_object(old, "spec")) != _immutable_fields(get_object(new, "spec")):
        yield forbidden_field("spec", _IMMUTABLE_ERROR)


def _immutable_fields(spec: JsonObject) -> JsonObject:
    container_lists = ("containers", "initContainers")
    unchanged = without_keys(spec, (*_MUTABLE_FIELDS, *container_lists))
    return unchanged | {g: [without_keys(c, ("image",)) for c in get_array(spec, g)] for g in container_lists}


def quality_of_service(spec: JsonObject) -> str:
    """Return ``status.qosClass`` of a pod.

    Source: "Pod Quality of Service Classes".
    """
    resources = [get_object(c, "resources") for g in ("containers", "initContainers") for c in get_array(spec, g)]
    requirements = [get_object(r, n) for r in resources for n in ("requests", "limits")]
    if not any(k in ("cpu", "memory") for values in requirements for k in values):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= get_object(r, "limits").keys()
        and all(get_object(r, "requests").get(n) == get_object(r, "limits")[n] for n in ("cpu", "memory"))
        for r in resources
    )
    return "Guaranteed" if guaranteed else "Burstable"


def is_percent(value: str) -> bool:
    """Return True if ``value`` is a percentage of an ``IntOrString``."""
    return re.fullmatch("[0-9]+%", value) is not None
