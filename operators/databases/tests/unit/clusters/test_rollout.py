"""The planner about images: who stays with what it runs, and who is made anew with another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from database_support.planned_cluster import VIEW, instance, member, observed, primary
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import decode_builtins, to_builtins
from steersman_databases.clusters.observed import Instance
from steersman_databases.clusters.plan import next_step
from steersman_databases.clusters.rollout import restart_hash, wanted_image
from steersman_databases.clusters.steps import RenewPod, Wait

OLD = "postgresql:17-of-the-former-release"
ALONE = replace(VIEW, instances=1)


def orphaned(number: int = 0, image: str = OLD, *, ready: bool = True) -> Instance:
    """One whose StatefulSet somebody deleted without its pod, which runs on."""
    one = instance(number, hash_=restart_hash(VIEW, image), ready=ready)
    wire: dict[str, Any] = to_builtins(one.pod)
    del wire["metadata"]["ownerReferences"]
    wire["spec"] = {"containers": [{"name": "server", "image": image}]}
    return replace(one, pod=decode_builtins(wire, Pod), statefulset=None)


def with_statefulset(one: Instance, image: str) -> Instance:
    """The same, once its StatefulSet is made anew and before that has adopted the pod."""
    template = {"spec": {"containers": [{"name": "server", "image": image}]}}
    metadata = {"name": f"orders-{one.number}", "uid": "anew"}
    made = {"metadata": metadata, "spec": {"replicas": 1, "template": template}}
    return replace(one, statefulset=decode_builtins(made, StatefulSet))


@pytest.mark.parametrize("ready", [False, True])
def test_a_statefulset_that_is_made_anew_has_the_image_that_its_pod_runs(*, ready: bool) -> None:
    one = orphaned(ready=ready)
    assert wanted_image(ALONE, observed([one], primary(0)), one) == (OLD if ready else VIEW.image)


def test_what_runs_under_somebody_elses_control_counts_for_nothing() -> None:
    one = orphaned()
    wire: dict[str, Any] = to_builtins(one.pod)
    theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "theirs", "uid": "t", "controller": True}
    wire["metadata"]["ownerReferences"] = [theirs]
    stranger = replace(one, pod=decode_builtins(wire, Pod))
    assert wanted_image(ALONE, observed([stranger], primary(0)), stranger) == VIEW.image


@pytest.mark.parametrize("image", [OLD, VIEW.image])
def test_a_server_goes_on_while_its_statefulset_is_made_anew(image: str) -> None:
    again = with_statefulset(orphaned(), image)
    assert next_step(ALONE, observed([again], primary(0))) is None


def test_a_pod_is_not_renewed_before_its_statefulset_has_adopted_it() -> None:
    """Whatever its StatefulSet has by then; who is adopted is renewed meanwhile, but for the primary."""
    declared = replace(VIEW, image="postgresql:17.9", image_given=True)
    two = with_statefulset(orphaned(2, VIEW.image), VIEW.image)
    members = (primary(0), member(1), member(2))
    step = next_step(declared, observed([instance(0), instance(1), two], *members))
    assert isinstance(step, RenewPod) and step.instance == 1
    renewed = instance(1, hash_=restart_hash(declared, declared.image))
    step = next_step(declared, observed([instance(0), renewed, two], *members))
    assert step == Wait("RollingOut", "waiting for StatefulSet orders-2 to adopt pod orders-2-0")


def test_a_pod_that_is_stuck_is_not_renewed_before_its_statefulset_has_adopted_it() -> None:
    declared = replace(VIEW, image="postgresql:17.9", image_given=True)
    two = with_statefulset(orphaned(2, VIEW.image, ready=False), VIEW.image)
    pending = {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node"}]}
    wire: dict[str, Any] = to_builtins(two.pod)
    stuck = replace(two, pod=decode_builtins({**wire, "status": pending}, Pod))
    seen = observed([instance(0), instance(1), stuck], primary(0), member(1))
    assert not isinstance(next_step(declared, seen), RenewPod)
