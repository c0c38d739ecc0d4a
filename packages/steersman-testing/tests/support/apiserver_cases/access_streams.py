"""Authorization of streams and impersonation."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.roles import grant_in_namespace, policy_rule, poll, user_subject
from apiserver_cases.subresources import create_pod, create_service_account, request_token
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser

_GROUP = "rbac.authorization.k8s.io"
_ROLES = f"/apis/{_GROUP}/v1"
_STREAMING_SUBRESOURCES = ("exec", "attach", "portforward")


async def case_streams_need_create(api: Api) -> None:
    await create_pod(api)
    rules = [policy_rule("get", f"pods/{s}") for s in (*_STREAMING_SUBRESOURCES, "log")]
    await grant_in_namespace(api, user_subject("jane"), *rules)
    jane = api.as_user("jane")
    await poll(lambda: jane.get("pods", "a", "log"), lambda r: r.code != 403)
    for subresource in _STREAMING_SUBRESOURCES:
        (await jane.get("pods", "a", subresource)).expect_error(403, "Forbidden", 'pods "a" is forbidden: ')
        rejected = await jane.call("POST", api.path("pods", "a", subresource))
        rejected.expect_error(403, "Forbidden", f'cannot create resource "pods/{subresource}" in API group ""')
    stranger = api.as_user("kate")
    for subresource in (*_STREAMING_SUBRESOURCES, "proxy"):
        rejected = await stranger.get("pods", "a", subresource)
        rejected.expect_error(403, "Forbidden", f'cannot get resource "pods/{subresource}" in API group ""')


async def case_watch_parameter_accepts_any_word(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("list", "configmaps"))
    jane = api.as_user("jane")
    for value in ("abc", "TRUE", ""):
        rejected = await jane.list("configmaps", watch=value)
        rejected.expect_error(403, "Forbidden", 'cannot watch resource "configmaps"')
    (await jane.list("configmaps", watch="False")).expect_success()
    rejected = await jane.call("GET", f"/api/v1/watch/namespaces/{api.namespace}/configmaps")
    rejected.expect_error(403, "Forbidden", 'cannot watch resource "configmaps"')


async def _grant_impersonation(api: Api, *rules: Json) -> None:
    name = api.namespace
    meta = {"metadata": {"name": name}}
    (await api.call("POST", f"{_ROLES}/clusterroles", {**meta, "rules": list(rules)})).expect_success()
    subject = {"kind": "ServiceAccount", "name": "s", "namespace": api.namespace}
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
    body = {**meta, "roleRef": reference, "subjects": [subject]}
    (await api.call("POST", f"{_ROLES}/clusterrolebindings", body)).expect_success()


async def case_token_users_can_impersonate(api: Api) -> None:
    await create_service_account(api)
    token = (await request_token(api)).expect_success().body["status"]["token"]
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    rejected = await api.as_bearer(token, ImpersonatedUser("jane")).call("POST", review, {})
    rejected.expect_error(403, "Forbidden")
    extras = policy_rule("impersonate", "userextras/k", "authentication.k8s.io", resourceNames=["v"])
    await _grant_impersonation(
        api,
        policy_rule("impersonate", "users", resourceNames=["jane"]),
        policy_rule("impersonate", "groups", resourceNames=["a"]),
        policy_rule("impersonate", "serviceaccounts"),
        policy_rule("impersonate", "uids", "authentication.k8s.io", resourceNames=["u"]),
        extras,
    )
    jane = api.as_bearer(token, ImpersonatedUser("jane"))
    found = await poll(lambda: jane.call("POST", review, {}), lambda r: r.code != 403)
    assert found.expect_success().body["status"]["userInfo"] == {
        "username": "jane",
        "groups": ["system:authenticated"],
    }
    for acting in (
        ImpersonatedUser("jane", ("a",)),
        ImpersonatedUser("jane", (), {}, "u"),
        ImpersonatedUser("jane", (), {"k": ("v",)}),
        ImpersonatedUser("system:serviceaccount:x:y"),
    ):
        (await api.as_bearer(token, acting).call("POST", review, {})).expect_success()
    for acting, text in (
        (ImpersonatedUser("jane", ("a", "b")), 'cannot impersonate resource "groups" in API group "" at the cluster'),
        (ImpersonatedUser("kate"), 'cannot impersonate resource "users" in API group "" at the cluster scope'),
        (ImpersonatedUser("jane", (), {"k": ("w",)}), 'cannot impersonate resource "userextras/k" in API group'),
        (
            ImpersonatedUser("jane", (), {}, "w"),
            'cannot impersonate resource "uids" in API group "authentication.k8s.io"',
        ),
    ):
        (await api.as_bearer(token, acting).call("POST", review, {})).expect_error(403, "Forbidden", text)


async def case_impersonated_user_is_authorized(api: Api) -> None:
    await create_service_account(api)
    (await api.create("configmaps", config_map("a"))).expect_success()
    token = (await request_token(api)).expect_success().body["status"]["token"]
    await _grant_impersonation(api, policy_rule("impersonate", "users"))
    await grant_in_namespace(api, user_subject("jane"), policy_rule("get", "configmaps"))
    jane = api.as_bearer(token, ImpersonatedUser("jane"))
    (await poll(lambda: jane.get("configmaps", "a"), lambda r: r.code != 403)).expect_success()
    (await jane.list("configmaps")).expect_error(403, "Forbidden", 'User "jane" cannot list resource "configmaps"')
    (await api.as_bearer(token).get("configmaps", "a")).expect_error(403, "Forbidden", "system:serviceaccount:")
