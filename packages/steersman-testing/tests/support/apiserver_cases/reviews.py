"""Reviews: authentication of tokens, and access."""

from __future__ import annotations

import asyncio
from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json

_AUTHENTICATION = "/apis/authentication.k8s.io/v1"
_AUTHORIZATION = "/apis/authorization.k8s.io/v1"


async def _create_service_account(api: Api, name: str = "s") -> ApiResponse:
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    return (await api.create("serviceaccounts", body)).expect_success()


async def _request_token(api: Api, name: str = "s", **spec: Any) -> str:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    response = await api.call("POST", api.path("serviceaccounts", name, "token"), body)
    return response.expect_success().body["status"]["token"]


async def _review_token(api: Api, token: str, **spec: Any) -> Json:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token, **spec}}
    return (await api.call("POST", f"{_AUTHENTICATION}/tokenreviews", body)).expect_success().body["status"]


async def _wait_until_token_invalid(api: Api, token: str) -> None:
    """Wait until ``token`` is invalid.

    The real server watches accounts and caches tokens for 10 s.
    """
    async with asyncio.timeout(30):
        while "authenticated" in await _review_token(api, token):
            await asyncio.sleep(0.1)


async def _review_access(api: Api, **spec: Any) -> ApiResponse:
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    return await api.call("POST", f"{_AUTHORIZATION}/subjectaccessreviews", body)


async def _wait_for_access(api: Api, allowed: bool, **spec: Any) -> ApiResponse:
    """Return the response after the authorizer has observed the roles."""
    async with asyncio.timeout(30):
        while (response := (await _review_access(api, **spec)).expect_success()).body["status"][
            "allowed"
        ] is not allowed:
            await asyncio.sleep(0.05)
    return response


async def case_token_requires_its_audience(api: Api) -> None:
    await _create_service_account(api)
    token = await _request_token(api, audiences=["x", "y"])
    status = await _review_token(api, token, audiences=["y", "z"])
    assert (status["authenticated"], status["audiences"]) == (True, ["y"])
    status = await _review_token(api, token, audiences=["z"])
    assert "authenticated" not in status
    assert "error" in status


async def case_token_expires_with_its_account(api: Api) -> None:
    await _create_service_account(api)
    token = await _request_token(api)
    (await api.delete("serviceaccounts", "s")).expect_success()
    await _wait_until_token_invalid(api, token)
    await _create_service_account(api)
    await _wait_until_token_invalid(api, token)


async def case_user_info_has_uid_and_groups(api: Api) -> None:
    created = await _create_service_account(api)
    user = (await _review_token(api, await _request_token(api)))["user"]
    assert user["username"] == f"system:serviceaccount:{api.namespace}:s"
    assert user["uid"] == created.metadata["uid"]
    assert user["groups"] == [
        "system:serviceaccounts",
        f"system:serviceaccounts:{api.namespace}",
        "system:authenticated",
    ]


async def case_empty_reviews_are_rejected(api: Api) -> None:
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    rejected = await api.call("POST", f"{_AUTHENTICATION}/tokenreviews", body)
    rejected.expect_error(400, "BadRequest", "token is required for TokenReview in authentication")
    rejected = await _review_access(api, user="u")
    text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    rejected.expect_error(422, "Invalid", text)
    rejected = await _review_access(api, nonResourceAttributes={"path": "/", "verb": "get"})
    rejected.expect_error(422, "Invalid", "at least one of user or group must be specified")


async def case_reviews_cannot_be_read(api: Api) -> None:
    for path in (f"{_AUTHENTICATION}/tokenreviews", f"{_AUTHORIZATION}/subjectaccessreviews"):
        (await api.call("GET", path)).expect_error(405, "MethodNotAllowed")


async def case_unknown_users_are_denied(api: Api) -> None:
    about = {"namespace": api.namespace, "verb": "get", "resource": "configmaps"}
    response = (await _review_access(api, user="stranger", resourceAttributes=about)).expect_success()
    assert response.code == 201
    assert response.body["status"]["allowed"] is False


async def case_a_role_allows_what_it_says(api: Api) -> None:
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]}]
    role = {"apiVersion": f"{group}/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": rules}
    (await api.create("roles", role)).expect_success()
    subjects = [{"kind": "User", "name": "jane", "apiGroup": group}]
    reference = {"apiGroup": group, "kind": "Role", "name": "r"}
    binding = {"apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": "b"}}
    (await api.create("rolebindings", {**binding, "subjects": subjects, "roleRef": reference})).expect_success()
    about = {"namespace": api.namespace, "verb": "get", "resource": "configmaps", "name": "a"}
    for change, allowed in (
        ({}, True),
        ({"name": "b"}, False),
        ({"verb": "list"}, False),
        ({"namespace": "x"}, False),
    ):
        response = await _wait_for_access(api, allowed, user="jane", resourceAttributes={**about, **change})
        assert response.body["status"]["allowed"] is allowed


async def case_self_subject_access_review(api: Api) -> None:
    about = {"namespace": api.namespace, "verb": "create", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": about},
    }
    response = (await api.call("POST", f"{_AUTHORIZATION}/selfsubjectaccessreviews", body)).expect_success()
    assert response.body["status"]["allowed"] is True


async def case_self_subject_review(api: Api) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    response = (await api.call("POST", f"{_AUTHENTICATION}/selfsubjectreviews", body)).expect_success()
    assert "system:masters" in response.body["status"]["userInfo"]["groups"]


async def case_local_review_must_match_namespace(api: Api) -> None:
    about = {"namespace": "other", "verb": "get", "resource": "pods"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "LocalSubjectAccessReview",
        "metadata": {"namespace": api.namespace},
        "spec": {"user": "u", "resourceAttributes": about},
    }
    path = f"{_AUTHORIZATION}/namespaces/{api.namespace}/localsubjectaccessreviews"
    (await api.call("POST", path, body)).expect_error(
        422, "Invalid", "spec.resourceAttributes.namespace: Invalid value: "
    )
