"""How a pod is shown. Source: ``printPod`` of ``pkg/printers/internalversion`` of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from steersman_testing.apiserver.values import JsonObject, list_at, map_at

_TERMINAL = ("Succeeded", "Failed")


class _Progress(NamedTuple):
    """How far the containers of one sort are. ``reason`` is empty where the pod's phase says it all."""

    reason: str = ""
    ready: int = 0
    restarts: int = 0
    last_restart: str = ""


def pod_cells(pod: JsonObject, since: Callable[[str | None], str]) -> list[Any]:
    """Name, ready, status, restarts, age, IP, node, nominated node, readiness gates."""
    meta, spec, status = (map_at(pod, part) for part in ("metadata", "spec", "status"))
    sidecars = {c.get("name") for c in list_at(spec, "initContainers") if c.get("restartPolicy") == "Always"}
    begun = _initial(list_at(status, "initContainerStatuses"), sidecars, len(list_at(spec, "initContainers")))
    progress = begun
    if not begun.reason or _has(status, "Initialized"):
        beside = _restarts(s for s in list_at(status, "initContainerStatuses") if s.get("name") in sidecars)
        progress = _running(status, begun, beside)
    total = len(list_at(spec, "containers")) + len(sidecars)
    restarts = str(progress.restarts)
    if progress.restarts and progress.last_restart:
        restarts += f" ({since(progress.last_restart)} ago)"
    return [
        meta.get("name", ""),
        f"{progress.ready}/{total}",
        _state(meta, status, progress.reason),
        restarts,
        since(meta.get("creationTimestamp")),
        next((i.get("ip", "") for i in list_at(status, "podIPs")), "") or "<none>",
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        _gates(list_at(spec, "readinessGates"), status),
    ]


def pod_conditions(pod: JsonObject) -> list[JsonObject]:
    """Of the row: whether the pod has come to its end."""
    ends = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}
    phase = map_at(pod, "status").get("phase")
    if phase not in ends:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": ends[phase]}]


def _state(meta: JsonObject, status: JsonObject, reason: str) -> str:
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
        for c in list_at(status, "conditions")
    )
    return "SchedulingGated" if gated else status.get("reason") or phase


def _has(status: JsonObject, condition: str) -> bool:
    return any(c.get("type") == condition and c.get("status") == "True" for c in list_at(status, "conditions"))


def _restarts(statuses: Iterable[JsonObject]) -> _Progress:
    """How often they were restarted, and when last."""
    found = list(statuses)
    ends = [map_at(map_at(s, "lastState"), "terminated").get("finishedAt") or "" for s in found]
    return _Progress(restarts=sum(s.get("restartCount", 0) for s in found), last_restart=max(ends, default=""))


def _initial(statuses: list[JsonObject], sidecars: set[Any], total: int) -> _Progress:
    """Up to the first container that holds the others up."""
    ready = 0
    for position, status in enumerate(statuses):
        state = map_at(status, "state")
        terminated, waiting = state.get("terminated"), map_at(state, "waiting").get("reason", "")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if status.get("name") in sidecars and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if terminated is not None:
            reason = f"Init:{_end(terminated)}"
        elif waiting not in ("", "PodInitializing"):
            reason = f"Init:{waiting}"
        else:
            reason = f"Init:{position}/{total}"
        return _restarts(statuses[: position + 1])._replace(reason=reason, ready=ready)
    return _restarts(statuses)._replace(ready=ready)


def _running(status: JsonObject, begun: _Progress, beside: _Progress) -> _Progress:
    """The containers proper; the first of them that has something to say says it."""
    statuses = list_at(status, "containerStatuses")
    reason, error, ready, is_running = begun.reason, "", begun.ready, False
    for found in reversed(statuses):
        state = map_at(found, "state")
        terminated, waiting = state.get("terminated"), map_at(state, "waiting").get("reason")
        if waiting:
            reason = waiting
        elif terminated is not None:
            reason = _end(terminated)
            error = reason if terminated.get("exitCode") else error
        elif found.get("ready") and "running" in state:
            is_running = True
            ready += 1
    if reason == "Completed":
        if is_running and _has(status, "Ready"):
            reason = "Running"
        else:
            reason = error or ("NotReady" if is_running else reason)
    own = _restarts(statuses)
    last = max(own.last_restart, beside.last_restart)
    return _Progress(reason, ready, own.restarts + beside.restarts, last)


def _end(terminated: JsonObject) -> str:
    if terminated.get("reason"):
        return terminated["reason"]
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _gates(gates: list[JsonObject], status: JsonObject) -> str:
    if not gates:
        return "<none>"
    return f"{sum(_has(status, g.get('conditionType', '')) for g in gates)}/{len(gates)}"
