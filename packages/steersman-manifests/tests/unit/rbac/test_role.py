"""Roles generated from permissions."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from steersman.controller import Permission
from steersman.meta import ApiResource
from steersman_manifests.rbac import cluster_role, leader_election_role, metrics_reader_role, policy_rules

PODS = ApiResource("", "v1", "Pod", "pods")
SECRETS = ApiResource("", "v1", "Secret", "secrets")
SETS = ApiResource("apps", "v1", "StatefulSet", "statefulsets")


def test_policy_rules_merge_verbs_and_resources() -> None:
    permissions = (
        Permission(PODS, ("watch", "get")),
        Permission(SECRETS, ("get", "list", "watch")),
        Permission(PODS, ("list",)),
        Permission(SETS, ("get", "list", "watch")),
        Permission(PODS, ("get",), "log"),
    )
    expected = [
        {"apiGroups": [""], "resources": ["pods", "secrets"], "verbs": ["get", "list", "watch"]},
        {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
        {"apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": ["get", "list", "watch"]},
    ]
    for order in permutations(permissions):
        assert policy_rules(order) == expected


def test_policy_rule_sorts_unusual_verbs_last() -> None:
    (rule,) = policy_rules([Permission(PODS, ("impersonate", "delete", "bind", "get"))])
    assert rule["verbs"] == ["get", "delete", "bind", "impersonate"]


resources = st.sampled_from([PODS, SECRETS, SETS])
verbs = st.lists(st.sampled_from(["get", "list", "watch", "create", "patch", "escalate"]), min_size=1, unique=True)
permissions = st.builds(Permission, resources, verbs.map(tuple), st.sampled_from(["", "status"]))


def granted(rules: list[dict[str, list[str]]]) -> list[tuple[str, str, str]]:
    return [(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]]


@given(st.lists(permissions))
def test_policy_rules_grant_exactly_the_permissions(asked: list[Permission]) -> None:
    expected = {
        (p.resource.group, f"{p.resource.plural}/{p.subresource}" if p.subresource else p.resource.plural, verb)
        for p in asked
        for verb in p.verbs
    }
    found = granted(policy_rules(asked))
    assert set(found) == expected
    assert len(found) == len(expected)


def test_cluster_role_is_a_manifest() -> None:
    assert cluster_role("orders-operator", [Permission(PODS, ("get",))]) == {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "orders-operator"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }


def test_leader_election_role_is_limited_to_its_lease() -> None:
    role = leader_election_role("orders-leader-election", "orders-operator", namespace="orders")
    assert role["metadata"] == {"name": "orders-leader-election", "namespace": "orders"}
    create, own = role["rules"]
    assert (create["resources"], create["verbs"]) == (["leases"], ["create"])
    assert "resourceNames" not in create
    assert (own["resourceNames"], own["verbs"]) == (["orders-operator"], ["get", "watch", "patch"])
    assert "namespace" not in leader_election_role("a", "b")["metadata"]


def test_metrics_reader_role_allows_get_metrics() -> None:
    assert metrics_reader_role("reader")["rules"] == [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
