"""Authorization by roles and bindings."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver_cases.api import Api, Json, config_map, deployment
from apiserver_cases.roles import (
    RBAC_PATH,
    binding_manifest,
    denial_message,
    grant_in_namespace,
    group_subject,
    policy_rule,
    poll,
    role_manifest,
    user_subject,
    wait_until_allowed,
)
from steersman.errors import ApiError

_APPLY = "application/apply-patch+yaml"


def _forbidden_status(text: str, kind: str, group: str = "", name: str = "") -> Json:
    """Return a Status for a forbidden request."""
    subject = f"{kind}.{group}" if group else kind
    resource = f'{subject} "{name}"' if name else subject
    details = {"name": name, "group": group, "kind": kind}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"{resource} is forbidden: {text}",
        "reason": "Forbidden",
        "details": {k: v for k, v in details.items() if v},
        "code": 403,
    }


async def case_users_without_roles_are_denied(api: Api) -> None:
    jane, here = api.as_user("jane"), f'in the namespace "{api.namespace}"'
    pods, cluster = api.path("pods"), "at the cluster scope"
    status = "/apis/apps/v1/namespaces/" + api.namespace + "/deployments/x/status"
    one = {"fieldSelector": "metadata.name=x"}
    calls: list[tuple[str, str, Any, dict[str, str], tuple[str, str, str, str], str]] = [
        ("GET", pods, None, {}, ("list", "pods", "", here), ""),
        ("GET", pods, None, one, ("list", "pods", "", here), "x"),
        ("GET", pods, None, {"fieldSelector": "metadata.name!=x"}, ("list", "pods", "", here), ""),
        ("GET", f"{pods}/x", None, {}, ("get", "pods", "", here), "x"),
        ("POST", pods, config_map("x"), {}, ("create", "pods", "", here), ""),
        ("DELETE", pods, None, one, ("deletecollection", "pods", "", here), ""),
        ("DELETE", f"{pods}/x", None, {}, ("delete", "pods", "", here), "x"),
        ("PATCH", f"{pods}/x", {}, {}, ("patch", "pods", "", here), "x"),
        ("POST", f"{pods}/x/eviction", {}, {}, ("create", "pods/eviction", "", here), "x"),
        ("PUT", status, {}, {}, ("update", "deployments/status", "apps", here), "x"),
        ("GET", "/api/v1/pods", None, {}, ("list", "pods", "", cluster), ""),
        ("GET", "/api/v1/nodes/x", None, {}, ("get", "nodes", "", cluster), "x"),
        ("GET", "/apis/none.dev/v1/foos/x", None, {}, ("get", "foos", "none.dev", cluster), "x"),
        ("GET", "/api/v1/namespaces", None, {}, ("list", "namespaces", "", cluster), ""),
        ("GET", f"/api/v1/namespaces/{api.namespace}", None, {}, ("get", "namespaces", "", here), api.namespace),
    ]
    for method, path, body, query, called, name in calls:
        content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
        response = await jane.call(method, path, body, query, content_type)
        _, resource, of, _ = called
        assert response.body == _forbidden_status(
            denial_message("jane", *called), resource.partition("/")[0], of, name
        ), path


async def case_watch_is_denied_before_the_stream(api: Api) -> None:
    with pytest.raises(ApiError) as denial:
        await api.as_user("jane").events("pods", 1)
    where = f'in the namespace "{api.namespace}"'
    assert denial.value.code == 403
    assert denial.value.status.message == f"pods is forbidden: {denial_message('jane', 'watch', 'pods', '', where)}"


async def case_non_resource_paths(api: Api) -> None:
    jane = api.as_user("jane")
    for path in ("/api", "/api/v1", "/apis", "/apis/apps/v1", "/version"):
        (await jane.call("GET", path)).expect_success()
    rejected = await jane.call("GET", "/metrics")
    rejected.expect_error(403, "Forbidden")
    assert rejected.message == 'forbidden: User "jane" cannot get path "/metrics"'
    assert not rejected.body.get("details")
    (await jane.call("POST", "/version", {})).expect_error(
        403, "Forbidden", 'User "jane" cannot post path "/version"'
    )


async def case_verbs_are_distinguished(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("get create", "configmaps"))
    jane = api.as_user("jane")
    (await jane.create("configmaps", config_map("a"))).expect_success()
    (await jane.get("configmaps", "a")).expect_success()
    (await jane.list("configmaps")).expect_error(403, "Forbidden")
    (await jane.put("configmaps", config_map("a", {"k": "v"}))).expect_error(403, "Forbidden")
    (await jane.merge("configmaps", "a", {"data": {"k": "v"}})).expect_error(403, "Forbidden")
    (await jane.delete("configmaps", "a")).expect_error(403, "Forbidden")
    (await jane.call("DELETE", jane.path("configmaps"))).expect_error(403, "Forbidden")
    (await jane.create("secrets", {"metadata": {"name": "a"}})).expect_error(403, "Forbidden")


async def case_resource_names(api: Api) -> None:
    await grant_in_namespace(
        api, user_subject("jane"), policy_rule("get list watch create delete", "configmaps", resourceNames=["mine"])
    )
    jane = api.as_user("jane")
    for name in ("mine", "other"):
        (await api.create("configmaps", config_map(name))).expect_success()
    (await jane.get("configmaps", "mine")).expect_success()
    (await jane.get("configmaps", "other")).expect_error(403, "Forbidden")
    (await jane.list("configmaps")).expect_error(403, "Forbidden")
    listed = (await jane.list("configmaps", fieldSelector="metadata.name=mine")).expect_success()
    assert [i["metadata"]["name"] for i in listed.body["items"]] == ["mine"]
    (event,) = await jane.events("configmaps", 1, fieldSelector="metadata.name=mine")
    assert event["type"] == "ADDED"
    # The path of a create has no name, so resourceNames never match.
    (await jane.create("configmaps", config_map("mine"))).expect_error(403, "Forbidden")
    (await jane.delete("configmaps", "mine")).expect_success()


async def case_subresources_need_own_rules(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("patch", "deployments/status", "apps"))
    await grant_in_namespace(api, user_subject("kate"), policy_rule("patch", "deployments", "apps"), name="main")
    await grant_in_namespace(api, user_subject("liz"), policy_rule("get", "*/scale", "apps"), name="scale")
    (await api.create("deployments", deployment("web"))).expect_success()
    status, main = {"status": {"replicas": 1}}, {"spec": {"replicas": 2}}
    (await api.as_user("jane").merge("deployments", "web", status, "status")).expect_success()
    (await api.as_user("jane").merge("deployments", "web", main)).expect_error(403, "Forbidden")
    (await api.as_user("kate").merge("deployments", "web", main)).expect_success()
    (await api.as_user("kate").merge("deployments", "web", status, "status")).expect_error(403, "Forbidden")
    (await api.as_user("liz").get("deployments", "web", "scale")).expect_success()
    (await api.as_user("liz").get("deployments", "web")).expect_error(403, "Forbidden")


async def case_wildcards(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("*", "*", "*"))
    jane = api.as_user("jane")
    (await jane.create("deployments", deployment("web"))).expect_success()
    (await jane.get("deployments", "web", "status")).expect_success()
    (await jane.call("DELETE", jane.path("deployments"))).expect_success()
    (await jane.call("GET", "/api/v1/nodes")).expect_error(403, "Forbidden")


async def case_api_groups_are_distinguished(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("list", "deployments", "extensions"))
    (await api.as_user("jane").list("deployments")).expect_error(403, "Forbidden")


async def case_namespace_object_is_in_itself(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("get", "namespaces"))
    (await api.as_user("jane").call("GET", f"/api/v1/namespaces/{api.namespace}")).expect_success()
    (await api.as_user("jane").call("GET", "/api/v1/namespaces/default")).expect_error(403, "Forbidden")


async def case_groups(api: Api) -> None:
    await grant_in_namespace(api, group_subject(f"team-{api.namespace}"), policy_rule("list", "configmaps"))
    (await api.as_user("jane", "others", f"team-{api.namespace}").list("configmaps")).expect_success()
    (await api.as_user("jane", "others").list("configmaps")).expect_error(403, "Forbidden")
    await grant_in_namespace(
        api, group_subject("system:authenticated"), policy_rule("list", "secrets"), name="everybody"
    )
    (await api.as_user("jane").list("secrets")).expect_success()


async def case_service_accounts(api: Api) -> None:
    account = {"kind": "ServiceAccount", "name": "bot", "namespace": api.namespace}
    await grant_in_namespace(api, account, policy_rule("list", "configmaps"))
    bot = api.as_user(f"system:serviceaccount:{api.namespace}:bot")
    (await bot.list("configmaps")).expect_success()
    (await api.as_user("system:serviceaccount:default:bot").list("configmaps")).expect_error(403, "Forbidden")
    await grant_in_namespace(
        api,
        group_subject(f"system:serviceaccounts:{api.namespace}"),
        policy_rule("list", "secrets"),
        name="all-of-the-namespace",
    )
    (await bot.list("secrets")).expect_success()
    (await api.as_user("system:serviceaccount:default:bot").list("secrets")).expect_error(403, "Forbidden")


async def case_cluster_role_in_one_namespace(api: Api) -> None:
    name = f"reader-{api.namespace}"
    (
        await api.call(
            "POST", f"{RBAC_PATH}/clusterroles", role_manifest(name, policy_rule("list", "configmaps nodes"))
        )
    ).expect_success()
    (
        await api.create("rolebindings", binding_manifest("reads", name, user_subject("jane"), kind="ClusterRole"))
    ).expect_success()
    await wait_until_allowed(api, user_subject("jane"), policy_rule("list", "configmaps"))
    (await api.as_user("jane").list("configmaps")).expect_success()
    (await api.as_user("jane").call("GET", "/api/v1/configmaps")).expect_error(403, "Forbidden")
    (await api.as_user("jane").call("GET", "/api/v1/nodes")).expect_error(403, "Forbidden")


async def case_cluster_role_in_all_namespaces(api: Api) -> None:
    name = f"reader-{api.namespace}"
    (
        await api.call(
            "POST", f"{RBAC_PATH}/clusterroles", role_manifest(name, policy_rule("list", "configmaps nodes"))
        )
    ).expect_success()
    bound = binding_manifest(name, name, user_subject(name), kind="ClusterRole")
    (await api.call("POST", f"{RBAC_PATH}/clusterrolebindings", bound)).expect_success()
    await wait_until_allowed(api, user_subject(name), policy_rule("list", "configmaps"))
    for path in (api.path("configmaps"), "/api/v1/configmaps", "/api/v1/nodes"):
        (await api.as_user(name).call("GET", path)).expect_success()


async def case_binding_to_missing_role_is_reported(api: Api) -> None:
    (await api.create("rolebindings", binding_manifest("a", "nowhere", user_subject("jane")))).expect_success()
    (
        await api.create("rolebindings", binding_manifest("b", "absent", user_subject("jane"), kind="ClusterRole"))
    ).expect_success()
    roles = (
        'role.rbac.authorization.k8s.io "nowhere" not found',
        'clusterrole.rbac.authorization.k8s.io "absent" not',
    )
    rejected = await poll(
        lambda: api.as_user("jane").list("configmaps"), lambda r: all(text in r.message for text in roles)
    )
    assert "RBAC: [" in rejected.expect_error(403, "Forbidden").message


async def case_unbound_role_allows_nothing(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("list", "configmaps"))
    (await api.as_user("jane").list("configmaps")).expect_success()
    (await api.delete("rolebindings", "granted")).expect_success()
    await poll(lambda: api.as_user("jane").list("configmaps"), lambda r: r.code == 403)


async def case_create_by_apply_or_put_needs_create(api: Api) -> None:
    await grant_in_namespace(
        api, user_subject("jane"), policy_rule("patch update", "configmaps leases", "core coordination.k8s.io")
    )
    jane, where = api.as_user("jane"), f'in the namespace "{api.namespace}"'
    rejected = await jane.apply("configmaps", config_map("new") | {"apiVersion": "v1"})
    assert rejected.body == _forbidden_status(
        denial_message("jane", "create", "configmaps", "", where), "configmaps", "", "new"
    )
    put = await jane.put("leases", {"metadata": {"name": "new"}})
    text = denial_message("jane", "create", "leases", "coordination.k8s.io", where)
    assert put.body == _forbidden_status(text, "leases", "coordination.k8s.io", "new")
    (await jane.merge("configmaps", "new", {})).expect_error(404, "NotFound")
    (await api.create("configmaps", config_map("new"))).expect_success()
    (await jane.apply("configmaps", config_map("new", {"k": "v"}) | {"apiVersion": "v1"})).expect_success()


async def case_authorization_comes_first(api: Api) -> None:
    """Authorization precedes other errors, such as a malformed body."""
    jane = api.as_user("jane")
    (await jane.call("POST", jane.path("configmaps"), [])).expect_error(403, "Forbidden")
    (await jane.call("GET", "/api/v1/namespaces/none/configmaps")).expect_error(403, "Forbidden")
    (await jane.list("configmaps", labelSelector="a in")).expect_error(403, "Forbidden")


async def case_masters_are_allowed_everything(api: Api) -> None:
    root = api.as_user("jane", "system:masters")
    (await root.create("configmaps", config_map("a"))).expect_success()
    (await root.call("GET", "/api/v1/nodes")).expect_success()


async def case_service_account_token(api: Api) -> None:
    (await api.create("serviceaccounts", {"metadata": {"name": "bot"}})).expect_success()
    called: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    issued = (await api.call("POST", api.path("serviceaccounts", "bot", "token"), called)).expect_success()
    bot = api.as_bearer(issued.body["status"]["token"])
    name = f"system:serviceaccount:{api.namespace}:bot"
    where = f'in the namespace "{api.namespace}"'
    assert (await bot.list("pods")).message == f"pods is forbidden: {denial_message(name, 'list', 'pods', '', where)}"
    await grant_in_namespace(
        api, {"kind": "ServiceAccount", "name": "bot", "namespace": api.namespace}, policy_rule("list", "pods")
    )
    (await bot.list("pods")).expect_success()


async def case_an_unknown_token(api: Api) -> None:
    rejected = (await api.as_bearer("nobody-knows-me").list("pods")).expect_error(401, "Unauthorized")
    assert json.dumps(rejected.body, sort_keys=True) == json.dumps(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": "Unauthorized",
            "reason": "Unauthorized",
            "code": 401,
        },
        sort_keys=True,
    )
