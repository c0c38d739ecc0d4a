"""TokenReviews, SubjectAccessReviews and their variants, which are not stored.

Source: ``authentication.k8s.io/v1`` and ``authorization.k8s.io/v1`` of the API reference; wording of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from steersman.client.transport import HttpRequest
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import (
    AuthorizationAttributes,
    Authorizer,
    Decision,
    RequestUser,
    aggregate_errors,
)
from steersman_testing.apiserver.access.selector_attributes import selector_errors, unparsable_selectors
from steersman_testing.apiserver.access.tokens import DEFAULT_AUDIENCE, TokenAuthenticator
from steersman_testing.apiserver.body_decoder import BodyDecoder
from steersman_testing.apiserver.builtin.types import decode_builtin
from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.shapes import BuiltinShape
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_map, without_keys

_LOCAL_REVIEWS = "localsubjectaccessreviews"
_ACCESS_REVIEWS = ("subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
_REVIEW_KINDS = {
    "tokenreviews": "TokenReview",
    "selfsubjectreviews": "SelfSubjectReview",
    "subjectaccessreviews": "SubjectAccessReview",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    _LOCAL_REVIEWS: "LocalSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
}


def _review_kind(group: str, plural: str) -> ServedKind:
    resource = ApiResource(group, "v1", _REVIEW_KINDS[plural], plural)
    return ServedKind(resource=resource, shape=BuiltinShape((resource.kind,)))


_REVIEW_PATHS = ("apis/authentication.k8s.io/", "apis/authorization.k8s.io/")
# Errors of the real server omit the kind.
_REVIEW_RESOURCE = ApiResource("authorization.k8s.io", "v1", "", "")


@dataclass(slots=True)
class Reviews:
    """Evaluates reviews. Tests may change the results.

    Attributes:
        allows: decides about the ``spec`` of SubjectAccessReviews in wire form, self and local ones included.
            Defaults to None, which uses RBAC.
    """

    tokens: TokenAuthenticator
    authorizer: Authorizer
    timestamp: Callable[[], str]
    body_decoder: BodyDecoder
    allows: Callable[[JsonObject], bool] | None = field(default=None)

    @property
    def users(self) -> dict[str, JsonObject]:
        """Tokens of tests, each with its ``UserInfo`` in wire form.

        Add an entry to make a token valid, in addition to the tokens that TokenRequests issue.
        """
        return self.tokens.users

    def respond(self, request: HttpRequest, user: RequestUser) -> bytes | None:
        """Return the response to a review, or None for other requests.

        Raises:
            ApiError: 400 or 422, the review is invalid.
        """
        if not request.path.lstrip("/").startswith(_REVIEW_PATHS):
            return None
        match request.path.strip("/").split("/"):
            case [
                "apis",
                "authentication.k8s.io" as group,
                "v1",
                "tokenreviews" | "selfsubjectreviews" as plural,
            ]:
                namespace = ""
            case ["apis", "authorization.k8s.io" as group, "v1", plural] if plural in _ACCESS_REVIEWS:
                namespace = ""
            case ["apis", "authorization.k8s.io" as group, "v1", "namespaces", namespace, plural] if (
                plural == _LOCAL_REVIEWS
            ):
                pass
            case _:
                return None
        if request.method != "POST":
            raise failures.method_not_allowed()
        kind = _review_kind(group, plural)
        body = self.body_decoder.decode(kind, request, WriteOptions.of(request, user), name="", namespace=namespace)
        review, _ = decode_builtin(kind.resource, body)
        names = {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}
        return msgspec.json.encode({**names, "metadata": {}, **self._evaluate(plural, review, user, namespace)})

    def _evaluate(self, plural: str, review: JsonObject, user: RequestUser, namespace: str) -> JsonObject:
        spec, meta = _without_empty(get_object(review, "spec")), review["metadata"]
        match plural:
            case "selfsubjectreviews":
                return {
                    "metadata": {"creationTimestamp": self.timestamp()},
                    "status": {"userInfo": user.to_user_info()},
                }
            case "tokenreviews":
                return {"metadata": meta, "spec": spec, "status": self._token_review_status(spec)}
            case "selfsubjectrulesreviews":
                return {"spec": {}, "status": self._rules_review_status(spec, user)}
            case _:
                subject = user if plural == "selfsubjectaccessreviews" else None
                status = self._access_review_status(spec, meta, subject, namespace)
                return {"metadata": meta, "spec": spec, "status": status}

    def _token_review_status(self, spec: JsonObject) -> JsonObject:
        token = spec.get("token") or ""
        if not token:
            raise failures.bad_request("token is required for TokenReview in authentication")
        audiences: list[str] = spec.get("audiences") or [DEFAULT_AUDIENCE]
        result = self.tokens.authenticate_token(token, tuple(audiences))
        if result.user_info is None:
            return {"user": {}, "error": result.error}
        return {"authenticated": True, "user": result.user_info, "audiences": list(result.audiences)}

    def _access_review_status(
        self, spec: JsonObject, meta: JsonObject, subject: RequestUser | None, namespace: str
    ) -> JsonObject:
        errors = list(_spec_errors(spec, meta, namespace, is_self_review=subject is not None))
        if errors:
            raise failures.invalid(_REVIEW_RESOURCE, "", errors)
        if self.allows is not None:
            return {"allowed": self.allows(spec)}
        decision = self._decide(spec, subject or _user_of_spec(spec))
        status: JsonObject = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if ignored := list(unparsable_selectors(get_object(spec, "resourceAttributes"))):
            status["evaluationError"] = aggregate_errors(ignored)
        return status

    def _decide(self, spec: JsonObject, subject: RequestUser) -> Decision:
        path = get_object(spec, "nonResourceAttributes")
        if path:
            return self.authorizer.decide(
                subject, AuthorizationAttributes(path.get("verb", ""), path=path.get("path") or "/")
            )
        found = get_object(spec, "resourceAttributes")
        names = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
        return self.authorizer.decide(subject, AuthorizationAttributes(*(found.get(n) or "" for n in names)))

    def _rules_review_status(self, spec: JsonObject, user: RequestUser) -> JsonObject:
        namespace = spec.get("namespace") or ""
        if not namespace:
            raise failures.bad_request("no namespace on request")
        grants = list(self.authorizer.grants(user, namespace))
        rules = [g.rule for g in grants if not g.error]
        status: JsonObject = {
            "resourceRules": [r for r in rules if get_array(r, "resources")],
            "nonResourceRules": [r for r in rules if get_array(r, "nonResourceURLs")],
            "incomplete": False,
        }
        if errors := [g.error for g in grants if g.error]:
            status["evaluationError"] = aggregate_errors(errors)
        return status


def _without_empty(value: JsonObject) -> JsonObject:
    """Return ``value`` without empty strings and lists, which Go omits."""
    filled = {k: _without_empty(v) if is_map(v) else v for k, v in value.items()}
    return {k: v for k, v in filled.items() if v not in ("", [], None)}


def _user_of_spec(spec: JsonObject) -> RequestUser:
    extra: JsonObject = get_object(spec, "extra")
    extra_values = {k: tuple(v) for k, v in extra.items()}
    return RequestUser(spec.get("user") or "", tuple(get_array(spec, "groups")), spec.get("uid") or "", extra_values)


def _spec_errors(
    spec: JsonObject, meta: JsonObject, namespace: str, *, is_self_review: bool
) -> Iterator[InvalidFieldError]:
    if extra_metadata := without_keys(meta, ("namespace",)):
        yield invalid_value("metadata", extra_metadata, "must be empty")
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        yield invalid_value("spec.nonResourceAttributes", _go_attributes(path), detail)
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", None, detail)
    if not is_self_review and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")
    if resource is not None:
        yield from selector_errors(resource)
    if namespace and resource is not None and (found := resource.get("namespace") or "") != namespace:
        yield invalid_value("spec.resourceAttributes.namespace", found, "must match metadata.namespace")
    if namespace and path is not None:
        yield invalid_value("spec.nonResourceAttributes", _go_attributes(path), "disallowed on this kind of request")


def _go_attributes(path: Any) -> JsonObject:
    """Return NonResourceAttributes under the names of their Go fields."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
