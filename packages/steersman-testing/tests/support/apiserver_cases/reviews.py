"""Questions that are posted and not stored: who holds a token, and who may do what."""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver_cases.api import Api, Json, Reply

_AUTHENTICATION = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def _account(api: Api, name: str = "s") -> Reply:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    return (await api.create("serviceaccounts", body)).ok()


async def _token(api: Api, name: str = "s", **spec: Any) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    reply = await api.call("POST", api.path("serviceaccounts", name, "token"), body)
    return reply.ok().body["status"]["token"]


async def _review(api: Api, token: str, **spec: Any) -> Json:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **spec}}
    return (await api.call("POST", f"{_AUTHENTICATION}/tokenreviews", body)).ok().body["status"]


async def _until_dead(api: Api, token: str) -> None:
    """Returns once nobody is known by ``token``: the real server watches accounts, and remembers tokens for 10 s."""
    async with asyncio.timeout(30):
        while "authenticated" in await _review(api, token):
            await asyncio.sleep(0.1)


async def _access(api: Api, **spec: Any) -> Reply:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return await api.call("POST", f"{_AUTHORIZATION}/subjectaccessreviews", body)


async def _until_known(api: Api, allowed: bool, **spec: Any) -> Reply:
    """The answer, once the authorizer has heard of the roles: the real one watches them."""
    async with asyncio.timeout(30):
        while (reply := (await _access(api, **spec)).ok()).body["status"]["allowed"] is not allowed:
            await asyncio.sleep(0.05)
    return reply


async def case_a_token_is_for_its_audiences(api: Api) -> None:
    await _account(api)
    token = await _token(api, audiences=["x", "y"])
    status = await _review(api, token, audiences=["y", "z"])
    assert (status["authenticated"], status["audiences"]) == (True, ["y"])
    status = await _review(api, token, audiences=["z"])
    assert "authenticated" not in status
    assert "error" in status


async def case_a_token_dies_with_its_account(api: Api) -> None:
    await _account(api)
    token = await _token(api)
    (await api.delete("serviceaccounts", "s")).ok()
    await _until_dead(api, token)
    await _account(api)
    await _until_dead(api, token)


async def case_a_holder_is_told_with_uid_and_groups(api: Api) -> None:
    made = await _account(api)
    user = (await _review(api, await _token(api)))["user"]
    assert user["username"] == f"system:serviceaccount:{api.namespace}:s"
    assert user["uid"] == made.metadata["uid"]
    assert user["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{api.namespace}",
        "system:authenticated",
    ]


async def case_reviews_of_nothing_are_refused(api: Api) -> None:
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    refused = await api.call("POST", f"{_AUTHENTICATION}/tokenreviews", body)
    refused.refused(400, "BadRequest", "token is required for TokenReview in authentication")
    refused = await _access(api, user="u")
    text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    refused.refused(422, "Invalid", text)
    refused = await _access(api, nonResourceAttributes={"path": "/", "verb": "get"})
    refused.refused(422, "Invalid", "at least one of user or group must be specified")


async def case_reviews_are_not_read(api: Api) -> None:
    for path in (f"{_AUTHENTICATION}/tokenreviews", f"{_AUTHORIZATION}/subjectaccessreviews"):
        (await api.call("GET", path)).refused(405, "MethodNotAllowed")


async def case_a_stranger_may_do_nothing(api: Api) -> None:
    about = {"namespace": api.namespace, "verb": "get", "resource": "configmaps"}
    reply = (await _access(api, user="stranger", resourceAttributes=about)).ok()
    assert reply.code == 201
    assert reply.body["status"]["allowed"] is False


async def case_a_role_allows_what_it_says(api: Api) -> None:
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": rules}
    (await api.create("roles", role)).ok()
    subjects = [{"kind": "User", "name": "jane", "apiGroup": group}]
    reference = {"apiGroup": group, "kind": "Role", "name": "r"}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "b"}}
    (await api.create("rolebindings", {**binding, "subjects": subjects, "roleRef": reference})).ok()
    about = {"namespace": api.namespace, "verb": "get", "resource": "configmaps", "name": "a"}
    for change, allowed in (
        ({}, True),
        ({"name": "b"}, False),
        ({"verb": "list"}, False),
        ({"namespace": "x"}, False),
    ):
        reply = await _until_known(api, allowed, user="jane", resourceAttributes={**about, **change})
        assert reply.body["status"]["allowed"] is allowed


async def case_one_may_ask_for_oneself(api: Api) -> None:
    about = {"namespace": api.namespace, "verb": "create", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": about},
    }
    reply = (await api.call("POST", f"{_AUTHORIZATION}/selfsubjectaccessreviews", body)).ok()
    assert reply.body["status"]["allowed"] is True


async def case_one_may_ask_who_one_is(api: Api) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    reply = (await api.call("POST", f"{_AUTHENTICATION}/selfsubjectreviews", body)).ok()
    assert "system:masters" in reply.body["status"]["userInfo"]["groups"]


async def case_local_reviews_are_of_their_namespace(api: Api) -> None:
    about = {"namespace": "other", "verb": "get", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": api.namespace},
        "spec": {"user": "u", "resourceAttributes": about},
    }
    path = f"{_AUTHORIZATION}/namespaces/{api.namespace}/localsubjectaccessreviews"
    (await api.call("POST", path, body)).refused(422, "Invalid", "spec.resourceAttributes.namespace: Invalid value: ")
