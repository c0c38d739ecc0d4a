"""A StatefulSet that somebody deleted without its pod: the next one has the image that the pod runs."""

from __future__ import annotations

from dataclasses import replace

from planned_cluster import VIEW, instance, observed, primary
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod
from steersman.meta import decode_builtins, to_builtins
from steersman_databases.clusters.observed import Instance
from steersman_databases.clusters.plan import next_step
from steersman_databases.clusters.rollout import restart_hash, wanted_image

OLD = "postgresql:17-of-the-former-release"
ONE = replace(VIEW, instances=1)


def orphan() -> Instance:
    """The only instance: its pod runs what the former release of the operator had."""
    one = instance(0, hash_=restart_hash(ONE, OLD))
    pod = to_builtins(one.pod)
    pod["spec"] = {"containers": [{"name": "server", "image": OLD}]}
    pod["metadata"].pop("ownerReferences", None)
    return replace(one, pod=decode_builtins(pod, Pod), statefulset=None)


def test_its_image_stays() -> None:
    alone = orphan()
    assert wanted_image(ONE, observed([alone], primary(0)), alone) == OLD


def test_it_goes_on_where_it_is_not_adopted_yet() -> None:
    alone = orphan()
    image = wanted_image(ONE, observed([alone], primary(0)), alone)
    template = {"spec": {"containers": [{"name": "server", "image": image}]}}
    made = {"metadata": {"name": "orders-0", "uid": "new"}, "spec": {"replicas": 1, "template": template}}
    again = replace(alone, statefulset=decode_builtins(made, StatefulSet))
    assert next_step(ONE, observed([again], primary(0))) is None


def test_what_runs_under_somebody_elses_control_counts_for_nothing() -> None:
    alone = orphan()
    pod = to_builtins(alone.pod)
    theirs = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "theirs", "uid": "t", "controller": True}
    pod["metadata"]["ownerReferences"] = [theirs]
    stranger = replace(alone, pod=decode_builtins(pod, Pod))
    assert wanted_image(ONE, observed([stranger], primary(0)), stranger) == ONE.image
