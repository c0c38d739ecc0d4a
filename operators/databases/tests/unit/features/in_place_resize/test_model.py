"""Steps of an in-place resize, derived from the pod alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from database_support.unit.planned_cluster import DECLARED, NOW, cluster_state, instance, member, primary
from steersman.api.core_v1 import Pod, ResourceRequirements
from steersman.meta import decode_builtins, to_builtins
from steersman_databases.cluster.actions import RecreatePod, RestartServer, Wait
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.rules.pod_hashes import resizable_hash, restart_hash
from steersman_databases.cluster.state import RESIZABLE_HASH, RESTART_HASH, Instance
from steersman_databases.engines.cluster_engine import DeclaredCluster, SizedParameter
from steersman_databases.engines.members import PendingSetting
from steersman_databases.features.in_place_resize.model import RESIZE, Resize, ResizeRecord, decide
from steersman_databases.features.parameters.model import deferred_settings

SMALL: dict[str, Any] = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
LARGE: dict[str, Any] = {"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"memory": "2Gi"}}


def declaring(resources: dict[str, Any], **fields: Any) -> DeclaredCluster:
    """The cluster with these resources."""
    declared = decode_builtins(resources, ResourceRequirements)
    return replace(DECLARED, pod_settings=replace(DECLARED.pod_settings, resources=declared), **fields)


LARGER = declaring(LARGE)
TARGET = restart_hash(LARGER, LARGER.image)
ANOTHER = "another-hash"


def record(
    target: str = TARGET, seconds: int = 0, refusal: str = "", *, is_final: bool = False, since: int | None = None
) -> dict[str, str]:
    """The annotation of a request that was made so many seconds ago, and is repeated since then."""
    made = ResizeRecord(
        target=target,
        requested_at=NOW - timedelta(seconds=seconds),
        refusal=refusal,
        is_final=is_final,
        repeated_since=None if since is None else NOW - timedelta(seconds=since),
    )
    return {RESIZE: msgspec.json.encode(made).decode()}


def resized(
    number: int = 0,
    *,
    spec: dict[str, Any] = SMALL,
    status: dict[str, Any] | None = SMALL,
    declaration: DeclaredCluster | None = None,
    notes: dict[str, str] | None = None,
    condition: dict[str, Any] | None = None,
    observed: int = 2,
    ready: bool = True,
) -> Instance:
    """An instance whose pod was created for small resources, or for another declaration."""
    one = instance(number, ready=ready)
    created_for = declaration or declaring(SMALL)
    hashes = {
        RESTART_HASH: restart_hash(created_for, created_for.image),
        RESIZABLE_HASH: resizable_hash(created_for, created_for.image),
    }
    wire: dict[str, Any] = to_builtins(one.pod)
    wire["metadata"] |= {"generation": 2, "annotations": hashes | (notes or {})}
    wire["spec"] = {"containers": [{"name": "server", "image": DECLARED.image, "resources": spec}]}
    container: dict[str, Any] = {
        "name": "server",
        "state": {"running": {}},
        **({} if status is None else {"resources": status}),
    }
    wire["status"] |= {"containerStatuses": [container], "observedGeneration": observed}
    if condition is not None:
        wire["status"]["conditions"].append({"status": "True", "observedGeneration": 2, **condition})
    return replace(one, pod=decode_builtins(wire, Pod))


def step_of(one: Instance, cluster: DeclaredCluster = LARGER) -> Resize | None:
    return decide(cluster, cluster.image, one, NOW)


def test_pod_as_declared_has_no_step() -> None:
    assert step_of(resized(), declaring(SMALL)) is None


def test_changed_resources_are_requested() -> None:
    assert step_of(resized()) == Resize("Request")


def test_equal_quantities_are_requested_and_complete() -> None:
    """The record is missing, but nothing must be patched."""
    same = declaring({"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1024Mi"}})
    assert step_of(resized(), same) == Resize("Request")
    recorded = record(restart_hash(same, same.image))
    assert step_of(resized(notes=recorded), same) == Resize("Complete")


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (resized(status=None), "its node or the API server does not support that"),
        (resized(ready=False), "it is not ready"),
        (resized(notes=record(refusal="requests cannot be removed", is_final=True)), "requests cannot be removed"),
        (resized(spec=LARGE, notes=record(seconds=121)), "the node has not applied the resources"),
        (resized(declaration=replace(declaring(SMALL), image="postgresql:16")), ""),
        (resized(notes=record(seconds=20, since=121)), "the API server accepts other resources"),
    ],
)
def test_pod_that_cannot_be_resized_is_recreated(one: Instance, message: str) -> None:
    assert step_of(one) == Resize("Recreate", message)


def test_pod_of_older_operator_is_recreated() -> None:
    one = resized()
    wire: dict[str, Any] = to_builtins(one.pod)
    del wire["metadata"]["annotations"][RESIZABLE_HASH]
    assert step_of(replace(one, pod=decode_builtins(wire, Pod))) == Resize("Recreate")


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({**SMALL, "limits": {"memory": "1023Mi"}}, "its memory limit becomes lower"),
        ({"requests": LARGE["requests"], "limits": LARGE["requests"]}, "its QoS class changes"),
    ],
)
def test_unsafe_change_is_recreated(resources: dict[str, Any], message: str) -> None:
    assert step_of(resized(), declaring(resources)) == Resize("Recreate", message)


def test_first_memory_limit_is_recreated() -> None:
    unlimited = {"requests": {"memory": "1Gi"}}
    one = resized(spec=unlimited, status=unlimited, declaration=declaring(unlimited))
    assert step_of(one) == Resize("Recreate", "its memory limit becomes lower")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, Resize("Wait", "the node has not applied the resources")),
        (
            {"type": "PodResizePending", "reason": "Deferred", "message": "no room"},
            Resize("Wait", "Deferred: no room"),
        ),
        ({"type": "PodResizeInProgress"}, Resize("Wait", "InProgress")),
        (
            {"type": "PodResizePending", "reason": "Infeasible", "message": "too small"},
            Resize("Recreate", "Infeasible: too small"),
        ),
        (
            {"type": "PodResizePending", "reason": "Infeasible", "message": "old", "observedGeneration": 1},
            Resize("Wait", "Infeasible: old"),
        ),
        ({"type": "PodResizePending", "status": "False"}, Resize("Wait", "the node has not applied the resources")),
    ],
)
def test_requested_resize_waits_for_node(condition: dict[str, Any] | None, expected: Resize) -> None:
    assert step_of(resized(spec=LARGE, notes=record(), condition=condition)) == expected


def test_applied_resize_completes() -> None:
    assert step_of(resized(spec=LARGE, status=LARGE, notes=record(seconds=500))) == Resize("Complete")
    # Rounded by the node.
    rounded = {"requests": {"cpu": "1999m"}, "limits": LARGE["limits"]}
    assert step_of(resized(spec=LARGE, status=rounded, notes=record())) == Resize("Complete")
    unobserved = resized(spec=LARGE, status=LARGE, notes=record(), observed=1)
    assert step_of(unobserved) == Resize("Wait", "the node has not applied the resources")


def test_spec_changed_back_is_requested_again() -> None:
    """The pod was asked for more, and its hash is that of the declaration again."""
    small = declaring(SMALL)
    assert step_of(resized(spec=LARGE, notes=record()), small) == Resize("Request")
    grown = resized(spec=LARGE, status=LARGE, notes=record())
    assert step_of(grown, small) == Resize("Recreate", "its memory limit becomes lower")
    assert step_of(resized(notes=record(restart_hash(small, small.image))), small) is None


def test_old_record_does_not_count_before_request_is_accepted() -> None:
    assert step_of(resized(notes=record(seconds=31, since=119))) == Resize("Request")
    assert step_of(resized(notes=record(seconds=500))) == Resize("Request"), "the first one may have been cut"
    assert step_of(resized(notes=record(since=500, refusal="exceeded quota"))) == Resize("Request", "exceeded quota")


@pytest.mark.parametrize("note", ["{", '{"target": "a", "requested_at": "2026-11-22T00:00:00"}'])
def test_unreadable_record_is_ignored(note: str) -> None:
    assert step_of(resized(notes={RESIZE: note})) == Resize("Request")


def test_temporary_refusal_is_requested_again() -> None:
    refused = [resized(n, notes=record(refusal="exceeded quota")) for n in range(3)]
    assert step_of(refused[0]) == Resize("Request", "exceeded quota")
    step = next_action(LARGER, cluster_state(refused, primary(0), member(1), member(2)))
    assert step == Wait("PodRejected", "pod orders-0-0 cannot be resized in place: exceeded quota")


def test_planner_waits_for_resize_and_recreates_after_it() -> None:
    members = primary(0), member(1), member(2)
    waiting = [resized(spec=LARGE, notes=record()), resized(1), resized(2)]
    step = next_action(LARGER, cluster_state(waiting, *members))
    message = "resizing pod orders-0-0 in place: the node has not applied the resources"
    assert step == Wait("RollingOut", message)
    late = [resized(n, spec=LARGE, notes=record(seconds=121)) for n in range(3)]
    reason = "its pod differs from the declaration and cannot be resized in place: " + message.partition(": ")[2]
    assert next_action(LARGER, cluster_state(late, *members)) == RecreatePod(1, reason)


SIZED = declaring(LARGE, sized=(SizedParameter("shared_buffers", "512MB", "25 %"),))
BUFFERS = PendingSetting(name="shared_buffers", previous="32768", value="65536")
WORKERS = PendingSetting(name="max_worker_processes", previous="8", value="16")


def complete(number: int) -> Instance:
    """An instance that was resized."""
    return resized(number, spec=LARGE, status=LARGE, declaration=LARGER, notes=record())


def test_sized_parameter_waits_for_next_restart() -> None:
    pods = [complete(n) for n in range(2)]
    pending = {"pending_restart": True, "pending_settings": [BUFFERS]}
    state = cluster_state(pods, primary(0, **pending), member(1, **pending))
    assert deferred_settings(SIZED, state, state.instances[1]) == ["shared_buffers"]
    assert next_action(replace(SIZED, instances=2), state) is None


@pytest.mark.parametrize(
    "cluster",
    [
        replace(SIZED, has_maintenance_windows=True),
        replace(SIZED, sized=()),
    ],
)
def test_other_parameters_restart_resized_servers(cluster: DeclaredCluster) -> None:
    pods = [complete(n) for n in range(2)]
    pending = {"pending_restart": True, "pending_settings": [BUFFERS]}
    state = cluster_state(pods, primary(0, **pending), member(1, **pending))
    assert next_action(replace(cluster, instances=2), state) == RestartServer(1, "a parameter needs a restart")


def test_sized_parameter_waits_before_resize_is_recorded() -> None:
    """The operator ended after it had written the parameters."""
    pending = {"pending_restart": True, "pending_settings": [BUFFERS]}
    state = cluster_state([resized(n) for n in range(2)], primary(0, **pending), member(1, **pending))
    step = next_action(replace(SIZED, instances=2), state)
    assert step == Wait("RollingOut", "resizing pod orders-0-0 in place")


def test_pod_that_was_not_resized_restarts_for_sized_parameter() -> None:
    pods = [resized(n, spec=LARGE, status=LARGE, declaration=LARGER) for n in range(2)]
    pending = {"pending_restart": True, "pending_settings": [BUFFERS]}
    state = cluster_state(pods, primary(0, **pending), member(1, **pending))
    assert not deferred_settings(SIZED, state, state.instances[1])


def test_replica_with_less_than_primary_restarts() -> None:
    """The primary restarted with a raised value that the standby must have, too."""
    cluster = replace(SIZED, sized=(SizedParameter("max_worker_processes", "16", "the CPU limit"),), instances=2)
    pods = [complete(n) for n in range(2)]
    pending = {"pending_restart": True, "pending_settings": [WORKERS]}
    both = cluster_state(pods, primary(0, **pending), member(1, **pending))
    assert next_action(cluster, both) is None
    restarted = cluster_state(pods, primary(0), member(1, **pending))
    assert next_action(cluster, restarted) == RestartServer(1, "a parameter needs a restart")
