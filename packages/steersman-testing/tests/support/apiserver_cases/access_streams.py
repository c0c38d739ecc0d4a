"""Who may stream to pods, and who may act as somebody else."""

from __future__ import annotations

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.roles import grant, rule, until, user
from apiserver_cases.subresources import account, pod, request_token
from steersman_testing.apiserver.access.impersonation import Impersonated

_GROUP = "rbac.authorization.k8s.io"
_ROLES = f"/apis/{_GROUP}/v1"
_STREAMED = ("exec", "attach", "portforward")


async def case_to_read_is_not_enough_to_stream(api: Api) -> None:
    await pod(api)
    rules = [rule("get", f"pods/{s}") for s in (*_STREAMED, "log")]
    await grant(api, user("jane"), *rules)
    jane = api.as_user("jane")
    await until(lambda: jane.get("pods", "a", "log"), lambda r: r.code != 403)
    for subresource in _STREAMED:
        (await jane.get("pods", "a", subresource)).refused(403, "Forbidden", 'pods "a" is forbidden: ')
        refused = await jane.call("POST", api.path("pods", "a", subresource))
        refused.refused(403, "Forbidden", f'cannot create resource "pods/{subresource}" in API group ""')
    stranger = api.as_user("kate")
    for subresource in (*_STREAMED, "proxy"):
        refused = await stranger.get("pods", "a", subresource)
        refused.refused(403, "Forbidden", f'cannot get resource "pods/{subresource}" in API group ""')


async def case_a_watch_is_asked_for_by_any_word(api: Api) -> None:
    await grant(api, user("jane"), rule("list", "configmaps"))
    jane = api.as_user("jane")
    for value in ("abc", "TRUE", ""):
        refused = await jane.list("configmaps", watch=value)
        refused.refused(403, "Forbidden", 'cannot watch resource "configmaps"')
    (await jane.list("configmaps", watch="False")).ok()
    refused = await jane.call("GET", f"/api/v1/watch/namespaces/{api.namespace}/configmaps")
    refused.refused(403, "Forbidden", 'cannot watch resource "configmaps"')


async def _grant_impersonation(api: Api, *rules: Json) -> None:
    name = api.namespace
    meta = {"metadata": {"name": name}}
    (await api.call("POST", f"{_ROLES}/clusterroles", {**meta, "rules": list(rules)})).ok()
    subject = {"kind": "ServiceAccount", "name": "s", "namespace": api.namespace}
    reference = {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name}
    body = {**meta, "roleRef": reference, "subjects": [subject]}
    (await api.call("POST", f"{_ROLES}/clusterrolebindings", body)).ok()


async def case_who_has_a_token_acts_as_others(api: Api) -> None:
    await account(api)
    token = (await request_token(api)).ok().body["status"]["token"]
    review = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    refused = await api.as_bearer(token, Impersonated("jane")).call("POST", review, {})
    refused.refused(403, "Forbidden")
    extras = rule("impersonate", "userextras/k", "authentication.k8s.io", resourceNames=["v"])
    await _grant_impersonation(
        api,
        rule("impersonate", "users", resourceNames=["jane"]),
        rule("impersonate", "groups", resourceNames=["a"]),
        rule("impersonate", "serviceaccounts"),
        rule("impersonate", "uids", "authentication.k8s.io", resourceNames=["u"]),
        extras,
    )
    jane = api.as_bearer(token, Impersonated("jane"))
    found = await until(lambda: jane.call("POST", review, {}), lambda r: r.code != 403)
    assert found.ok().body["status"]["userInfo"] == {"username": "jane", "groups": ["system:authenticated"]}
    for acting in (
        Impersonated("jane", ("a",)),
        Impersonated("jane", (), {}, "u"),
        Impersonated("jane", (), {"k": ("v",)}),
        Impersonated("system:serviceaccount:x:y"),
    ):
        (await api.as_bearer(token, acting).call("POST", review, {})).ok()
    for acting, text in (
        (Impersonated("jane", ("a", "b")), 'cannot impersonate resource "groups" in API group "" at the cluster'),
        (Impersonated("kate"), 'cannot impersonate resource "users" in API group "" at the cluster scope'),
        (Impersonated("jane", (), {"k": ("w",)}), 'cannot impersonate resource "userextras/k" in API group'),
        (
            Impersonated("jane", (), {}, "w"),
            'cannot impersonate resource "uids" in API group "authentication.k8s.io"',
        ),
    ):
        (await api.as_bearer(token, acting).call("POST", review, {})).refused(403, "Forbidden", text)


async def case_who_acts_as_another_may_what_that_one_may(api: Api) -> None:
    await account(api)
    (await api.create("configmaps", config_map("a"))).ok()
    token = (await request_token(api)).ok().body["status"]["token"]
    await _grant_impersonation(api, rule("impersonate", "users"))
    await grant(api, user("jane"), rule("get", "configmaps"))
    jane = api.as_bearer(token, Impersonated("jane"))
    (await until(lambda: jane.get("configmaps", "a"), lambda r: r.code != 403)).ok()
    (await jane.list("configmaps")).refused(403, "Forbidden", 'User "jane" cannot list resource "configmaps"')
    (await api.as_bearer(token).get("configmaps", "a")).refused(403, "Forbidden", "system:serviceaccount:")
