"""The choice of a leader."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace
from steersman import FrozenDict, ObjectMeta
from steersman.api.coordination_v1 import Lease, LeaseSpec

from leader_operator.api.v1.leaderservice import Leader, LeaderService, LeaderServiceSpec, ServicePort
from leader_operator.controllers.choice import choose_leader, elected_pod, selects, sidecar_problem
from pods import pod

SERVICE = LeaderService(
    metadata=ObjectMeta(name="orders", namespace="default"),
    spec=LeaderServiceSpec(selector=FrozenDict({"app": "orders"}), ports=(ServicePort(port=80),)),
)


def current(name: str) -> Leader:
    return Leader(pod=name, uid=f"uid-{name}", term=3)


def test_leader_stays_while_it_is_ready() -> None:
    pods = [pod("orders-0", since=0), pod("orders-1", since=9)]
    assert choose_leader(pods, current("orders-1")) is pods[1]


def test_pod_with_longest_readiness_is_chosen() -> None:
    pods = [pod("orders-0", since=5), pod("orders-2", since=1), pod("orders-1", since=1)]
    assert choose_leader(pods, None) is pods[2]
    assert choose_leader(pods, current("orders-7")) is pods[2]


def test_unready_and_terminating_pods_are_not_chosen() -> None:
    unready, terminating = pod("orders-0", ready=False), pod("orders-1")
    metadata = replace(terminating.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    pods = [unready, replace(terminating, metadata=metadata)]
    assert choose_leader(pods, current("orders-0")) is None
    assert choose_leader(pods, current("orders-1")) is None
    assert choose_leader([], None) is None


def test_recreated_pod_of_the_same_name_is_not_the_leader() -> None:
    recreated = pod("orders-0")
    leader = Leader(pod="orders-0", uid="uid-of-the-previous-one", term=3)
    pods = [replace(recreated, metadata=replace(recreated.metadata, uid="new")), pod("orders-1", since=-1)]
    assert choose_leader(pods, leader) is pods[1]


def test_elected_pod_is_the_holder_of_the_lease() -> None:
    pods = [pod("orders-0"), pod("orders-1", ready=False)]
    lease = Lease(spec=LeaseSpec(holder_identity="orders-1_uid-orders-1"))
    assert elected_pod(pods, lease) is pods[1]
    assert elected_pod(pods, Lease(spec=LeaseSpec(holder_identity="orders-1_other"))) is None
    assert elected_pod(pods, Lease(spec=LeaseSpec(holder_identity=""))) is None
    assert elected_pod(pods, None) is None


def test_selector_matches_labels_in_the_namespace() -> None:
    assert selects(SERVICE, pod("orders-0", labels={"app": "orders", "tier": "web"}))
    assert not selects(SERVICE, pod("orders-0", labels={"app": "users"}))
    other = pod("orders-0")
    assert not selects(SERVICE, replace(other, metadata=replace(other.metadata, namespace="kitchen")))


def test_sidecar_problem_names_what_is_missing() -> None:
    assert "has no init container" in sidecar_problem(SERVICE, pod("orders-0"))
    assert "has no init container" in sidecar_problem(SERVICE, pod("orders-0", sidecar="users"))
    fenced = pod("orders-0", sidecar="orders")
    assert sidecar_problem(SERVICE, fenced) == ""
    isolated = replace(fenced, spec=replace(fenced.spec, share_process_namespace=None))
    assert "shareProcessNamespace" in sidecar_problem(SERVICE, isolated)
