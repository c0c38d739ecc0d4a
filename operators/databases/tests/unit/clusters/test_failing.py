"""The planner about instances that do not come back by themselves: who is renewed or replaced, and who never."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import pytest
from msgspec import structs

from database_support.planned_cluster import NOW, THREE, VIEW, WELL, asking, instance, member, observed, primary
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman.meta import decode_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.clusters.observed import RESTART_HASH, Instance
from steersman_databases.clusters.plan import next_step
from steersman_databases.clusters.rollout import restart_hash
from steersman_databases.clusters.steps import (
    RenewPod,
    RetireInstance,
    Wait,
)
from steersman_databases.controllers.cluster_status import Findings, describe, judge_trust
from steersman_databases.engines.cluster import Requests, Synchronous

FULL = {"data": 100}


def estranged(*numbers: int, unready: int | None = None) -> list[Instance]:
    """Three instances, of which these trust authorities that are lost."""
    made = [instance(n, ready=n != unready) for n in range(3)]
    return [replace(i, estranged=i.number in numbers) for i in made]


def test_who_trusts_lost_authorities_is_renewed_and_the_primary_last() -> None:
    because = "it trusts only authorities whose Secrets are lost"
    members = (primary(1), member(0), member(2))
    assert next_step(VIEW, observed(estranged(0, 1, 2), *members)) == RenewPod(0, because)
    # Who was renewed cannot follow the primary yet; but it is to be there.
    strays = (primary(1), member(0, state="Running"), member(2))
    assert next_step(VIEW, observed(estranged(1, 2), *strays)) == RenewPod(2, because)
    assert isinstance(next_step(VIEW, observed(estranged(1, 2, unready=0), *strays)), Wait)
    assert next_step(VIEW, observed(estranged(1), *members)) == RenewPod(1, because)
    assert next_step(VIEW, observed([*estranged(0)[:1]], primary(0))) == RenewPod(0, because), "nobody else is there"
    fenced = next_step(asking(fenced=frozenset({1})), observed(estranged(1), *members))
    assert not (isinstance(fenced, RenewPod) and fenced.because == because)


def test_a_cluster_is_not_ready_while_nobody_can_verify_a_server() -> None:
    """From the first refusal on, and not only when it is clear that a server has to be restarted for it."""
    findings, declared = Findings(), PostgreSQLCluster(spec=PostgreSQLClusterSpec())
    known: list[Instance] = []
    for one in WELL.instances:
        assert one.pod is not None
        metadata = structs.replace(one.pod.metadata, uid=str(one.number))
        known.append(replace(one, pod=structs.replace(one.pod, metadata=metadata)))
    seen = replace(WELL, instances=known)
    for strangers, ready in ((set[str](), "ClusterReady"), ({"1", "2"}, "Degraded"), ({"7"}, "ClusterReady")):
        findings = Findings()
        judge_trust(VIEW, seen, strangers, findings)
        describe(declared, VIEW, None, findings)
        assert findings.found["Ready"].reason == ready
    judge_trust(VIEW, seen, {"1", "2"}, findings)
    told = findings.found["CertificatesValid"]
    assert (told.holds, told.reason) == (False, "NotTrusted") and told.message.startswith("orders-1, orders-2 and")


@pytest.mark.parametrize("mode", ["Off", "Quorum"])
def test_no_primary_is_renewed_while_somebody_lacks_what_it_committed(mode: Literal["Off", "Quorum"]) -> None:
    view = replace(VIEW, synchronous=Synchronous(mode=mode))
    strays = (member(0, state="Running"), member(2))
    assert isinstance(next_step(view, observed(estranged(1), primary(1), *strays)), Wait)
    led = observed(estranged(1), member(1, state="Starting"), *strays, leader=1)
    assert isinstance(next_step(view, led), Wait), "it holds the lock and does not serve yet"
    lost = estranged(1)
    lost[2] = replace(lost[2], data=None)
    assert next_step(view, observed(lost, primary(1), member(0))) == RetireInstance(
        2, "its volume is gone", failed=True
    )
    without = replace(view, requests=Requests(fenced=frozenset({0})))
    fenced = [instance(0, fenced=True), *estranged(1)[1:]]
    assert isinstance(next_step(without, observed(fenced, primary(1), member(2))), RenewPod)


def test_who_trusts_lost_authorities_and_has_no_room_serves_on() -> None:
    """It may not come up again."""
    seen = observed(estranged(0, 1), primary(1, storage=FULL), member(0), member(2))
    assert next_step(VIEW, seen) == RenewPod(0, "it trusts only authorities whose Secrets are lost")
    full = Wait("DiskFull", "no room is left at orders-1")
    assert next_step(VIEW, observed(estranged(1), primary(1, storage=FULL), member(0), member(2))) == full


def test_never_replaces_the_primary_nor_without_one() -> None:
    lost = [replace(THREE[0], data=None), *THREE[1:]]
    assert not isinstance(next_step(VIEW, observed(lost, primary(0), member(1), member(2))), RetireInstance)
    lost = [*THREE[:2], replace(THREE[2], data=None)]
    assert isinstance(next_step(VIEW, observed(lost, member(0), member(1), member(2), leader=None)), Wait)
    assert next_step(VIEW, observed(lost, primary(0), member(1), member(2))) == RetireInstance(
        2, "its volume is gone", failed=True
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


def test_who_is_full_and_serves_nobody_is_renewed_where_its_volume_grows_then() -> None:
    renewed = RenewPod(1, "its volume is full, and has become larger")
    all_full = [member(n, state="Running", storage=FULL) for n in range(3)]
    three = [grown(n, ready=False) for n in range(3)]
    assert next_step(VIEW, observed(three, *all_full, leader=1)) == renewed, "who led has most"
    assert next_step(VIEW, observed(three, *all_full, former_leader=1)) == renewed
    one = observed([instance(0), grown(1), instance(2)], primary(0), all_full[1], member(2))
    assert next_step(VIEW, one) == renewed
    # Who is renewed is there before the next.
    seen = observed([grown(0), instance(1, ready=False), instance(2)], all_full[0], member(1), member(2), leader=1)
    assert isinstance(next_step(VIEW, seen), Wait)
    serves = observed([grown(0), *THREE[1:]], primary(0, storage=FULL), member(1), member(2))
    assert next_step(VIEW, serves) is None, "it may go on, and somebody asks for its restart"


def test_without_synchronous_replication_who_led_is_not_renewed_where_another_may_take_over() -> None:
    """It would lack what was committed last, and nobody asked for that."""
    alone = replace(VIEW, synchronous=Synchronous(mode="Off"))
    led = [instance(0), grown(1, ready=False), instance(2)]
    full = member(1, state="Running", storage=FULL)
    others = (member(0, synchronous=False), member(2, storage=FULL, synchronous=False))
    for holder in ({"leader": 1}, {"former_leader": 1}):
        step = next_step(alone, observed(led, full, *others, **holder))
        assert isinstance(step, Wait) and step.reason == "DiskFull"
        assert "orders-0 may take over" in step.message and "delete orders-1-0" in step.message
        assert isinstance(next_step(VIEW, observed(led, full, *others, **holder)), RenewPod), "only who has all may"
    nobody = [instance(0, fenced=True), *led[1:]]
    without = replace(alone, requests=Requests(fenced=frozenset({0})))
    assert isinstance(next_step(without, observed(nobody, full, others[1], leader=1)), RenewPod), "nobody may"
    assert isinstance(next_step(replace(alone, instances=1), observed([led[1]], full, leader=1)), RenewPod)


@pytest.mark.parametrize("since", [-30, -7200])
def test_a_growth_that_is_under_way_or_that_a_start_did_not_bring_restarts_nobody(since: int) -> None:
    one = grown(1, since=timedelta(seconds=since))
    seen = observed([instance(0), one, instance(2)], primary(0), member(1, storage=FULL), member(2))
    assert next_step(VIEW, seen) is None


def broken(number: int, hash_: str = "", **status: Any) -> Instance:
    """One whose server has not been ready for two hours."""
    pod = {
        "metadata": {
            "name": f"orders-{number}-0",
            "annotations": {RESTART_HASH: hash_ or restart_hash(VIEW, VIEW.image)},
            "creationTimestamp": "2026-11-21T22:00:00Z",
        },
        "status": status,
    }
    return replace(instance(number), pod=decode_builtins(pod, Pod))


def step_of(two: Instance, **said: Any) -> object:
    fields = {"synchronous": False, **said}
    return next_step(VIEW, observed([*THREE[:2], two], primary(0), member(1), member(2, **fields)))


def test_a_replica_with_broken_data_is_replaced() -> None:
    replaced = RetireInstance(2, "its data are broken", failed=True)
    assert step_of(broken(2), state="StartFailed") == replaced
    assert step_of(broken(2), state="Running", diverged=True) == replaced
    for broke in ({"state": "StartFailed"}, {"state": "Offline", "diverged": True}):
        assert isinstance(step_of(broken(2), apart=True, **broke), Wait), "what it alone may have a person gives up"
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
def test_a_replica_that_does_not_start_stays_unless_a_server_that_runs_reads_its_file(misread: bool | None) -> None:
    members = (primary(0), member(1), member(2, synchronous=False, state="StartFailed"))
    seen = replace(observed([*THREE[:2], broken(2)], *members), misread=misread)
    assert isinstance(next_step(VIEW, seen), Wait), "a copy may not start, either"


def test_a_replica_that_fails_with_what_is_new_is_not_replaced_by_another_that_would() -> None:
    """The primary's pod is the former declaration's."""
    old = instance(0, hash_="old")
    seen = observed([old, THREE[1], broken(2)], primary(0), member(1), member(2, state="StartFailed"))
    assert isinstance(next_step(VIEW, seen), Wait)


def test_a_replica_without_room_is_not_copied_to_a_volume_that_is_as_small() -> None:
    assert isinstance(step_of(broken(2), state="StartFailed", storage=FULL), Wait)
