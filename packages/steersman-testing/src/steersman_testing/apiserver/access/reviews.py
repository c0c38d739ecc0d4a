"""Questions that are posted and not stored: who am I, who holds a token, who may do what.

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
from steersman_testing.apiserver.access.authorization import Attributes, Authorizer, Decision, User, joined
from steersman_testing.apiserver.access.selector_attributes import selector_errors, unread_selectors
from steersman_testing.apiserver.access.tokens import AUDIENCE, Tokens
from steersman_testing.apiserver.builtin.types import conform_builtin
from steersman_testing.apiserver.failures import FieldError, invalid_value
from steersman_testing.apiserver.fields.shapes import BuiltinShape
from steersman_testing.apiserver.incoming import Incoming
from steersman_testing.apiserver.kinds import Kind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.values import JsonObject, is_map, list_at, map_at, without_keys

_LOCAL = "localsubjectaccessreviews"
_ACCESS = ("subjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews")
_KINDS = {
    "tokenreviews": "TokenReview",
    "selfsubjectreviews": "SelfSubjectReview",
    "subjectaccessreviews": "SubjectAccessReview",
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    _LOCAL: "LocalSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
}


def _kind(group: str, plural: str) -> Kind:
    resource = ApiResource(group, "v1", _KINDS[plural], plural)
    return Kind(resource=resource, shape=BuiltinShape((resource.kind,)))


_PATHS = ("apis/authentication.k8s.io/", "apis/authorization.k8s.io/")
# The real server's refusals leave the kind out.
_REVIEW = ApiResource("authorization.k8s.io", "v1", "", "")


@dataclass(slots=True)
class Reviews:
    """What reviews are answered; tests may change it.

    Attributes:
        allows: whether the ``spec`` of a SubjectAccessReview (a self or local one, too), in wire form, is allowed.
            None: as RBAC says.
    """

    tokens: Tokens
    authorizer: Authorizer
    timestamp: Callable[[], str]
    incoming: Incoming
    allows: Callable[[JsonObject], bool] | None = field(default=None)

    @property
    def users(self) -> dict[str, JsonObject]:
        """By token, the ``UserInfo`` in wire form of who holds it, beside the tokens that the server gave out."""
        return self.tokens.users

    def answer(self, request: HttpRequest, user: User) -> bytes | None:
        """The answer to a review that ``user`` posts; None where ``request`` is none.

        Raises:
            ApiError: 400 or 422, the question is none.
        """
        if not request.path.lstrip("/").startswith(_PATHS):
            return None
        match request.path.strip("/").split("/"):
            case [
                "apis",
                "authentication.k8s.io" as group,
                "v1",
                "tokenreviews" | "selfsubjectreviews" as plural,
            ]:
                namespace = ""
            case ["apis", "authorization.k8s.io" as group, "v1", plural] if plural in _ACCESS:
                namespace = ""
            case ["apis", "authorization.k8s.io" as group, "v1", "namespaces", namespace, plural] if plural == _LOCAL:
                pass
            case _:
                return None
        if request.method != "POST":
            raise failures.method_not_allowed()
        kind = _kind(group, plural)
        sent = self.incoming.sent(kind, request, WriteOptions.of(request, user), name="", namespace=namespace)
        review, _ = conform_builtin(kind.resource, sent)
        names = {"kind": kind.resource.kind, "apiVersion": kind.resource.api_version}
        return msgspec.json.encode({**names, "metadata": {}, **self._completed(plural, review, user, namespace)})

    def _completed(self, plural: str, review: JsonObject, user: User, namespace: str) -> JsonObject:
        spec, meta = _without_empty(map_at(review, "spec")), review["metadata"]
        match plural:
            case "selfsubjectreviews":
                return {"metadata": {"creationTimestamp": self.timestamp()}, "status": {"userInfo": user.info()}}
            case "tokenreviews":
                return {"metadata": meta, "spec": spec, "status": self._authenticated(spec)}
            case "selfsubjectrulesreviews":
                return {"spec": {}, "status": self._rules(spec, user)}
            case _:
                subject = user if plural == "selfsubjectaccessreviews" else None
                status = self._authorized(spec, meta, subject, namespace)
                return {"metadata": meta, "spec": spec, "status": status}

    def _authenticated(self, spec: JsonObject) -> JsonObject:
        token = spec.get("token") or ""
        if not token:
            raise failures.bad_request("token is required for TokenReview in authentication")
        asked: list[str] = spec.get("audiences") or [AUDIENCE]
        holder = self.tokens.holder(token, tuple(asked))
        if holder.info is None:
            return {"user": {}, "error": holder.error}
        return {"authenticated": True, "user": holder.info, "audiences": list(holder.audiences)}

    def _authorized(self, spec: JsonObject, meta: JsonObject, subject: User | None, namespace: str) -> JsonObject:
        errors = list(_errors(spec, meta, namespace, own=subject is not None))
        if errors:
            raise failures.invalid(_REVIEW, "", errors)
        if self.allows is not None:
            return {"allowed": self.allows(spec)}
        decision = self._decide(spec, subject or _subject(spec))
        status: JsonObject = {"allowed": decision.allowed}
        if decision.reason:
            status["reason"] = decision.reason
        if unread := list(unread_selectors(map_at(spec, "resourceAttributes"))):
            status["evaluationError"] = joined(unread)
        return status

    def _decide(self, spec: JsonObject, subject: User) -> Decision:
        path = map_at(spec, "nonResourceAttributes")
        if path:
            return self.authorizer.decide(subject, Attributes(path.get("verb", ""), path=path.get("path") or "/"))
        found = map_at(spec, "resourceAttributes")
        names = ("verb", "group", "version", "resource", "subresource", "namespace", "name")
        return self.authorizer.decide(subject, Attributes(*(found.get(n) or "" for n in names)))

    def _rules(self, spec: JsonObject, user: User) -> JsonObject:
        namespace = spec.get("namespace") or ""
        if not namespace:
            raise failures.bad_request("no namespace on request")
        grants = list(self.authorizer.grants(user, namespace))
        rules = [g.rule for g in grants if not g.error]
        status: JsonObject = {
            "resourceRules": [r for r in rules if list_at(r, "resources")],
            "nonResourceRules": [r for r in rules if list_at(r, "nonResourceURLs")],
            "incomplete": False,
        }
        if errors := [g.error for g in grants if g.error]:
            status["evaluationError"] = joined(errors)
        return status


def _without_empty(value: JsonObject) -> JsonObject:
    """As Go writes it, which leaves empty text and lists out."""
    filled = {k: _without_empty(v) if is_map(v) else v for k, v in value.items()}
    return {k: v for k, v in filled.items() if v not in ("", [], None)}


def _subject(spec: JsonObject) -> User:
    extra: JsonObject = map_at(spec, "extra")
    listed = {k: tuple(v) for k, v in extra.items()}
    return User(spec.get("user") or "", tuple(list_at(spec, "groups")), spec.get("uid") or "", listed)


def _errors(spec: JsonObject, meta: JsonObject, namespace: str, *, own: bool) -> Iterator[FieldError]:
    if told := without_keys(meta, ("namespace",)):
        yield invalid_value("metadata", told, "must be empty")
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if resource is not None and path is not None:
        detail = "cannot be specified in combination with resourceAttributes"
        yield invalid_value("spec.nonResourceAttributes", _go(path), detail)
    if resource is None and path is None:
        detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        yield invalid_value("spec.resourceAttributes", None, detail)
    if not own and not spec.get("user") and not spec.get("groups"):
        yield invalid_value("spec.user", "", "at least one of user or group must be specified")
    if resource is not None:
        yield from selector_errors(resource)
    if namespace and resource is not None and (found := resource.get("namespace") or "") != namespace:
        yield invalid_value("spec.resourceAttributes.namespace", found, "must match metadata.namespace")
    if namespace and path is not None:
        yield invalid_value("spec.nonResourceAttributes", _go(path), "disallowed on this kind of request")


def _go(path: Any) -> JsonObject:
    """NonResourceAttributes under the names of their Go fields."""
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}
