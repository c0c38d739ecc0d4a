"""Comparison of roles with needed permissions."""

from __future__ import annotations

from typing import Any

import pytest

from framework_support.crd_twins import v1
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.controller import Permission
from steersman_manifests.rbac import (
    ResourceAccess,
    compare_role,
    editor_role,
    policy_rules,
    resource_accesses,
    viewer_role,
)

NEEDED = (
    Permission(Deployment.api_resource, ("get", "patch")),
    Permission(Deployment.api_resource, ("patch",), subresource="status"),
    Permission(ConfigMap.api_resource, ("get",)),
    Permission(Secret.api_resource, ("get",), names=("ca",)),
)


def rule(groups: str, resources: str, verbs: str, *names: str) -> dict[str, Any]:
    found: dict[str, Any] = {"apiGroups": [groups], "resources": resources.split(), "verbs": verbs.split()}
    return {**found, "resourceNames": list(names)} if names else found


def compare_texts(*rules: dict[str, Any]) -> tuple[list[str], list[str]]:
    found = compare_role(rules, resource_accesses(NEEDED))
    return [str(a) for a in found.missing], [str(a) for a in found.superfluous]


def test_generated_role_matches_permissions() -> None:
    assert compare_texts(*policy_rules(NEEDED)) == ([], [])


def test_rbac_check_reports_missing_and_superfluous() -> None:
    missing, superfluous = compare_texts(
        rule("apps", "deployments", "get patch delete"),
        rule("", "configmaps", "get"),
        rule("", "secrets", "get", "tls"),
    )
    assert missing == ["get secrets 'ca'", "patch deployments/status.apps"]
    assert superfluous == ["get secrets 'tls'", "delete deployments.apps"]


def test_wildcard_rule_is_superfluous() -> None:
    assert compare_texts(rule("*", "*", "*")) == ([], ["* *.*"])
    assert compare_texts(rule("apps", "deployments */status", "get patch"), *policy_rules(NEEDED[2:])) == (
        [],
        ["get */status.apps", "patch */status.apps"],
    )


def test_missing_names_are_reported_as_one_access() -> None:
    needed = {ResourceAccess("", "secrets", "get", name) for name in ("a", "b", "ca")}
    found = compare_role([rule("", "secrets", "get", "ca")], needed)
    assert (found.missing, found.superfluous) == ((ResourceAccess("", "secrets", "get"),), ())


@pytest.mark.parametrize("aggregate", [False, True])
def test_user_roles_match_kubebuilder(aggregate: bool) -> None:
    editor, viewer = (f("tasks", v1.Task, aggregate=aggregate) for f in (editor_role, viewer_role))
    assert editor["rules"][0]["verbs"] == ["create", "delete", "get", "list", "patch", "update", "watch"]
    assert viewer["rules"][0]["verbs"] == ["get", "list", "watch"]
    assert editor["rules"][1] == {"apiGroups": ["twins.example.com"], "resources": ["tasks/status"], "verbs": ["get"]}
    labels = {f"rbac.authorization.k8s.io/aggregate-to-{to}": "true" for to in ("admin", "edit")}
    assert editor["metadata"].get("labels", {}) == (labels if aggregate else {})


def test_editor_role_includes_scale_subresource() -> None:
    assert [rule["resources"] for rule in editor_role("w", v1.Workload)["rules"]][2:] == [["workloads/scale"]]
    assert [rule["resources"] for rule in editor_role("t", v1.Task)["rules"]][2:] == []
