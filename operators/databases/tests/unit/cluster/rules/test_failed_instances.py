"""The planner about instances that do not come back by themselves: who is renewed or replaced, and who never."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from msgspec import structs

from database_support.unit.planned_cluster import (
    DECLARED,
    HEALTHY,
    NOW,
    THREE,
    cluster_state,
    instance,
    member,
    primary,
    requesting,
)
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.meta import decode_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.cluster.actions import RecreatePod, RemoveInstance, Wait
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.rules.pod_hashes import restart_hash
from steersman_databases.cluster.state import RESTART_HASH, Instance
from steersman_databases.cluster.status.conditions import ConditionSet, evaluate_ca_trust, set_ready
from steersman_databases.engines.cluster_engine import RequestedOperations, SynchronousReplication

FULL = {"data": 100}


def estranged(*numbers: int, unready: int | None = None) -> list[Instance]:
    """Three instances, of which these trust authorities that are lost."""
    made = [instance(n, ready=n != unready) for n in range(3)]
    return [replace(i, distrusts_ca=i.ordinal in numbers) for i in made]


def test_pods_distrusting_ca_are_recreated_primary_last() -> None:
    because = "it trusts only CAs whose Secrets are lost"
    members = (primary(1), member(0), member(2))
    assert next_action(DECLARED, cluster_state(estranged(0, 1, 2), *members)) == RecreatePod(0, because)
    # Who was renewed cannot follow the primary yet; but it is to be there.
    strays = (primary(1), member(0, state="Running"), member(2))
    assert next_action(DECLARED, cluster_state(estranged(1, 2), *strays)) == RecreatePod(2, because)
    assert isinstance(next_action(DECLARED, cluster_state(estranged(1, 2, unready=0), *strays)), Wait)
    assert next_action(DECLARED, cluster_state(estranged(1), *members)) == RecreatePod(1, because)
    assert next_action(DECLARED, cluster_state([*estranged(0)[:1]], primary(0))) == RecreatePod(0, because), (
        "nobody else is there"
    )
    fenced = next_action(requesting(fenced=frozenset({1})), cluster_state(estranged(1), *members))
    assert not (isinstance(fenced, RecreatePod) and fenced.reason == because)


def test_cluster_is_not_ready_while_ca_is_distrusted() -> None:
    """From the first refusal on, and not only when it is clear that a server has to be restarted for it."""
    findings, declared = ConditionSet(), PostgreSQLCluster(spec=PostgreSQLClusterSpec())
    known: list[Instance] = []
    for one in HEALTHY.instances:
        assert one.pod is not None
        metadata = structs.replace(one.pod.metadata, uid=str(one.ordinal))
        known.append(replace(one, pod=structs.replace(one.pod, metadata=metadata)))
    seen = replace(HEALTHY, instances=known)
    for strangers, ready in (
        (set[str](), "AllInstancesReady"),
        ({"1", "2"}, "Degraded"),
        ({"7"}, "AllInstancesReady"),
    ):
        findings = ConditionSet()
        evaluate_ca_trust(DECLARED, seen, strangers, findings)
        set_ready(declared, DECLARED, None, findings)
        assert findings.updates["Ready"].reason == ready
    evaluate_ca_trust(DECLARED, seen, {"1", "2"}, findings)
    told = findings.updates["CertificatesValid"]
    assert (told.holds, told.reason) == (False, "CADistrusted") and told.message.startswith(
        "orders-1, orders-2 do not trust"
    )


@pytest.mark.parametrize("mode", ["Disabled", "Quorum"])
def test_primary_is_not_recreated_before_replicas_caught_up(mode: Literal["Disabled", "Quorum"]) -> None:
    view = replace(DECLARED, synchronous=SynchronousReplication(mode=mode))
    strays = (member(0, state="Running"), member(2))
    assert isinstance(next_action(view, cluster_state(estranged(1), primary(1), *strays)), Wait)
    led = cluster_state(estranged(1), member(1, state="Starting"), *strays, leader=1)
    assert isinstance(next_action(view, led), Wait), "it holds the lock and does not serve yet"
    lost = estranged(1)
    lost[2] = replace(lost[2], data=None)
    assert next_action(view, cluster_state(lost, primary(1), member(0))) == RemoveInstance(
        2, "its volume is lost", has_failed=True
    )
    without = replace(view, requests=RequestedOperations(fenced=frozenset({0})))
    fenced = [instance(0, fenced=True), *estranged(1)[1:]]
    assert isinstance(next_action(without, cluster_state(fenced, primary(1), member(2))), RecreatePod)


def test_distrusting_pod_with_full_disk_keeps_serving() -> None:
    """It may not come up again."""
    seen = cluster_state(estranged(0, 1), primary(1, storage=FULL), member(0), member(2))
    assert next_action(DECLARED, seen) == RecreatePod(0, "it trusts only CAs whose Secrets are lost")
    full = Wait("DiskFull", "the volume of orders-1 is full")
    assert next_action(DECLARED, cluster_state(estranged(1), primary(1, storage=FULL), member(0), member(2))) == full


def test_primary_is_never_replaced_and_is_required() -> None:
    lost = [replace(THREE[0], data=None), *THREE[1:]]
    assert not isinstance(
        next_action(DECLARED, cluster_state(lost, primary(0), member(1), member(2))), RemoveInstance
    )
    lost = [*THREE[:2], replace(THREE[2], data=None)]
    assert isinstance(next_action(DECLARED, cluster_state(lost, member(0), member(1), member(2), leader=None)), Wait)
    assert next_action(DECLARED, cluster_state(lost, primary(0), member(1), member(2))) == RemoveInstance(
        2, "its volume is lost", has_failed=True
    )


def grown(number: int, *, since: timedelta = timedelta(seconds=-120), ready: bool = True) -> Instance:
    """One whose volume has become larger, and its file system grows with a new pod; this one is an hour old."""
    condition = {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": (NOW + since).isoformat()}
    claim = {"metadata": {"name": f"data-orders-{number}"}, "status": {"phase": "Bound", "conditions": [condition]}}
    one = instance(number, ready=ready)
    assert one.pod is not None
    metadata = structs.replace(one.pod.metadata, creation_timestamp=NOW - timedelta(hours=1))
    pod = structs.replace(one.pod, metadata=metadata)
    return replace(one, pod=pod, data=decode_builtins(claim, PersistentVolumeClaim))


def test_full_replica_is_recreated_if_resize_needs_restart() -> None:
    renewed = RecreatePod(1, "its full volume was resized")
    all_full = [member(n, state="Running", storage=FULL) for n in range(3)]
    three = [grown(n, ready=False) for n in range(3)]
    assert next_action(DECLARED, cluster_state(three, *all_full, leader=1)) == renewed, "who led has most"
    assert next_action(DECLARED, cluster_state(three, *all_full, previous_leader=1)) == renewed
    one = cluster_state([instance(0), grown(1), instance(2)], primary(0), all_full[1], member(2))
    assert next_action(DECLARED, one) == renewed
    # Who is renewed is there before the next.
    seen = cluster_state(
        [grown(0), instance(1, ready=False), instance(2)], all_full[0], member(1), member(2), leader=1
    )
    assert isinstance(next_action(DECLARED, seen), Wait)
    serves = cluster_state([grown(0), *THREE[1:]], primary(0, storage=FULL), member(1), member(2))
    assert next_action(DECLARED, serves) is None, "it may go on, and somebody asks for its restart"


def test_async_primary_is_not_recreated_if_it_would_fail_over() -> None:
    """It would lack what was committed last, and nobody asked for that."""
    alone = replace(DECLARED, synchronous=SynchronousReplication(mode="Disabled"))
    led = [instance(0), grown(1, ready=False), instance(2)]
    full = member(1, state="Running", storage=FULL)
    others = (member(0, synchronous=False), member(2, storage=FULL, synchronous=False))
    for holder in ({"leader": 1}, {"previous_leader": 1}):
        step = next_action(alone, cluster_state(led, full, *others, **holder))
        assert isinstance(step, Wait) and step.reason == "DiskFull"
        assert "fail over to orders-0" in step.message and "Delete pod orders-1-0" in step.message
        assert isinstance(next_action(DECLARED, cluster_state(led, full, *others, **holder)), RecreatePod), (
            "only who has all may"
        )
    nobody = [instance(0, fenced=True), *led[1:]]
    without = replace(alone, requests=RequestedOperations(fenced=frozenset({0})))
    assert isinstance(next_action(without, cluster_state(nobody, full, others[1], leader=1)), RecreatePod), (
        "nobody may"
    )
    assert isinstance(next_action(replace(alone, instances=1), cluster_state([led[1]], full, leader=1)), RecreatePod)


@pytest.mark.parametrize("since", [-30, -7200])
def test_resize_in_progress_restarts_nothing(since: int) -> None:
    one = grown(1, since=timedelta(seconds=since))
    seen = cluster_state([instance(0), one, instance(2)], primary(0), member(1, storage=FULL), member(2))
    assert next_action(DECLARED, seen) is None


def broken(number: int, hash_: str = "", **status: Any) -> Instance:
    """One whose server has not been ready for two hours."""
    pod = {
        "metadata": {
            "name": f"orders-{number}-0",
            "annotations": {RESTART_HASH: hash_ or restart_hash(DECLARED, DECLARED.image)},
            "creationTimestamp": "2026-11-21T22:00:00Z",
        },
        "status": status,
    }
    return replace(instance(number), pod=decode_builtins(pod, Pod))


def step_of(two: Instance, **said: Any) -> object:
    fields = {"synchronous": False, **said}
    return next_action(DECLARED, cluster_state([*THREE[:2], two], primary(0), member(1), member(2, **fields)))


def test_replica_with_corrupt_data_is_replaced() -> None:
    replaced = RemoveInstance(2, "its data are corrupt", has_failed=True)
    assert step_of(broken(2), state="StartFailed") == replaced
    assert step_of(broken(2), state="Running", timeline_diverged=True) == replaced
    for broke in ({"state": "StartFailed"}, {"state": "Offline", "timeline_diverged": True}):
        assert isinstance(step_of(broken(2), maybe_errant=True, **broke), Wait), (
            "what it alone may have a person gives up"
        )
    assert isinstance(step_of(broken(2), state="Starting"), Wait), "it recovers"
    ended = {"name": "server", "image": "", "lastState": {"terminated": {"exitCode": 65}}}
    assert step_of(broken(2, containerStatuses=[ended]), state="Stopped") == replaced
    replays = {**ended, "state": {"running": {"startedAt": "2026-11-21T22:01:00Z"}}}
    assert isinstance(step_of(broken(2, containerStatuses=[replays]), state="Starting"), Wait), "it was readable then"
    counted = step_of(broken(2, containerStatuses=[{**ended, "state": {}}]), state="Stopped", synchronous=True)
    assert isinstance(counted, Wait), "the primary counts on it"
    ended = {"name": "server", "image": "", "lastState": {"terminated": {"exitCode": 1}}}
    assert isinstance(step_of(broken(2, containerStatuses=[ended]), state="Stopped"), Wait)


@pytest.mark.parametrize("misread", [None, True])
def test_failing_replica_stays_unless_running_server_reads_file(misread: bool | None) -> None:
    members = (primary(0), member(1), member(2, synchronous=False, state="StartFailed"))
    seen = replace(cluster_state([*THREE[:2], broken(2)], *members), config_unreadable=misread)
    assert isinstance(next_action(DECLARED, seen), Wait), "a copy may not start, either"


def test_replica_failing_on_new_settings_is_not_replaced() -> None:
    """The primary's pod is the former declaration's."""
    old = instance(0, hash_="old")
    seen = cluster_state([old, THREE[1], broken(2)], primary(0), member(1), member(2, state="StartFailed"))
    assert isinstance(next_action(DECLARED, seen), Wait)


def test_full_replica_is_not_cloned_to_same_size() -> None:
    assert isinstance(step_of(broken(2), state="StartFailed", storage=FULL), Wait)
