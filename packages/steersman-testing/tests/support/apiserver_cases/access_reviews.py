"""SelfSubjectReviews, TokenReviews and SubjectAccessReviews."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, ApiResponse, Json, error_cases
from apiserver_cases.roles import binding_manifest, grant_in_namespace, policy_rule, poll, user_subject

_AUTHORIZATION_PATH = "/apis/authorization.k8s.io/v1"
_AUTHENTICATION_PATH = "/apis/authentication.k8s.io/v1"


async def _post_review(api: Api, kind: str, spec: Json, namespace: str = "") -> ApiResponse:
    namespace_path = f"/namespaces/{namespace}" if namespace else ""
    body: Json = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    return await api.call("POST", f"{_AUTHORIZATION_PATH}{namespace_path}/{kind.lower()}s", body)


def _review_spec(api: Api, verb: str = "list", resource: str = "configmaps", **more: Any) -> Json:
    return {"resourceAttributes": {"namespace": api.namespace, "verb": verb, "resource": resource, **more}}


async def case_self_subject_review(api: Api) -> None:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    groups = ["system:serviceaccounts", "system:serviceaccounts:x", "system:authenticated"]
    for sender, expected in (
        (api.as_user("jane"), {"username": "jane", "groups": ["system:authenticated"]}),
        (api.as_user("jane", "a", "b"), {"username": "jane", "groups": ["a", "b", "system:authenticated"]}),
        (api.as_user("system:serviceaccount:x:bot"), {"username": "system:serviceaccount:x:bot", "groups": groups}),
    ):
        found = (await sender.call("POST", f"{_AUTHENTICATION_PATH}/selfsubjectreviews", body)).expect_success()
        assert found.body["status"] == {"userInfo": expected}


async def case_subject_access_review(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("list", "configmaps"))
    allowed = (
        (await _post_review(api, "SubjectAccessReview", {"user": "jane", **_review_spec(api)}))
        .expect_success()
        .body["status"]
    )
    because = f'RBAC: allowed by RoleBinding "granted/{api.namespace}" of Role "granted" to User "jane"'
    assert allowed == {"allowed": True, "reason": because}
    for spec in (
        {"user": "kate", **_review_spec(api)},
        {"user": "jane", **_review_spec(api, "get")},
        {"user": "jane", **_review_spec(api, group="apps")},
    ):
        assert (await _post_review(api, "SubjectAccessReview", spec)).expect_success().body["status"] == {
            "allowed": False
        }


async def case_binding_of_service_account(api: Api) -> None:
    account = {"kind": "ServiceAccount", "name": "bot", "namespace": api.namespace}
    await grant_in_namespace(api, account, policy_rule("list", "configmaps"))
    spec = {"user": f"system:serviceaccount:{api.namespace}:bot", **_review_spec(api)}
    status = (await _post_review(api, "SubjectAccessReview", spec)).expect_success().body["status"]
    whom = f'ServiceAccount "bot/{api.namespace}"'
    assert status["reason"] == f'RBAC: allowed by RoleBinding "granted/{api.namespace}" of Role "granted" to {whom}'


async def case_groups_are_those_of_the_spec(api: Api) -> None:
    masters = {"user": "jane", "groups": ["system:masters"], **_review_spec(api)}
    assert (await _post_review(api, "SubjectAccessReview", masters)).expect_success().body["status"] == {
        "allowed": True
    }
    path = {"nonResourceAttributes": {"verb": "get", "path": "/apis/apps"}}
    alone = (await _post_review(api, "SubjectAccessReview", {"user": "jane", **path})).expect_success().body["status"]
    assert alone == {"allowed": False}
    member = {"user": "jane", "groups": ["system:authenticated"], **path}
    because = (
        'ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"'
    )
    expected = {"allowed": True, "reason": f"RBAC: allowed by {because}"}
    assert (await _post_review(api, "SubjectAccessReview", member)).expect_success().body["status"] == expected


async def case_self_subject_access_review(api: Api) -> None:
    await grant_in_namespace(api, user_subject("jane"), policy_rule("list", "configmaps"))
    kind = "SelfSubjectAccessReview"
    assert (
        (await _post_review(api.as_user("jane"), kind, _review_spec(api))).expect_success().body["status"]["allowed"]
    )
    assert (await _post_review(api.as_user("kate"), kind, _review_spec(api))).expect_success().body["status"] == {
        "allowed": False
    }
    assert (await _post_review(api, kind, _review_spec(api))).expect_success().body["status"] == {"allowed": True}
    (
        await _post_review(api.as_user("kate"), "SubjectAccessReview", {"user": "jane", **_review_spec(api)})
    ).expect_error(403, "Forbidden")


async def case_local_subject_access_review(api: Api) -> None:
    kind = "LocalSubjectAccessReview"
    found = (await _post_review(api, kind, {"user": "jane", **_review_spec(api)}, api.namespace)).expect_success()
    assert found.body["status"] == {"allowed": False}
    other_namespace = {
        "user": "jane",
        "resourceAttributes": {"namespace": "default", "verb": "get", "resource": "pods"},
    }
    rejected = (await _post_review(api, kind, other_namespace, api.namespace)).expect_error(422, "Invalid")
    path = "spec.resourceAttributes.namespace"
    assert rejected.message == (
        f'.authorization.k8s.io "" is invalid: {path}: Invalid value: "default": must match metadata.namespace'
    )


async def case_incomplete_reviews_are_rejected(api: Api) -> None:
    neither = (await _post_review(api, "SubjectAccessReview", {"user": "jane"})).expect_error(422, "Invalid")
    text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    assert neither.message.endswith(f"spec.resourceAttributes: Invalid value: null: {text}")
    assert neither.causes() == [("spec.resourceAttributes", "FieldValueInvalid")]
    path = {"nonResourceAttributes": {"verb": "get", "path": "/x"}}
    both = (
        await _post_review(api, "SubjectAccessReview", {"user": "jane", **_review_spec(api), **path})
    ).expect_error(422, "Invalid")
    text = 'Invalid value: {"Path":"/x","Verb":"get"}: cannot be specified in combination with resourceAttributes'
    assert both.message.endswith(f"spec.nonResourceAttributes: {text}")
    nobody = (await _post_review(api, "SubjectAccessReview", _review_spec(api))).expect_error(422, "Invalid")
    assert nobody.message.endswith('spec.user: Invalid value: "": at least one of user or group must be specified')
    local = await _post_review(api, "LocalSubjectAccessReview", {"user": "jane", **path}, api.namespace)
    local.expect_error(422, "Invalid", "disallowed on this kind of request")


async def case_self_subject_rules_review(api: Api) -> None:
    first, second = policy_rule("list", "configmaps"), policy_rule("get", "secrets", resourceNames=["a"])
    await grant_in_namespace(api, user_subject("jane"), first, second)
    found = (
        await _post_review(api.as_user("jane"), "SelfSubjectRulesReview", {"namespace": api.namespace})
    ).expect_success()
    status = found.body["status"]
    assert first in status["resourceRules"] and second in status["resourceRules"]
    assert {"verbs": ["create"], "apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"]} in (
        status["resourceRules"]
    )
    assert {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"]} in (
        status["nonResourceRules"]
    )
    assert status["incomplete"] is False
    (await _post_review(api.as_user("jane"), "SelfSubjectRulesReview", {})).expect_error(
        400, "BadRequest", "no namespace on request"
    )


async def case_rules_review_with_missing_role(api: Api) -> None:
    (await api.create("rolebindings", binding_manifest("b", "nowhere", user_subject("jane")))).expect_success()
    question = {"namespace": api.namespace}
    found = await poll(
        lambda: _post_review(api.as_user("jane"), "SelfSubjectRulesReview", question),
        lambda r: "evaluationError" in r.expect_success().body["status"],
    )
    assert found.body["status"]["evaluationError"] == 'role.rbac.authorization.k8s.io "nowhere" not found'


async def _post_token_review(api: Api, spec: Json) -> ApiResponse:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
    return await api.call("POST", f"{_AUTHENTICATION_PATH}/tokenreviews", body)


async def review_token(api: Api, spec: Json) -> Json:
    """Return the status of a TokenReview."""
    return (await _post_token_review(api, spec)).expect_success().body["status"]


async def wait_until_token_invalid(api: Api, token: str, reason: str) -> None:
    """Wait until ``token`` is invalid.

    The real server watches the objects that a token depends on and caches results for 10 s.
    """
    error = f"[invalid bearer token, {reason}]"
    rejected = await poll(
        lambda: _post_token_review(api, {"token": token}),
        lambda r: error in r.expect_success().body["status"].get("error", ""),
    )
    assert rejected.body["status"] == {"user": {}, "error": error}


async def _issue_token(api: Api, *audiences: str) -> tuple[str, str]:
    """Return a token of ``bot`` and the UID of the account."""
    account = (await api.create("serviceaccounts", {"metadata": {"name": "bot"}})).expect_success()
    spec = {"audiences": list(audiences)} if audiences else {}
    token_request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    issued = (await api.call("POST", api.path("serviceaccounts", "bot", "token"), token_request)).expect_success()
    return issued.body["status"]["token"], account.metadata["uid"]


async def case_token_review(api: Api) -> None:
    token, uid = await _issue_token(api)
    status = await review_token(api, {"token": token})
    extra = status["user"].pop("extra")
    assert list(extra) == ["authentication.kubernetes.io/credential-id"]
    (credential,) = extra["authentication.kubernetes.io/credential-id"]
    assert credential.startswith("JTI=")
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{api.namespace}", "system:authenticated"]
    assert status["user"] == {"username": f"system:serviceaccount:{api.namespace}:bot", "uid": uid, "groups": groups}
    assert status["authenticated"] is True
    assert len(status["audiences"]) == 1


async def case_token_for_other_audience(api: Api) -> None:
    token, _ = await _issue_token(api, "vault", "till")
    assert (await review_token(api, {"token": token, "audiences": ["till", "x"]}))["audiences"] == ["till"]
    rejected = await review_token(api, {"token": token, "audiences": ["x"]})
    text = 'token audiences ["vault" "till"] is invalid for the target audiences ["x"]'
    assert rejected == {"user": {}, "error": f"[invalid bearer token, {text}]"}


async def case_unknown_token(api: Api) -> None:
    assert await review_token(api, {"token": "x"}) == {"user": {}, "error": "invalid bearer token"}
    body: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    rejected = await api.call("POST", f"{_AUTHENTICATION_PATH}/tokenreviews", body)
    rejected.expect_error(400, "BadRequest", "token is required for TokenReview in authentication")


async def case_token_of_deleted_account(api: Api) -> None:
    token, _ = await _issue_token(api)
    (await api.delete("serviceaccounts", "bot")).expect_success()
    await wait_until_token_invalid(api, token, 'serviceaccounts "bot" not found')


async def case_selectors_in_reviews(api: Api) -> None:
    kind, path = "SubjectAccessReview", "spec.resourceAttributes"
    requirement: Json = {"key": "a", "operator": "In", "values": ["b"]}

    async def ask(selector: str, value: Json) -> ApiResponse:
        return await _post_review(
            api,
            kind,
            {"user": "kate", "resourceAttributes": {**_review_spec(api)["resourceAttributes"], selector: value}},
        )

    for selector in ("fieldSelector", "labelSelector"):
        fits: tuple[Json, ...] = ({"rawSelector": "a=b"}, {"requirements": [requirement]})
        for value in fits:
            assert (await ask(selector, value)).expect_success().body["status"] == {"allowed": False}
        mistakes: list[tuple[Json, str, str]] = [
            ({}, "requirements", "requirements or rawSelector is required"),
            ({"rawSelector": "a=b", "requirements": [requirement]}, "rawSelector", "same time as requirements"),
            ({"requirements": [{**requirement, "values": []}]}, "requirements[0].values", "must be specified when"),
            ({"requirements": [{**requirement, "operator": "Exists"}]}, "requirements[0].values", "may not be"),
        ]
        for value, where, text in mistakes:
            rejected = (await ask(selector, value)).expect_error(422, "Invalid", text)
            assert [field for field, _ in rejected.causes()] == [f"{path}.{selector}.{where}"]
        unread = (
            (await ask(selector, {"requirements": [{**requirement, "operator": "Odd"}]}))
            .expect_success()
            .body["status"]
        )
        assert unread == {"allowed": False, "evaluationError": f"{path}.{selector} ignored due to parse error"}


async def case_reviews_of_unknown_resources(api: Api) -> None:
    for attributes in (
        {"group": "odd.dev", "resource": "odds"},
        {"verb": ""},
        {"verb": "*", "resource": "*", "group": "*"},
    ):
        spec: Json = {"user": "kate", **_review_spec(api)}
        spec["resourceAttributes"] |= attributes
        assert (await _post_review(api, "SubjectAccessReview", spec)).expect_success().body["status"] == {
            "allowed": False
        }
    for path in ("/healthz", "x", ""):
        about = {"nonResourceAttributes": {"verb": "get", "path": path}}
        (await _post_review(api, "SubjectAccessReview", {"user": "kate", **about})).expect_success()


async def case_wrong_review_types_are_rejected(api: Api) -> None:
    path = f"{_AUTHORIZATION_PATH}/subjectaccessreviews"
    spec: Json = {"user": "u", **_review_spec(api)}
    for body, text in error_cases(
        (None, "the object provided is unrecognized (must be of type SubjectAccessReview)"),
        ([], "json: cannot unmarshal array into Go value of type struct"),
        ({"kind": "Odd", "apiVersion": "authorization.k8s.io/v1"}, 'no kind "Odd" is registered for version'),
        ({"spec": "x"}, "Go struct field SubjectAccessReview.spec of type v1.SubjectAccessReviewSpec"),
        ({"spec": {**spec, "groups": "x"}}, "SubjectAccessReviewSpec.spec.groups of type []string"),
        ({"spec": {**spec, "user": 1}}, "SubjectAccessReviewSpec.spec.user of type string"),
        ({"spec": {"resourceAttributes": "x"}}, "spec.resourceAttributes of type v1.ResourceAttributes"),
    ):
        (await api.call("POST", path, body)).expect_error(400, "BadRequest", text)
    malformed = {"spec": {**spec, "odd": 1}}
    assert "odd" not in (await api.call("POST", path, malformed)).expect_success().body["spec"]
    strict = await api.call("POST", path, malformed, {"fieldValidation": "Strict"})
    strict.expect_error(400, "BadRequest", 'strict decoding error: unknown field "spec.odd"')
    (await api.call("POST", path, {"spec": spec}, {"dryRun": "Odd"})).expect_error(422, "Invalid", "dryRun")
    named = await api.call("POST", path, {"spec": spec, "metadata": {"name": "x"}})
    named.expect_error(422, "Invalid", "must be empty")
    token = f"{_AUTHENTICATION_PATH}/tokenreviews"
    (await api.call("POST", token, {"spec": {"token": 1}})).expect_error(
        400, "BadRequest", "spec.token of type string"
    )
    (await api.call("POST", token, {"spec": {"token": "x", "audiences": "x"}})).expect_error(
        400, "BadRequest", "audiences"
    )
    assert (await api.call("POST", token, {"spec": {"token": "x"}, "metadata": {"name": "n"}})).metadata[
        "name"
    ] == "n"
    local = f"{_AUTHORIZATION_PATH}/namespaces/{api.namespace}/localsubjectaccessreviews"
    other_namespace = await api.call("POST", local, {"spec": spec, "metadata": {"namespace": "other"}})
    other_namespace.expect_error(400, "BadRequest", "the namespace of the provided object does not match")
    (await api.call("GET", f"{path}/x")).expect_error(404, "NotFound", "could not find the requested resource")
