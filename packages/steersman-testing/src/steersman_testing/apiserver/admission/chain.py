"""Admission chain: the order of webhooks, and the effect of their responses.

Mutating webhooks run one after the other, after defaulting and before validation. Validating webhooks run
concurrently after validation. Requests of controllers pass the chain as well: see ``ControllerRequests``.

Source: "Dynamic Admission Control"; ``k8s.io/apiserver/pkg/admission/plugin/webhook`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from steersman.errors import ApiError
from steersman.meta import ApiResource, ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.admission.match_conditions import MatchConditionError, conditions_match
from steersman_testing.apiserver.admission.responses import CallingWebhookError
from steersman_testing.apiserver.admission.webhooks import (
    AdmissionAttributes,
    AdmissionObjects,
    WebhookAccessor,
    admission_request,
)
from steersman_testing.apiserver.builtin.types import decode_metadata
from steersman_testing.apiserver.fields.patches import json_patch
from steersman_testing.apiserver.go_values import UnmarshalTypeError
from steersman_testing.apiserver.kinds import NAMESPACES, GroupResource, KindRegistry, ServedKind
from steersman_testing.apiserver.requests.bodies import SCHEME, type_meta_error
from steersman_testing.apiserver.storage import Storage
from steersman_testing.apiserver.strategy import redecode, set_defaults
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object
from steersman_testing.apiserver.webhook_calls import WebhookCaller, WebhookCallFailed, WebhookResponse

_GROUP = "admissionregistration.k8s.io"
_MUTATING = GroupResource(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = GroupResource(_GROUP, "validatingwebhookconfigurations")

_PATCH_OPERATIONS = ("add", "copy", "move", "remove", "replace", "test")

DecodeFunc = Callable[[JsonObject], JsonObject]


@dataclass(frozen=True, slots=True)
class AdmissionChain:
    """Calls the configured webhooks.

    Attributes:
        warnings: warnings for the response to the current request, from webhooks, field validation and deprecated
            versions. The server clears it before each request.
    """

    storage: Storage
    kinds: KindRegistry
    webhook_caller: WebhookCaller
    warnings: list[str] = field(default_factory=list[str])

    @property
    def is_configured(self) -> bool:
        """There are webhook configurations."""
        return self.storage.has_any(_MUTATING) or self.storage.has_any(_VALIDATING)

    def mutate(self, attributes: AdmissionAttributes, objects: AdmissionObjects, decode: DecodeFunc) -> JsonObject:
        """Return the new object after the mutating webhooks.

        Args:
            attributes: a create or an update.
            decode: decodes the object that a webhook returns.

        Raises:
            ApiError: a webhook denies the request, or fails with the failure policy Fail.
            PendingWebhook: a webhook must be called first.
        """
        mutated = _MutatingDispatch(self, attributes, objects, decode).run()
        assert mutated.new is not None, "a deletion has no object to change: see mutate_deletion"
        return mutated.new

    def mutate_deletion(self, attributes: AdmissionAttributes, objects: AdmissionObjects) -> None:
        """Call the mutating webhooks for a deletion, which they cannot change.

        Raises:
            ApiError, PendingWebhook: as ``mutate``.
        """
        _MutatingDispatch(self, attributes, objects, clone).run()

    def validate(self, attributes: AdmissionAttributes, objects: AdmissionObjects) -> None:
        """Call the validating webhooks.

        Raises:
            ApiError, PendingWebhook: as ``mutate``.
        """
        matching_hooks = list(self._matching_hooks(_VALIDATING, attributes, objects))
        if not matching_hooks:
            return
        calls = [hook.call(attributes, matched, objects) for hook, matched in matching_hooks]
        results = self.webhook_caller.call_all(calls)
        # Of several denials, the real server reports the first one to arrive.
        for position in self.webhook_caller.completion_order(calls):
            self.review_result(matching_hooks[position][0], results[position])

    def reject_if_webhooks_match(self, attributes: AdmissionAttributes) -> None:
        """Reject an operation that matches a webhook but cannot call it here.

        Raises:
            ApiError: 501.
        """
        objects = AdmissionObjects(None, None)
        namespace = self.storage.get(NAMESPACES, ObjectKey("", attributes.namespace))
        for hook, _ in (*self._hooks(_MUTATING, attributes), *self._hooks(_VALIDATING, attributes)):
            if hook.matching_resource(attributes, []) and hook.matches_namespace(attributes, objects, namespace):
                target = "/".join(p for p in (attributes.resource.plural, attributes.subresource) if p)
                raise failures.not_implemented(f'calling the admission webhook "{hook.name}" for {target}')

    def review_result(self, hook: WebhookAccessor, result: WebhookResponse | WebhookCallFailed) -> JsonObject | None:
        """Return the response of an allowed request.

        None if the webhook failed with the failure policy Ignore.
        """
        try:
            if isinstance(result, WebhookCallFailed):
                raise CallingWebhookError(f"failed to call webhook: {result}")
            response = hook.decode_response(result)
        except CallingWebhookError as error:
            if hook.ignores_failures:
                return None
            raise failures.internal(f'failed calling webhook "{hook.name}": {error}') from error
        self.warnings.extend(get_array(response, "warnings"))
        if not response.get("allowed"):
            raise hook.denial_error(response)
        return response

    def _matching_hooks(
        self, collection: GroupResource, attributes: AdmissionAttributes, objects: AdmissionObjects
    ) -> Iterator[tuple[WebhookAccessor, ApiResource]]:
        """Yield the matching webhooks with their matched resources."""
        for hook, _ in self._hooks(collection, attributes):
            matched = self.matched_resource(hook, attributes, objects)
            if matched is not None:
                yield hook, matched

    def mutating_hooks(self, attributes: AdmissionAttributes) -> Iterator[tuple[WebhookAccessor, str]]:
        """Yield all mutating webhooks with unique names, in their order."""
        return self._hooks(_MUTATING, attributes)

    def _hooks(
        self, collection: GroupResource, attributes: AdmissionAttributes
    ) -> Iterator[tuple[WebhookAccessor, str]]:
        # Webhooks never block changes of their own configurations. Source: "Dynamic Admission Control".
        for configuration in self.storage.list(collection) if attributes.resource.group != _GROUP else ():
            for spec in get_array(configuration.object, "webhooks"):
                yield WebhookAccessor(spec, collection == _MUTATING), f"{configuration.key.name}/{spec['name']}"

    def matched_resource(
        self, hook: WebhookAccessor, attributes: AdmissionAttributes, objects: AdmissionObjects
    ) -> ApiResource | None:
        """Return the resource to call ``hook`` with, or None.

        Raises:
            ApiError: 403, its match conditions fail with the failure policy Fail.
        """
        namespace = self.storage.get(NAMESPACES, ObjectKey("", attributes.namespace))
        if not hook.matches_namespace(attributes, objects, namespace):
            return None
        if not objects.matches_labels(get_object(hook.spec, "objectSelector")):
            return None
        matched = hook.matching_resource(attributes, self._equivalent_resources(attributes))
        if matched is not None and matched != attributes.resource and self._needs_conversion(matched):
            raise failures.not_implemented(f'calling the admission webhook "{hook.name}" in a converted version')
        conditions = get_array(hook.spec, "matchConditions")
        if matched is None or not conditions:
            return matched
        try:
            matches = conditions_match(
                conditions, objects.new, objects.old, admission_request(attributes, matched, objects)
            )
        except MatchConditionError as error:
            if hook.ignores_failures:
                return None
            raise failures.forbidden(attributes.resource, attributes.name, str(error)) from error
        return matched if matches else None

    def _needs_conversion(self, resource: ApiResource) -> bool:
        """Return True if a webhook converts between the versions."""
        kind = self.kinds.find(resource.group, resource.version, resource.plural)
        versions = kind.versions if kind is not None else None
        return versions is not None and versions.conversion.get("strategy") == "Webhook"

    def _equivalent_resources(self, attributes: AdmissionAttributes) -> list[ApiResource]:
        """Return the other versions and groups of the same objects."""
        found = [k.resource for k in self.kinds if k.collection == attributes.collection]
        return [r for r in found if r.version != attributes.resource.version]


class _MutatingDispatch:
    """Calls the mutating webhooks, at most twice: see ``reinvocationPolicy``."""

    def __init__(
        self,
        admission: AdmissionChain,
        attributes: AdmissionAttributes,
        objects: AdmissionObjects,
        decode: DecodeFunc,
    ) -> None:
        self._admission = admission
        self._attributes = attributes
        self._objects = objects
        self._decode = decode
        self._invoked: list[str] = []
        self._reinvoke: set[str] = set()

    def run(self) -> AdmissionObjects:
        self._invoke_all(first=True)
        if self._reinvoke:
            self._invoke_all(first=False)
        return self._objects

    def _invoke_all(self, *, first: bool) -> None:
        for hook, identity in self._admission.mutating_hooks(self._attributes):
            if not first and identity not in self._reinvoke:
                continue
            matched = self._admission.matched_resource(hook, self._attributes, self._objects)
            if matched is not None:
                self._invoke(hook, matched, identity)

    def _invoke(self, hook: WebhookAccessor, matched: ApiResource, identity: str) -> None:
        call = hook.call(self._attributes, matched, self._objects)
        (result,) = self._admission.webhook_caller.call_all([call])
        response = self._admission.review_result(hook, result)
        changed = response is not None and self._apply_patch(hook, response)
        if changed:
            # Webhooks that were called before have seen an older object.
            self._reinvoke.update(self._invoked)
            self._invoked.clear()
        if hook.spec.get("reinvocationPolicy") == "IfNeeded":
            self._invoked.append(identity)

    def _apply_patch(self, hook: WebhookAccessor, response: JsonObject) -> bool:
        """Apply the patch of a response. Return True if the object changes."""
        try:
            operations = hook.decode_patch(response)
        except CallingWebhookError as error:
            if hook.ignores_failures:
                return False
            raise failures.internal(f'failed calling webhook "{hook.name}": {error}') from error
        if not operations:
            return False
        before = self._objects.new
        if before is None:
            reason = "attempted to modify the object, which is not supported for this operation"
            raise failures.internal(f'admission webhook "{hook.name}" {reason}')
        after = clone(before)
        for operation in operations:
            after = _apply_operation(after, operation)
        self._check_patched(before, after)
        try:
            decoded_object = self._decode(after)
        except ApiError as error:
            if error.code != 400:
                raise
            # The webhook caused the error, not the client.
            raise failures.internal(error.status.message.partition(": ")[2]) from error
        self._objects = AdmissionObjects(decoded_object, self._objects.old)
        return self._objects.new != before

    def _check_patched(self, before: JsonObject, after: JsonObject) -> None:
        """Complete the patched object and reject another kind or namespace."""
        resource = self._attributes.object_kind or self._attributes.resource
        if problem := type_meta_error(after):
            raise failures.internal(f"couldn't get version/kind; json parse error: {problem}")
        for name in ("apiVersion", "kind"):
            after[name] = after.get(name) or before[name]
        version, kind = after["apiVersion"], after["kind"]
        if (version, kind) != (before["apiVersion"], before["kind"]):
            if self._admission.kinds.find_by_gvk(version, kind) is None:
                raise failures.internal(f'no kind "{kind}" is registered for version "{version}" in {SCHEME}')
            go_type = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
            raise failures.unclassified_error(
                f"converting ({version.rpartition('/')[2]}.{kind}) to ({go_type}): unknown conversion"
            )
        patched_metadata = after.get("metadata")
        try:
            meta, _ = decode_metadata({} if patched_metadata is None else patched_metadata, resource.kind)
        except UnmarshalTypeError as error:
            raise failures.internal(str(error)) from None
        after["metadata"] = meta
        namespace = before["metadata"].get("namespace", "")
        if (meta.get("namespace") or namespace) != namespace:
            raise failures.bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        if namespace:
            meta["namespace"] = namespace


def decode_mutated(kind: ServedKind, obj: JsonObject, *, applied: bool) -> JsonObject:
    """Return the object of a webhook, pruned and with defaults.

    Args:
        applied: whether it comes from a server-side apply, which keeps nulls.
    """
    managed_fields = obj["metadata"].pop("managedFields", None)
    result = {**set_defaults(kind, redecode(kind, obj, from_apply=applied)), "apiVersion": obj["apiVersion"]}
    if managed_fields is not None:
        result["metadata"] = {**result["metadata"], "managedFields": managed_fields}
    return result


def _apply_operation(obj: JsonObject, operation: JsonObject) -> JsonObject:
    """Apply one operation of a JSON patch.

    Raises:
        ApiError: 500, it does not apply.
    """
    verb, path = operation.get("op") or "unknown", operation.get("path")
    if verb not in _PATCH_OPERATIONS:
        raise failures.internal(f"Unexpected kind: {verb}")
    if not isinstance(path, str):
        raise failures.internal(f"{verb} operation failed to decode path: missing value")
    if verb in ("copy", "move") and not isinstance(operation.get("from"), str):
        reason = "operation, missing from field: missing value"
        raise failures.internal(f"{verb} operation failed to decode from: {reason}")
    if not path:
        raise failures.internal(f'{verb} operation does not apply: doc is missing path: "": missing value')
    try:
        return json_patch(obj, [{"value": None, **operation}])
    except ApiError as error:
        if verb == "test":
            raise failures.internal(f"testing value {path} failed: test failed") from error
        target_path = operation["from"] if verb == "move" else path
        key = target_path.rpartition("/")[2]
        if verb in ("add", "replace", "copy") or target_path.count("/") != 1:
            text = f'{verb} operation does not apply: doc is missing path: "{target_path}": missing value'
        else:
            location = key if verb == "move" else target_path
            text = f"error in {verb} for path: '{location}': Unable to remove nonexistent key: {key}: missing value"
        raise failures.internal(text) from error
