"""Prevention of privilege escalation."""

from __future__ import annotations

from apiserver_cases.api import Api, Json
from apiserver_cases.roles import (
    RBAC,
    RBAC_PATH,
    binding_manifest,
    grant_in_namespace,
    policy_rule,
    role_manifest,
    user_subject,
    wait_until_allowed,
)

_MANAGE_ROLES = policy_rule("get create update patch", "roles rolebindings", RBAC)
_ESCALATION_ERROR = "is attempting to grant RBAC permissions not currently held:\n"


async def _limited_admin(api: Api, *rules: Json) -> Api:
    """Return a user with ``rules`` who may manage roles."""
    await grant_in_namespace(api, user_subject("kate"), _MANAGE_ROLES, *rules)
    return api.as_user("kate", "makers")


async def case_role_of_held_permissions(api: Api) -> None:
    kate = await _limited_admin(
        api, policy_rule("get list", "configmaps"), policy_rule("get", "secrets", resourceNames=["a"])
    )
    (await kate.create("roles", role_manifest("some", policy_rule("get", "configmaps")))).expect_success()
    (
        await kate.create("roles", role_manifest("named", policy_rule("get", "configmaps", resourceNames=["x"])))
    ).expect_success()
    (
        await kate.create("roles", role_manifest("same", policy_rule("get", "secrets", resourceNames=["a"])))
    ).expect_success()
    rejected = await kate.create("roles", role_manifest("more", policy_rule("get", "secrets")))
    rejected.expect_error(403, "Forbidden")
    assert rejected.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "kate" (groups=["makers" "system:authenticated"]) '
        + _ESCALATION_ERROR
        + '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert rejected.body["details"] == {"name": "more", "group": RBAC, "kind": "roles"}


async def case_missing_permissions_are_listed(api: Api) -> None:
    kate = await _limited_admin(api)
    wide = policy_rule("get delete", "configmaps pods/status", "core apps", resourceNames=["b", "a"])
    rejected = (await kate.create("roles", role_manifest("wide", wide, policy_rule("*", "*", "*")))).expect_error(
        403, "Forbidden"
    )
    lines = rejected.message.split("\n")[1:]
    assert lines == sorted(lines)
    assert lines == [
        '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["a"], Verbs:["get" "delete"]}',
        '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["b"], Verbs:["get" "delete"]}',
        '{APIGroups:[""], Resources:["pods/status"], ResourceNames:["a"], Verbs:["get" "delete"]}',
        '{APIGroups:[""], Resources:["pods/status"], ResourceNames:["b"], Verbs:["get" "delete"]}',
        '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}',
        '{APIGroups:["apps"], Resources:["configmaps"], ResourceNames:["a"], Verbs:["get" "delete"]}',
        '{APIGroups:["apps"], Resources:["configmaps"], ResourceNames:["b"], Verbs:["get" "delete"]}',
        '{APIGroups:["apps"], Resources:["pods/status"], ResourceNames:["a"], Verbs:["get" "delete"]}',
        '{APIGroups:["apps"], Resources:["pods/status"], ResourceNames:["b"], Verbs:["get" "delete"]}',
    ]


async def case_role_update_cannot_escalate(api: Api) -> None:
    kate = await _limited_admin(api, policy_rule("get", "configmaps"))
    (await kate.create("roles", role_manifest("r", policy_rule("get", "configmaps")))).expect_success()
    (await kate.put("roles", role_manifest("r", policy_rule("get", "secrets")))).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )
    patch = {"rules": [policy_rule("delete", "configmaps")]}
    (await kate.merge("roles", "r", patch)).expect_error(403, "Forbidden", _ESCALATION_ERROR)
    applied = {"apiVersion": f"{RBAC}/v1", "kind": "Role", **role_manifest("r", policy_rule("delete", "configmaps"))}
    (await kate.apply("roles", applied, force=True)).expect_error(403, "Forbidden", _ESCALATION_ERROR)
    # A PUT that creates a role is checked in the same way.
    (await kate.put("roles", role_manifest("new", policy_rule("get", "secrets")))).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )
    (await kate.put("roles", role_manifest("new", policy_rule("get", "configmaps")))).expect_success()


async def case_unchanged_role_may_be_written(api: Api) -> None:
    kate = await _limited_admin(api)
    (await api.create("roles", role_manifest("r", policy_rule("get", "secrets")))).expect_success()
    (await kate.merge("roles", "r", {"metadata": {"labels": {"a": "b"}}})).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )
    (await kate.merge("roles", "r", {"metadata": {"finalizers": ["x.dev/y"]}})).expect_success()
    (await api.merge("roles", "r", {"metadata": {"finalizers": []}})).expect_success()


async def case_verb_escalate(api: Api) -> None:
    kate = await _limited_admin(api, policy_rule("escalate", "roles", RBAC, resourceNames=["r"]))
    (await api.create("roles", role_manifest("r"))).expect_success()
    (await kate.put("roles", role_manifest("r", policy_rule("get", "secrets")))).expect_success()
    (await kate.create("roles", role_manifest("q", policy_rule("get", "secrets")))).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )


async def case_binding_to_held_permissions(api: Api) -> None:
    kate = await _limited_admin(api, policy_rule("get", "configmaps"))
    (await api.create("roles", role_manifest("little", policy_rule("get", "configmaps")))).expect_success()
    (await api.create("roles", role_manifest("much", policy_rule("get", "secrets")))).expect_success()
    (await kate.create("rolebindings", binding_manifest("little", "little", user_subject("liz")))).expect_success()
    rejected = await kate.create("rolebindings", binding_manifest("much", "much", user_subject("liz")))
    rejected.expect_error(403, "Forbidden")
    assert rejected.message == (
        'rolebindings.rbac.authorization.k8s.io "much" is forbidden: user "kate" (groups=["makers" '
        '"system:authenticated"]) ' + _ESCALATION_ERROR + '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    admin = binding_manifest("admin", "cluster-admin", user_subject("liz"), kind="ClusterRole")
    paths = '{NonResourceURLs:["*"], Verbs:["*"]}'
    missing = '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n' + paths
    assert (
        (await kate.create("rolebindings", admin))
        .expect_error(403, "Forbidden")
        .message.endswith(_ESCALATION_ERROR + missing)
    )


async def case_verb_bind(api: Api) -> None:
    kate = await _limited_admin(api, policy_rule("bind", "roles", RBAC, resourceNames=["much"]))
    for name in ("much", "other"):
        (await api.create("roles", role_manifest(name, policy_rule("get", "secrets")))).expect_success()
    (await kate.create("rolebindings", binding_manifest("much", "much", user_subject("liz")))).expect_success()
    (await kate.create("rolebindings", binding_manifest("other", "other", user_subject("liz")))).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )


async def case_binding_to_missing_role(api: Api) -> None:
    kate = await _limited_admin(api)
    for kind in ("Role", "ClusterRole"):
        rejected = await kate.create("rolebindings", binding_manifest("b", "nowhere", user_subject("liz"), kind=kind))
        rejected.expect_error(404, "NotFound")
        assert rejected.message == 'rolebindings.rbac.authorization.k8s.io "nowhere" not found', rejected.body
    (await api.create("rolebindings", binding_manifest("b", "nowhere", user_subject("liz")))).expect_success()


async def case_cluster_roles(api: Api) -> None:
    name = f"maker-{api.namespace}"
    manage = policy_rule("create", "clusterroles clusterrolebindings", RBAC)
    (await api.call("POST", f"{RBAC_PATH}/clusterroles", role_manifest(name, manage))).expect_success()
    bound = binding_manifest(name, name, user_subject(name), kind="ClusterRole")
    (await api.call("POST", f"{RBAC_PATH}/clusterrolebindings", bound)).expect_success()
    await wait_until_allowed(api, user_subject(name), manage)
    maker = api.as_user(name)
    paths = {"metadata": {"name": "x"}, "rules": [{"nonResourceURLs": ["/metrics", "/x/*"], "verbs": ["get"]}]}
    rejected = (await maker.call("POST", f"{RBAC_PATH}/clusterroles", paths)).expect_error(403, "Forbidden")
    assert rejected.message.split("\n")[1:] == [
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}',
        '{NonResourceURLs:["/x/*"], Verbs:["get"]}',
    ]
    selector = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    aggregated: Json = {"metadata": {"name": "x"}, "aggregationRule": selector, "rules": []}
    rejected = (await maker.call("POST", f"{RBAC_PATH}/clusterroles", aggregated)).expect_error(403, "Forbidden")
    because = "must have cluster-admin privileges to use the aggregationRule"
    assert rejected.message == f'clusterroles.rbac.authorization.k8s.io "x" is forbidden: {because}'
    everything = binding_manifest(f"{name}-2", "cluster-admin", user_subject("liz"), kind="ClusterRole")
    (await maker.call("POST", f"{RBAC_PATH}/clusterrolebindings", everything)).expect_error(
        403, "Forbidden", _ESCALATION_ERROR
    )
