"""Cells of pods.

Source: ``printPod`` of ``pkg/printers/internalversion`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from steersman_testing.apiserver.values import JsonObject, get_array, get_object

_TERMINAL = ("Succeeded", "Failed")


class _ContainerSummary(NamedTuple):
    """Summary of init or regular containers.

    ``reason`` is empty if the phase of the pod describes them.
    """

    reason: str = ""
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""


def pod_cells(pod: JsonObject, format_age: Callable[[str | None], str]) -> list[Any]:
    """Return the cells of a pod.

    They are name, ready, status, restarts, age, IP, node, nominated node and readiness gates.
    """
    meta, spec, status = (get_object(pod, part) for part in ("metadata", "spec", "status"))
    sidecars = {c.get("name") for c in get_array(spec, "initContainers") if c.get("restartPolicy") == "Always"}
    init_summary = _init_summary(
        get_array(status, "initContainerStatuses"), sidecars, len(get_array(spec, "initContainers"))
    )
    summary = init_summary
    if not init_summary.reason or _has_condition(status, "Initialized"):
        sidecar_restarts = _restart_summary(
            s for s in get_array(status, "initContainerStatuses") if s.get("name") in sidecars
        )
        summary = _container_summary(status, init_summary, sidecar_restarts)
    total = len(get_array(spec, "containers")) + len(sidecars)
    restarts = str(summary.restarts)
    if summary.restarts and summary.last_restart:
        restarts += f" ({format_age(summary.last_restart)} ago)"
    return [
        meta.get("name", ""),
        f"{summary.ready}/{total}",
        _pod_status(meta, status, summary.reason),
        restarts,
        format_age(meta.get("creationTimestamp")),
        next((i.get("ip", "") for i in get_array(status, "podIPs")), "") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _readiness_gates(get_array(spec, "readinessGates"), status),
    ]


def row_conditions(pod: JsonObject) -> list[JsonObject]:
    """Return the condition Completed for the row of a finished pod."""
    messages = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    phase = get_object(pod, "status").get("phase")
    if phase not in messages:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": messages[phase]}]


def _pod_status(meta: JsonObject, status: JsonObject, reason: str) -> str:
    phase = status.get("phase", "")
    if "deletionTimestamp" in meta:
        if status.get("reason") == "NodeLost":
            return "Unknown"
        if phase not in _TERMINAL:
            return "Terminating"
    if reason:
        return reason
    gated = any(
        c.get("type") == "PodScheduled" and c.get("reason") == "SchedulingGated"
        for c in get_array(status, "conditions")
    )
    return "SchedulingGated" if gated else status.get("reason") or phase


def _has_condition(status: JsonObject, condition: str) -> bool:
    return any(c.get("type") == condition and c.get("status") == "True" for c in get_array(status, "conditions"))


def _restart_summary(statuses: Iterable[JsonObject]) -> _ContainerSummary:
    """Return the number of restarts and the last one."""
    found = list(statuses)
    ends = [get_object(get_object(s, "lastState"), "terminated").get("finishedAt") or "" for s in found]
    return _ContainerSummary(
        restarts=sum(s.get("restartCount", 0) for s in found), last_restart=max(ends, default="")
    )


def _init_summary(statuses: list[JsonObject], sidecars: set[Any], total: int) -> _ContainerSummary:
    """Summarize init containers up to the first one that is not done."""
    ready = 0
    for position, status in enumerate(statuses):
        state = get_object(status, "state")
        terminated, waiting = state.get("terminated"), get_object(state, "waiting").get("reason", "")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if status.get("name") in sidecars and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if terminated is not None:
            reason = f"Init:{_termination_reason(terminated)}"
        elif waiting not in ("", "PodInitializing"):
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{position}/{total}"
        return _restart_summary(statuses[: position + 1])._replace(reason=reason, ready=ready)
    return _restart_summary(statuses)._replace(ready=ready)


def _container_summary(
    status: JsonObject, init_summary: _ContainerSummary, sidecar_restarts: _ContainerSummary
) -> _ContainerSummary:
    """Summarize regular containers. The first reason wins."""
    statuses = get_array(status, "containerStatuses")
    reason, error, ready, is_running = init_summary.reason, "", init_summary.ready, False
    for found in reversed(statuses):
        state = get_object(found, "state")
        terminated, waiting = state.get("terminated"), get_object(state, "waiting").get("reason")
        if waiting:
            reason = waiting
        elif terminated is not None:
            reason = _termination_reason(terminated)
            error = reason if terminated.get("exitCode") else error
        elif found.get("ready") and "running" in state:
            is_running = True
            ready += 1
    if reason == "Completed":
        if is_running and _has_condition(status, "Ready"):
            reason = "Running"
        else:
            reason = error or ("NotReady" if is_running else reason)
    container_restarts = _restart_summary(statuses)
    last_restart = max(container_restarts.last_restart, sidecar_restarts.last_restart)
    return _ContainerSummary(reason, ready, container_restarts.restarts + sidecar_restarts.restarts, last_restart)


def _termination_reason(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _readiness_gates(gates: list[JsonObject], status: JsonObject) -> str:
    if not gates:
        return "<none>"
    return f"{sum(_has_condition(status, g.get('conditionType', '')) for g in gates)}/{len(gates)}"
