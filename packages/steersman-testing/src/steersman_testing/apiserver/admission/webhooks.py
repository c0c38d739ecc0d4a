"""One admission webhook: whether it is asked about an operation, what it is asked, and what its answer means.

Source: ``admissionregistration.k8s.io/v1``, ``admission.k8s.io/v1``; wording of Kubernetes 1.36.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import User
from steersman_testing.apiserver.admission.answers import REVIEW, CallError, decoded_review
from steersman_testing.apiserver.builtin.types import json_name
from steersman_testing.apiserver.callouts import Answer, Call
from steersman_testing.apiserver.kinds import NAMESPACES, GroupResource
from steersman_testing.apiserver.requests.bodies import json_problem
from steersman_testing.apiserver.requests.selectors import label_matcher, selector_text
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.values import (
    JsonObject,
    clone,
    is_list,
    is_map,
    list_at,
    map_at,
    write_whole_numbers,
)

Operation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """An operation that webhooks are asked about.

    Attributes:
        resource: what the request's path names.
        subresource: empty, or such as ``status``.
        namespace: empty for cluster-scoped objects; of a Namespace, its own name.
        name: as far as the request tells it.
        user: who asks for it.
        dry_run: whether nothing is to be kept.
        options: CreateOptions, UpdateOptions or DeleteOptions, without kind and version.
        sent: the kind of what is written, where a subresource has one of its own, such as Scale.
    """

    operation: Operation
    resource: ApiResource
    subresource: str
    namespace: str
    name: str
    user: User
    dry_run: bool = False
    options: JsonObject = field(default_factory=dict[str, Any])
    sent: ApiResource | None = None

    @property
    def collection(self) -> GroupResource:
        return GroupResource(self.resource.group, self.resource.plural)


@dataclass(frozen=True, slots=True)
class Change:
    """What an attempt does: objects in wire form, in the version of the request; None for one that is not there."""

    new: JsonObject | None
    old: JsonObject | None

    def wears(self, selector: JsonObject) -> bool:
        """Whether the object, before or after, has the labels that ``selector`` asks for."""
        return not selector or any(selects(selector, obj) for obj in (self.new, self.old) if obj is not None)


@dataclass(frozen=True, slots=True)
class Webhook:
    """One entry of a webhook configuration, completed.

    Attributes:
        spec: in wire form.
        mutating: whether it may change objects.
    """

    spec: JsonObject
    mutating: bool

    @property
    def name(self) -> str:
        return self.spec["name"]

    @property
    def may_fail(self) -> bool:
        """Whether a webhook that gives no answer is passed over."""
        return self.spec.get("failurePolicy") == "Ignore"

    def covers(self, attempt: Attempt, others: list[ApiResource]) -> ApiResource | None:
        """The resource, or one of ``others`` (its other versions), that a rule is about; None for none of them."""
        if any(_fits(rule, attempt, attempt.resource) for rule in list_at(self.spec, "rules")):
            return attempt.resource
        if self.spec.get("matchPolicy") == "Exact":
            return None
        for other in others:
            if any(_fits(rule, attempt, other) for rule in list_at(self.spec, "rules")):
                return other
        return None

    def selects_namespace(self, attempt: Attempt, change: Change, namespace: Stored | None) -> bool:
        """Whether the namespace of the object has the labels that are asked for; of a Namespace, itself."""
        selector = map_at(self.spec, "namespaceSelector")
        if not selector or not attempt.namespace:
            return True
        if attempt.collection == NAMESPACES and attempt.operation != "DELETE" and change.new is not None:
            return selects(selector, change.new)
        return namespace is not None and selects(selector, namespace.object)

    def call(self, attempt: Attempt, matched: ApiResource, change: Change) -> Call:
        """The question."""
        request = question(attempt, matched, change)
        review: JsonObject = {"kind": REVIEW[1], "apiVersion": REVIEW[0], "request": request}
        return Call(self.spec["clientConfig"], review, float(self.spec.get("timeoutSeconds", 10)), self.name)

    def response(self, answer: Answer) -> JsonObject:
        """What the webhook says, in wire form and of the right types.

        Raises:
            CallError: it is malformed.
        """
        review = decoded_review(answer.review)
        problem = _malformed(review, answer.uid) or self._misplaced(map_at(review, "response"))
        if problem:
            raise CallError(f"received invalid webhook response: {problem}")
        return review["response"]

    def _misplaced(self, response: JsonObject) -> str:
        patch, kind = response.get("patch"), response.get("patchType")
        if not self.mutating:
            named = "patch" if patch else "patchType" if kind is not None else ""
            return f"validating webhook may not return response.{named}" if named else ""
        if patch and kind is None:
            return "webhook returned response.patch but not response.patchType"
        if kind is not None and not patch:
            return "webhook returned response.patchType but not response.patch"
        if kind == "":
            return f'webhook returned invalid response.patchType of "{kind}"'
        return ""

    def patch(self, response: JsonObject) -> list[JsonObject]:
        """The operations of the JSON patch in ``response``.

        Raises:
            CallError: it is no JSON patch.
        """
        text = response.get("patch")
        if not text:
            return []
        try:
            operations: Any = msgspec.json.decode(base64.b64decode(text))
        except msgspec.DecodeError as error:
            raise CallError(f"received undecodable patch in webhook response: {json_problem(error)}") from error
        wrong = ""
        if operations is not None and not is_list(operations):
            wrong = f"{json_name(operations)} into Go value of type jsonpatch.Patch"
        elif other := [o for o in operations or () if o is not None and not is_map(o)]:
            wrong = f"{json_name(other[0])} into Go value of type jsonpatch.Operation"
        if wrong:
            raise CallError(f"received undecodable patch in webhook response: json: cannot unmarshal {wrong}")
        if operations and response.get("patchType") != "JSONPatch":
            raise CallError(f'unsupported patch type "{response.get("patchType")}"')
        return [operation or {} for operation in operations or ()]

    def denial(self, response: JsonObject) -> ApiError:
        """The refusal in ``response``."""
        status = map_at(response, "status")
        because = status.get("message") or status.get("reason")
        told = f": {because}" if because else " without explanation"
        return failures.denied(f'admission webhook "{self.name}" denied the request{told}', status)


def question(attempt: Attempt, matched: ApiResource, change: Change) -> JsonObject:
    """``AdmissionReview.request`` without its uid."""
    request: JsonObject = {"kind": _kind(attempt.sent or matched), "resource": _resource(matched)}
    if attempt.subresource:
        request["subResource"] = attempt.subresource
    request["requestKind"] = _kind(attempt.sent or attempt.resource)
    request["requestResource"] = _resource(attempt.resource)
    if attempt.subresource:
        request["requestSubResource"] = attempt.subresource
    if attempt.name:
        request["name"] = attempt.name
    if attempt.namespace:
        request["namespace"] = attempt.namespace
    kind = f"{attempt.operation.capitalize()}Options"
    return request | {
        "operation": attempt.operation,
        "userInfo": attempt.user.info(),
        "object": _in_version(change.new, attempt.sent or matched),
        "oldObject": _in_version(change.old, attempt.sent or matched),
        "dryRun": attempt.dry_run,
        "options": {"kind": kind, "apiVersion": "meta.k8s.io/v1", **attempt.options},
    }


def _resource(resource: ApiResource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _kind(resource: ApiResource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _in_version(obj: JsonObject | None, resource: ApiResource) -> JsonObject | None:
    if obj is None:
        return None
    told: JsonObject = clone(obj)
    write_whole_numbers(told)
    return {**told, "apiVersion": resource.api_version}


def selects(selector: JsonObject, obj: JsonObject) -> bool:
    """Whether ``obj`` has the labels that a ``LabelSelector`` asks for."""
    matches = label_matcher(selector_text(selector))
    return matches is None or matches(obj)


def _fits(rule: JsonObject, attempt: Attempt, resource: ApiResource) -> bool:
    return (
        _holds(rule, "operations", attempt.operation)
        and _holds(rule, "apiGroups", resource.group)
        and _holds(rule, "apiVersions", resource.version)
        and any(_covers(r, resource.plural, attempt.subresource) for r in list_at(rule, "resources"))
        and _in_scope(rule.get("scope", "*"), attempt)
    )


def _holds(rule: JsonObject, name: str, value: str) -> bool:
    values = list_at(rule, name)
    return "*" in values or value in values


def _covers(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, below = pattern.partition("/")
    return resource in ("*", plural) and below in ("*", subresource)


def _in_scope(scope: str, attempt: Attempt) -> bool:
    in_cluster = attempt.collection == NAMESPACES or not attempt.namespace
    return scope == "*" or (scope == "Cluster") == in_cluster


def _malformed(review: JsonObject, uid: str) -> str:
    response = review.get("response")
    if response is None:
        return "webhook response was absent"
    if response.get("uid", "") != uid:
        return f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if (version, kind) != REVIEW:
        named = version if "/" in version else f"/{version}"
        return f"expected webhook response of {REVIEW[0]}, Kind={REVIEW[1]}, got {named}, Kind={kind}"
    return ""
