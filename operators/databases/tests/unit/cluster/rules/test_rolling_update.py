"""The planner about images: who stays with what it runs, and who is made anew with another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from database_support.unit.planned_cluster import DECLARED, cluster_state, instance, member, primary
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import decode_builtins, to_builtins
from steersman_databases.cluster.actions import RecreatePod, Wait
from steersman_databases.cluster.planner import next_action
from steersman_databases.cluster.rules.pod_hashes import restart_hash
from steersman_databases.cluster.rules.rolling_update import target_image
from steersman_databases.cluster.state import Instance

OLD = "postgresql:17-of-the-former-release"
ALONE = replace(DECLARED, instances=1)


def orphaned(number: int = 0, image: str = OLD, *, ready: bool = True) -> Instance:
    """One whose StatefulSet somebody deleted without its pod, which runs on."""
    one = instance(number, hash_=restart_hash(DECLARED, image), ready=ready)
    wire: dict[str, Any] = to_builtins(one.pod)
    del wire["metadata"]["ownerReferences"]
    wire["spec"] = {"containers": [{"name": "server", "image": image}]}
    return replace(one, pod=decode_builtins(wire, Pod), statefulset=None)


def with_statefulset(one: Instance, image: str) -> Instance:
    """The same, once its StatefulSet is made anew and before that has adopted the pod."""
    template = {"spec": {"containers": [{"name": "server", "image": image}]}}
    metadata = {"name": f"orders-{one.ordinal}", "uid": "anew"}
    made = {"metadata": metadata, "spec": {"replicas": 1, "template": template}}
    return replace(one, statefulset=decode_builtins(made, StatefulSet))


@pytest.mark.parametrize("ready", [False, True])
def test_recreated_statefulset_keeps_running_image(*, ready: bool) -> None:
    one = orphaned(ready=ready)
    assert target_image(ALONE, cluster_state([one], primary(0)), one) == (OLD if ready else DECLARED.image)


def test_foreign_controlled_pod_is_ignored() -> None:
    one = orphaned()
    wire: dict[str, Any] = to_builtins(one.pod)
    theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "theirs", "uid": "t", "controller": True}
    wire["metadata"]["ownerReferences"] = [theirs]
    stranger = replace(one, pod=decode_builtins(wire, Pod))
    assert target_image(ALONE, cluster_state([stranger], primary(0)), stranger) == DECLARED.image


@pytest.mark.parametrize("image", [OLD, DECLARED.image])
def test_server_keeps_running_while_statefulset_recreated(image: str) -> None:
    again = with_statefulset(orphaned(), image)
    assert next_action(ALONE, cluster_state([again], primary(0))) is None


def test_orphan_pod_is_not_recreated_before_adoption() -> None:
    """Whatever its StatefulSet has by then; who is adopted is renewed meanwhile, but for the primary."""
    declared = replace(DECLARED, image="postgresql:17.9", has_explicit_image=True)
    two = with_statefulset(orphaned(2, DECLARED.image), DECLARED.image)
    members = (primary(0), member(1), member(2))
    step = next_action(declared, cluster_state([instance(0), instance(1), two], *members))
    assert isinstance(step, RecreatePod) and step.instance == 1
    renewed = instance(1, hash_=restart_hash(declared, declared.image))
    step = next_action(declared, cluster_state([instance(0), renewed, two], *members))
    assert step == Wait("RollingOut", "waiting for StatefulSet orders-2 to adopt pod orders-2-0")


def test_stuck_orphan_pod_is_not_recreated_before_adoption() -> None:
    declared = replace(DECLARED, image="postgresql:17.9", has_explicit_image=True)
    two = with_statefulset(orphaned(2, DECLARED.image, ready=False), DECLARED.image)
    pending = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]}
    wire: dict[str, Any] = to_builtins(two.pod)
    stuck = replace(two, pod=decode_builtins({**wire, "status": pending}, Pod))
    seen = cluster_state([instance(0), instance(1), stuck], primary(0), member(1))
    assert not isinstance(next_action(declared, seen), RecreatePod)
