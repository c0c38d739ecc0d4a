"""Nobody grants what he does not have himself."""

from __future__ import annotations

from apiserver_cases.api import Api, Json
from apiserver_cases.roles import RBAC, RBAC_PATH, binding, grant, role, rule, until_allowed, user

_MANAGE = rule("get create update patch", "roles rolebindings", RBAC)
_MISSING = "is attempting to grant RBAC permissions not currently held:\n"


async def _kate(api: Api, *rules: Json) -> Api:
    """Somebody who may manage roles in the namespace, and do what ``rules`` say."""
    await grant(api, user("kate"), _MANAGE, *rules)
    return api.as_user("kate", "makers")


async def case_a_role_of_what_one_has(api: Api) -> None:
    kate = await _kate(api, rule("get list", "configmaps"), rule("get", "secrets", resourceNames=["a"]))
    (await kate.create("roles", role("some", rule("get", "configmaps")))).ok()
    (await kate.create("roles", role("named", rule("get", "configmaps", resourceNames=["x"])))).ok()
    (await kate.create("roles", role("same", rule("get", "secrets", resourceNames=["a"])))).ok()
    refused = await kate.create("roles", role("more", rule("get", "secrets")))
    refused.refused(403, "Forbidden")
    assert refused.message == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "kate" (groups=["makers" "system:authenticated"]) '
        + _MISSING
        + '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert refused.body["details"] == {"name": "more", "group": RBAC, "kind": "roles"}


async def case_what_is_missing_is_listed(api: Api) -> None:
    kate = await _kate(api)
    wide = rule("get delete", "configmaps pods/status", "core apps", resourceNames=["b", "a"])
    refused = (await kate.create("roles", role("wide", wide, rule("*", "*", "*")))).refused(403, "Forbidden")
    lines = refused.message.split("\n")[1:]
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


async def case_a_role_is_not_widened_either(api: Api) -> None:
    kate = await _kate(api, rule("get", "configmaps"))
    (await kate.create("roles", role("r", rule("get", "configmaps")))).ok()
    (await kate.put("roles", role("r", rule("get", "secrets")))).refused(403, "Forbidden", _MISSING)
    patch = {"rules": [rule("delete", "configmaps")]}
    (await kate.merge("roles", "r", patch)).refused(403, "Forbidden", _MISSING)
    applied = {"apiVersion": f"{RBAC}/v1", "kind": "Role", **role("r", rule("delete", "configmaps"))}
    (await kate.apply("roles", applied, force=True)).refused(403, "Forbidden", _MISSING)
    # Who may put and create makes a new one by PUT, judged alike.
    (await kate.put("roles", role("new", rule("get", "secrets")))).refused(403, "Forbidden", _MISSING)
    (await kate.put("roles", role("new", rule("get", "configmaps")))).ok()


async def case_a_role_that_grants_too_much_already(api: Api) -> None:
    kate = await _kate(api)
    (await api.create("roles", role("r", rule("get", "secrets")))).ok()
    (await kate.merge("roles", "r", {"metadata": {"labels": {"a": "b"}}})).refused(403, "Forbidden", _MISSING)
    (await kate.merge("roles", "r", {"metadata": {"finalizers": ["x.dev/y"]}})).ok()
    (await api.merge("roles", "r", {"metadata": {"finalizers": []}})).ok()


async def case_the_verb_escalate(api: Api) -> None:
    kate = await _kate(api, rule("escalate", "roles", RBAC, resourceNames=["r"]))
    (await api.create("roles", role("r"))).ok()
    (await kate.put("roles", role("r", rule("get", "secrets")))).ok()
    (await kate.create("roles", role("q", rule("get", "secrets")))).refused(403, "Forbidden", _MISSING)


async def case_a_binding_to_what_one_has(api: Api) -> None:
    kate = await _kate(api, rule("get", "configmaps"))
    (await api.create("roles", role("little", rule("get", "configmaps")))).ok()
    (await api.create("roles", role("much", rule("get", "secrets")))).ok()
    (await kate.create("rolebindings", binding("little", "little", user("liz")))).ok()
    refused = await kate.create("rolebindings", binding("much", "much", user("liz")))
    refused.refused(403, "Forbidden")
    assert refused.message == (
        'rolebindings.rbac.authorization.k8s.io "much" is forbidden: user "kate" (groups=["makers" '
        '"system:authenticated"]) ' + _MISSING + '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    admin = binding("admin", "cluster-admin", user("liz"), kind="ClusterRole")
    paths = '{NonResourceURLs:["*"], Verbs:["*"]}'
    missing = '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}\n' + paths
    assert (await kate.create("rolebindings", admin)).refused(403, "Forbidden").message.endswith(_MISSING + missing)


async def case_the_verb_bind(api: Api) -> None:
    kate = await _kate(api, rule("bind", "roles", RBAC, resourceNames=["much"]))
    for name in ("much", "other"):
        (await api.create("roles", role(name, rule("get", "secrets")))).ok()
    (await kate.create("rolebindings", binding("much", "much", user("liz")))).ok()
    (await kate.create("rolebindings", binding("other", "other", user("liz")))).refused(403, "Forbidden", _MISSING)


async def case_a_binding_to_no_role(api: Api) -> None:
    kate = await _kate(api)
    for kind in ("Role", "ClusterRole"):
        refused = await kate.create("rolebindings", binding("b", "nowhere", user("liz"), kind=kind))
        refused.refused(404, "NotFound")
        assert refused.message == 'rolebindings.rbac.authorization.k8s.io "nowhere" not found', refused.body
    (await api.create("rolebindings", binding("b", "nowhere", user("liz")))).ok()


async def case_cluster_roles(api: Api) -> None:
    name = f"maker-{api.namespace}"
    manage = rule("create", "clusterroles clusterrolebindings", RBAC)
    (await api.call("POST", f"{RBAC_PATH}/clusterroles", role(name, manage))).ok()
    bound = binding(name, name, user(name), kind="ClusterRole")
    (await api.call("POST", f"{RBAC_PATH}/clusterrolebindings", bound)).ok()
    await until_allowed(api, user(name), manage)
    maker = api.as_user(name)
    paths = {"metadata": {"name": "x"}, "rules": [{"nonResourceURLs": ["/metrics", "/x/*"], "verbs": ["get"]}]}
    refused = (await maker.call("POST", f"{RBAC_PATH}/clusterroles", paths)).refused(403, "Forbidden")
    assert refused.message.split("\n")[1:] == [
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}',
        '{NonResourceURLs:["/x/*"], Verbs:["get"]}',
    ]
    selector = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    aggregated: Json = {"metadata": {"name": "x"}, "aggregationRule": selector, "rules": []}
    refused = (await maker.call("POST", f"{RBAC_PATH}/clusterroles", aggregated)).refused(403, "Forbidden")
    because = "must have cluster-admin privileges to use the aggregationRule"
    assert refused.message == f'clusterroles.rbac.authorization.k8s.io "x" is forbidden: {because}'
    everything = binding(f"{name}-2", "cluster-admin", user("liz"), kind="ClusterRole")
    (await maker.call("POST", f"{RBAC_PATH}/clusterrolebindings", everything)).refused(403, "Forbidden", _MISSING)
