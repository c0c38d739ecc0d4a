"""Validation of pods and of what runs them: templates, selectors, replicas, strategies.

Source: ``pkg/apis/core/validation``, ``pkg/apis/apps/validation`` and ``pkg/apis/batch/validation``, Kubernetes 1.36.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from steersman.meta import Quantity
from steersman_testing.apiserver.failures import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid_value,
    required,
    shown,
    unsupported,
)
from steersman_testing.apiserver.names import label_error
from steersman_testing.apiserver.values import JsonObject, list_at, map_at, without_keys

_UPDATABLE_BY_PUT = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_CHANGED = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def check_workload(kind: str, spec: JsonObject) -> Iterator[FieldError]:
    """What is wrong with the spec of a Deployment, a StatefulSet, a ReplicaSet or a DaemonSet."""
    replicas = spec.get("replicas", 0)
    if isinstance(replicas, int) and replicas < 0:
        yield invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
    selector = spec.get("selector")
    if selector is None and kind != "DaemonSet":
        yield required("spec.selector")
    elif not selector and kind != "DaemonSet":
        yield invalid_value("spec.selector", selector, f"empty selector is invalid for {kind.lower()}")
    template = map_at(spec, "template")
    labels = map_at(map_at(template, "metadata"), "labels")
    wanted = map_at(selector, "matchLabels")
    if (not selector and (selector is not None or kind == "DaemonSet")) or any(
        labels.get(k) != v for k, v in wanted.items()
    ):
        text = f"Invalid value: {shown(labels)}: `selector` does not match template `labels`"
        yield FieldError("spec.template.metadata.labels", "FieldValueInvalid", text)
    pod = map_at(template, "spec")
    # Of a StatefulSet, as the controller will complete it: each of its claims is a volume of the pod.
    claims = [map_at(claim, "metadata").get("name") for claim in list_at(spec, "volumeClaimTemplates")]
    volumes = [*list_at(pod, "volumes"), *({"name": name} for name in claims)]
    yield from check_pod({**pod, "volumes": volumes}, "spec.template.spec")
    if pod.get("restartPolicy") != "Always":
        yield unsupported("spec.template.spec.restartPolicy", pod.get("restartPolicy"), ["Always"])
    if kind == "Deployment":
        yield from _strategy(map_at(spec, "strategy"))


def _strategy(strategy: JsonObject) -> Iterator[FieldError]:
    if strategy.get("type") == "Recreate" and strategy.get("rollingUpdate") is not None:
        text = "may not be specified when strategy `type` is 'Recreate'"
        yield forbidden_field("spec.strategy.rollingUpdate", text)


def check_job(spec: JsonObject, path: str = "spec") -> Iterator[FieldError]:
    """What is wrong with the spec of a Job."""
    pod = map_at(map_at(spec, "template"), "spec")
    yield from check_pod(pod, f"{path}.template.spec")
    if pod.get("restartPolicy") not in ("OnFailure", "Never"):
        yield required(f"{path}.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def check_cron_job(spec: JsonObject) -> Iterator[FieldError]:
    """What is wrong with the spec of a CronJob."""
    schedule = str(spec.get("schedule") or "")
    fields = schedule.split()
    if not schedule:
        yield required("spec.schedule")
    elif len(fields) != 5 and not schedule.startswith("@"):
        text = f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]"
        yield invalid_value("spec.schedule", schedule, text)
    yield from check_job(map_at(map_at(spec, "jobTemplate"), "spec"), "spec.jobTemplate.spec")


def check_pod(spec: JsonObject, path: str) -> Iterator[FieldError]:
    """What is wrong with a pod's spec, which stands at ``path``."""
    containers = list_at(spec, "containers")
    volumes = {v.get("name") for v in list_at(spec, "volumes")}
    if not containers:
        yield required(f"{path}.containers")
    seen: set[str] = set()
    for position, container in enumerate(containers):
        place = f"{path}.containers[{position}]"
        name = container.get("name") or ""
        if not name:
            yield required(f"{place}.name")
        elif wrong := label_error(f"{place}.name", name):
            yield wrong
        if name and name in seen:
            yield duplicate(f"{place}.name", name)
        seen.add(name)
        if not container.get("image"):
            yield required(f"{place}.image")
        for number, mount in enumerate(list_at(container, "volumeMounts")):
            if mount.get("name") not in volumes:
                text = f"Not found: {shown(mount.get('name'))}"
                yield FieldError(f"{place}.volumeMounts[{number}].name", "FieldValueNotFound", text)
        yield from _resources(map_at(container, "resources"), f"{place}.resources.requests")


def _resources(resources: JsonObject, path: str) -> Iterator[FieldError]:
    limits = map_at(resources, "limits")
    for name, wanted in map_at(resources, "requests").items():
        limit = limits.get(name)
        if limit is not None and Quantity(wanted) > Quantity(limit):
            yield invalid_value(path, wanted, f"must be less than or equal to {name} limit of {limit}")


def check_pod_update(old: JsonObject, new: JsonObject) -> Iterator[FieldError]:
    """A pod's spec changes in its images and very little else."""
    if _fixed(map_at(old, "spec")) != _fixed(map_at(new, "spec")):
        yield forbidden_field("spec", _CHANGED)


def _fixed(spec: JsonObject) -> JsonObject:
    groups = ("containers", "initContainers")
    kept = without_keys(spec, (*_UPDATABLE_BY_PUT, *groups))
    return kept | {g: [without_keys(c, ("image",)) for c in list_at(spec, g)] for g in groups}


def quality_of_service(spec: JsonObject) -> str:
    """``status.qosClass`` of a pod. Source: "Pod Quality of Service Classes"."""
    found = [map_at(c, "resources") for g in ("containers", "initContainers") for c in list_at(spec, g)]
    told = [map_at(r, n) for r in found for n in ("requests", "limits")]
    if not any(k in ("cpu", "memory") for values in told for k in values):
        return "BestEffort"
    guaranteed = all(
        {"cpu", "memory"} <= map_at(r, "limits").keys()
        and all(map_at(r, "requests").get(n) == map_at(r, "limits")[n] for n in ("cpu", "memory"))
        for r in found
    )
    return "Guaranteed" if guaranteed else "Burstable"


def is_percent(value: str) -> bool:
    """Whether ``value`` is a percentage as an ``IntOrString`` takes it."""
    return re.fullmatch("[0-9]+%", value) is not None
