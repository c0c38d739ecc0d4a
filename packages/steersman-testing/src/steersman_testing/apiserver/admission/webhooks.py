"""One admission webhook: matching, request and response.

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
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.admission.responses import REVIEW, CallingWebhookError, decode_review
from steersman_testing.apiserver.builtin.types import json_type_name
from steersman_testing.apiserver.kinds import NAMESPACES, GroupResource
from steersman_testing.apiserver.requests.bodies import go_json_error
from steersman_testing.apiserver.requests.selectors import label_matcher, label_selector_text
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import (
    JsonObject,
    clone,
    get_array,
    get_object,
    is_list,
    is_map,
    normalize_numbers,
)
from steersman_testing.apiserver.webhook_calls import WebhookCall, WebhookResponse

AdmissionOperation = Literal["CREATE", "UPDATE", "DELETE"]


@dataclass(frozen=True, slots=True)
class AdmissionAttributes:
    """An operation that passes admission.

    Attributes:
        resource: the resource of the request path.
        subresource: such as ``status``. Empty for the object itself.
        namespace: empty for cluster-scoped objects. A Namespace has its own name.
        name: the name in the request. It may be empty.
        user: the user of the request.
        dry_run: whether nothing is stored.
        options: CreateOptions, UpdateOptions or DeleteOptions without kind and version.
        object_kind: the kind of the body if it differs from the resource, such as Scale.
    """

    operation: AdmissionOperation
    resource: ApiResource
    subresource: str
    namespace: str
    name: str
    user: RequestUser
    dry_run: bool = False
    options: JsonObject = field(default_factory=dict[str, Any])
    object_kind: ApiResource | None = None

    @property
    def collection(self) -> GroupResource:
        return GroupResource(self.resource.group, self.resource.plural)


@dataclass(frozen=True, slots=True)
class AdmissionObjects:
    """New and old object of an operation, in wire form.

    Both are in the version of the operation.
    """

    new: JsonObject | None
    old: JsonObject | None

    def matches_labels(self, selector: JsonObject) -> bool:
        """Return True if an object matches ``selector``."""
        return not selector or any(selector_matches(selector, obj) for obj in (self.new, self.old) if obj is not None)


@dataclass(frozen=True, slots=True)
class WebhookAccessor:
    """One webhook of a webhook configuration.

    Attributes:
        spec: the webhook in wire form, with defaults.
        mutating: whether it may change objects.
    """

    spec: JsonObject
    mutating: bool

    @property
    def name(self) -> str:
        return self.spec["name"]

    @property
    def ignores_failures(self) -> bool:
        """The failure policy is Ignore."""
        return self.spec.get("failurePolicy") == "Ignore"

    def matching_resource(
        self, attributes: AdmissionAttributes, equivalents: list[ApiResource]
    ) -> ApiResource | None:
        """Return the resource that a rule matches, or None.

        Args:
            equivalents: other versions of the resource.
        """
        if any(_rule_matches(rule, attributes, attributes.resource) for rule in get_array(self.spec, "rules")):
            return attributes.resource
        if self.spec.get("matchPolicy") == "Exact":
            return None
        for equivalent in equivalents:
            if any(_rule_matches(rule, attributes, equivalent) for rule in get_array(self.spec, "rules")):
                return equivalent
        return None

    def matches_namespace(
        self, attributes: AdmissionAttributes, objects: AdmissionObjects, namespace: StoredObject | None
    ) -> bool:
        """Return True if the namespace matches the namespaceSelector.

        For a Namespace, its own labels count.
        """
        selector = get_object(self.spec, "namespaceSelector")
        if not selector or not attributes.namespace:
            return True
        if attributes.collection == NAMESPACES and attributes.operation != "DELETE" and objects.new is not None:
            return selector_matches(selector, objects.new)
        return namespace is not None and selector_matches(selector, namespace.object)

    def call(self, attributes: AdmissionAttributes, matched: ApiResource, objects: AdmissionObjects) -> WebhookCall:
        """Return the call for an operation."""
        request = admission_request(attributes, matched, objects)
        review: JsonObject = {"kind": REVIEW[1], "apiVersion": REVIEW[0], "request": request}
        return WebhookCall(self.spec["clientConfig"], review, float(self.spec.get("timeoutSeconds", 10)), self.name)

    def decode_response(self, webhook_response: WebhookResponse) -> JsonObject:
        """Return the response in wire form, decoded and checked.

        Raises:
            CallingWebhookError: the response is malformed.
        """
        review = decode_review(webhook_response.review)
        problem = _review_error(review, webhook_response.uid) or self._patch_field_error(
            get_object(review, "response")
        )
        if problem:
            raise CallingWebhookError(f"received invalid webhook response: {problem}")
        return review["response"]

    def _patch_field_error(self, response: JsonObject) -> str:
        patch, kind = response.get("patch"), response.get("patchType")
        if not self.mutating:
            field_name = "patch" if patch else "patchType" if kind is not None else ""
            return f"validating webhook may not return response.{field_name}" if field_name else ""
        if patch and kind is None:
            return "webhook returned response.patch but not response.patchType"
        if kind is not None and not patch:
            return "webhook returned response.patchType but not response.patch"
        if kind == "":
            return f'webhook returned invalid response.patchType of "{kind}"'
        return ""

    def decode_patch(self, response: JsonObject) -> list[JsonObject]:
        """Return the operations of the JSON patch in ``response``.

        Raises:
            CallingWebhookError: the patch is malformed.
        """
        text = response.get("patch")
        if not text:
            return []
        try:
            operations: Any = msgspec.json.decode(base64.b64decode(text))
        except msgspec.DecodeError as error:
            raise CallingWebhookError(
                f"received undecodable patch in webhook response: {go_json_error(error)}"
            ) from error
        type_error = ""
        if operations is not None and not is_list(operations):
            type_error = f"{json_type_name(operations)} into Go value of type jsonpatch.Patch"
        elif non_objects := [o for o in operations or () if o is not None and not is_map(o)]:
            type_error = f"{json_type_name(non_objects[0])} into Go value of type jsonpatch.Operation"
        if type_error:
            raise CallingWebhookError(
                f"received undecodable patch in webhook response: json: cannot unmarshal {type_error}"
            )
        if operations and response.get("patchType") != "JSONPatch":
            raise CallingWebhookError(f'unsupported patch type "{response.get("patchType")}"')
        return [operation or {} for operation in operations or ()]

    def denial_error(self, response: JsonObject) -> ApiError:
        """Return the error for a denied request."""
        status = get_object(response, "status")
        reason = status.get("message") or status.get("reason")
        explanation = f": {reason}" if reason else " without explanation"
        return failures.webhook_denied(f'admission webhook "{self.name}" denied the request{explanation}', status)


def admission_request(attributes: AdmissionAttributes, matched: ApiResource, objects: AdmissionObjects) -> JsonObject:
    """Return ``AdmissionReview.request`` without its UID."""
    request: JsonObject = {"kind": _kind(attributes.object_kind or matched), "resource": _resource(matched)}
    if attributes.subresource:
        request["subResource"] = attributes.subresource
    request["requestKind"] = _kind(attributes.object_kind or attributes.resource)
    request["requestResource"] = _resource(attributes.resource)
    if attributes.subresource:
        request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    kind = f"{attributes.operation.capitalize()}Options"
    return request | {
        "operation": attributes.operation,
        "userInfo": attributes.user.to_user_info(),
        "object": _with_api_version(objects.new, attributes.object_kind or matched),
        "oldObject": _with_api_version(objects.old, attributes.object_kind or matched),
        "dryRun": attributes.dry_run,
        "options": {"kind": kind, "apiVersion": "meta.k8s.io/v1", **attributes.options},
    }


def _resource(resource: ApiResource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}


def _kind(resource: ApiResource) -> JsonObject:
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _with_api_version(obj: JsonObject | None, resource: ApiResource) -> JsonObject | None:
    if obj is None:
        return None
    converted: JsonObject = clone(obj)
    normalize_numbers(converted)
    return {**converted, "apiVersion": resource.api_version}


def selector_matches(selector: JsonObject, obj: JsonObject) -> bool:
    """Return True if the labels of ``obj`` match a ``LabelSelector``."""
    matches = label_matcher(label_selector_text(selector))
    return matches is None or matches(obj)


def _rule_matches(rule: JsonObject, attributes: AdmissionAttributes, resource: ApiResource) -> bool:
    return (
        _value_matches(rule, "operations", attributes.operation)
        and _value_matches(rule, "apiGroups", resource.group)
        and _value_matches(rule, "apiVersions", resource.version)
        and any(_resource_matches(r, resource.plural, attributes.subresource) for r in get_array(rule, "resources"))
        and _scope_matches(rule.get("scope", "*"), attributes)
    )


def _value_matches(rule: JsonObject, name: str, value: str) -> bool:
    values = get_array(rule, name)
    return "*" in values or value in values


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, pattern_subresource = pattern.partition("/")
    return resource in ("*", plural) and pattern_subresource in ("*", subresource)


def _scope_matches(scope: str, attributes: AdmissionAttributes) -> bool:
    in_cluster = attributes.collection == NAMESPACES or not attributes.namespace
    return scope == "*" or (scope == "Cluster") == in_cluster


def _review_error(review: JsonObject, uid: str) -> str:
    response = review.get("response")
    if response is None:
        return "webhook response was absent"
    if response.get("uid", "") != uid:
        return f'expected response.uid="{uid}", got "{response.get("uid", "")}"'
    version, kind = review.get("apiVersion") or "", review.get("kind") or ""
    if (version, kind) != REVIEW:
        group_version = version if "/" in version else f"/{version}"
        return f"expected webhook response of {REVIEW[0]}, Kind={REVIEW[1]}, got {group_version}, Kind={kind}"
    return ""
