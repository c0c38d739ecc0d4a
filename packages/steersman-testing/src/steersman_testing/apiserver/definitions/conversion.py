"""Conversion of custom resources between versions.

An object is stored in one version and served in several. A read prunes the stored object with the schema of its
stored version, drops its nulls and fills its defaults, including those added later. Then it converts the object and
prunes it with the schema of the requested version.

Source: ``pkg/apiserver/conversion`` and ``customresource_handler.go`` of ``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.events import EVENTS_V1, to_core_v1, to_events_v1
from steersman_testing.apiserver.failures import InvalidFieldError
from steersman_testing.apiserver.fields import managed_fields
from steersman_testing.apiserver.fields.managed_fields import ManagedFields
from steersman_testing.apiserver.go_values import go_type_name
from steersman_testing.apiserver.kinds import CustomResourceVersions, ServedKind
from steersman_testing.apiserver.names import validate_annotations, validate_labels
from steersman_testing.apiserver.schemas.embedded import prune_embedded_metadata
from steersman_testing.apiserver.schemas.schema import fill_defaults, prune
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import JsonObject, clone, get_array, get_object, is_map
from steersman_testing.apiserver.webhook_calls import PendingWebhook, WebhookCall, WebhookCaller, WebhookCallFailed

_REVIEW_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class VersionConverter:
    """Converts custom resources from and to their storage version."""

    webhook_caller: WebhookCaller

    def from_storage(self, kind: ServedKind, stored: StoredObject) -> StoredObject:
        """Return ``stored`` in the version of ``kind``.

        Raises:
            ApiError: 500, the conversion webhook fails.
            PendingWebhook: the webhook must be called first.
        """
        versions = kind.versions
        if versions is None:
            return _event_in_events_v1(stored) if kind.resource == EVENTS_V1 else stored
        converted = stored.cached_conversion(kind.resource.version, versions)
        if converted is None:
            obj = self._from_storage(kind, versions, stored.object, stored.managers)
            converted = stored.cache_conversion(kind.resource.version, versions, obj)
        return converted

    def list_from_storage(self, kind: ServedKind, stored: Sequence[StoredObject]) -> list[StoredObject]:
        """Convert each object as ``from_storage``, with concurrent webhook calls."""
        if kind.versions is None:
            return [self.from_storage(kind, one) for one in stored] if kind.resource == EVENTS_V1 else list(stored)
        found: list[StoredObject] = []
        missing: list[WebhookCall] = []
        for one in stored:
            try:
                found.append(self.from_storage(kind, one))
            except PendingWebhook as pending:
                missing += pending.calls
        if missing:
            raise PendingWebhook(missing)
        return found

    def _from_storage(
        self, kind: ServedKind, versions: CustomResourceVersions, stored: JsonObject, managers: ManagedFields
    ) -> JsonObject:
        stored_version = stored["apiVersion"].rpartition("/")[2]
        schema = versions.schemas.get(stored_version)
        if schema is None:
            group = kind.resource.group
            raise failures.unclassified_error(
                f"request to convert CR from an invalid group/version: {group}/{stored_version}"
            )
        obj, _ = prune_to_schema(stored, schema)
        fill_defaults(obj, schema)
        return self._convert(versions, obj, managers, kind.resource.group, kind.resource.version)

    def to_storage(self, kind: ServedKind, obj: JsonObject, managers: ManagedFields) -> JsonObject:
        """Return ``obj`` in the storage version, or ``obj`` itself without a change.

        The conversion back is requested before anything is stored.

        Raises:
            ApiError, PendingWebhook: as ``from_storage``.
        """
        versions = kind.versions
        if versions is None:
            return to_core_v1(obj) if kind.resource == EVENTS_V1 else obj
        stored = self._convert(versions, obj, managers, kind.resource.group, versions.storage_version)
        if stored is not obj and versions.conversion.get("strategy") == "Webhook":
            self._from_storage(kind, versions, stored, managers)
        return stored

    def from_storage_after_write(self, kind: ServedKind, stored: StoredObject, *, converted: bool) -> StoredObject:
        """Convert an object that was just written as ``from_storage``.

        Args:
            converted: whether ``to_storage`` changed it.
        """
        if converted or kind.versions is None:
            return self.from_storage(kind, stored)
        return stored.cache_conversion(kind.resource.version, kind.versions, stored.object)

    def _convert(
        self, versions: CustomResourceVersions, obj: JsonObject, managers: ManagedFields, group: str, version: str
    ) -> JsonObject:
        api_version = f"{group}/{version}"
        if obj["apiVersion"] == api_version:
            return obj
        return prune_to_schema(self.convert(versions, obj, api_version, managers), versions.schemas[version])[0]

    def convert(
        self,
        versions: CustomResourceVersions,
        obj: JsonObject,
        api_version: str,
        managers: ManagedFields | None = None,
    ) -> JsonObject:
        """Return ``obj`` in ``api_version`` without pruning.

        Raises:
            ApiError, PendingWebhook: as ``from_storage``.
        """
        if versions.conversion.get("strategy") == "Webhook" and obj["apiVersion"] != api_version:
            return self._call_webhook(versions, obj, managers or {}, api_version)
        return {**obj, "apiVersion": api_version}

    def _call_webhook(
        self, versions: CustomResourceVersions, obj: JsonObject, managers: ManagedFields, api_version: str
    ) -> JsonObject:
        # Objects have no resourceVersion during a conversion.
        meta = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
        if managers:
            meta["managedFields"] = managed_fields.encode_managed_fields(managers)
        webhook: JsonObject = versions.conversion["webhook"]
        review_version = next((v for v in webhook["conversionReviewVersions"] if v in _REVIEW_VERSIONS), "")
        review: JsonObject = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{review_version}",
            "request": {"desiredAPIVersion": api_version, "objects": [{**obj, "metadata": meta}]},
        }
        try:
            response = self.webhook_caller.call(webhook["clientConfig"], review)
            converted = _converted_objects(response.review, response.uid, review["apiVersion"])
        except WebhookCallFailed as error:
            raise _webhook_error(obj, f" failed: {error}") from error
        except _InvalidReviewResponse as error:
            raise _webhook_error(obj, f" failed: {error}") from error
        return _checked_object(obj, converted, api_version)


def _event_in_events_v1(stored: StoredObject) -> StoredObject:
    """Return an Event in ``events.k8s.io/v1``.

    It is not cached, because few clients read that version.
    """
    if stored.object["apiVersion"] == EVENTS_V1.api_version:
        return stored
    return StoredObject(
        stored.collection, stored.key, to_events_v1(stored.object), stored.managers, stored.version, stored
    )


class _InvalidReviewResponse(Exception):
    """The response of the webhook does not match its request."""


def prune_to_schema(obj: JsonObject, schema: JsonObject, *, keep_nulls: bool = False) -> tuple[JsonObject, list[str]]:
    """Return a pruned copy of ``obj`` and the paths of pruned fields.

    Args:
        keep_nulls: whether nulls of fields that are not nullable are kept.
    """
    result, unknown = prune(obj, schema, keep_nulls=keep_nulls)
    return result, [*unknown, *prune_embedded_metadata(result, schema)]


def _webhook_error(obj: JsonObject, text: str) -> ApiError:
    return failures.unclassified_error(f"conversion webhook for {obj['apiVersion']}, Kind={obj['kind']}{text}")


def _converted_objects(review: JsonObject, uid: str, api_version: str) -> Sequence[Any]:
    response = review.get("response")
    if api_version.endswith("/v1"):
        found = f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
        if (expected := f"{api_version}, Kind=ConversionReview") != found:
            raise _InvalidReviewResponse(f"expected webhook response of {expected}, got {found}")
    if not is_map(response):
        raise _InvalidReviewResponse("no response provided")
    if api_version.endswith("/v1") and response.get("uid") != uid:
        raise _InvalidReviewResponse(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = get_object(response, "result")
    if result.get("status") != "Success":
        status_error = f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise _InvalidReviewResponse(result.get("message") or status_error)
    return get_array(response, "convertedObjects")


def _checked_object(original: JsonObject, converted: Sequence[Any], api_version: str) -> JsonObject:
    """Return the converted object with the metadata that webhooks cannot change."""
    if len(converted) != 1:
        raise _webhook_error(original, f" returned {len(converted)} objects, expected 1")
    obj: JsonObject = converted[0]
    prefix = " returned invalid object at index 0: invalid "
    if (found := obj.get("apiVersion", "")) != api_version:
        raise _webhook_error(original, f"{prefix}groupVersion (expected {api_version}, received {found})")
    if (found := obj.get("kind", "")) != original["kind"]:
        raise _webhook_error(original, f"{prefix}kind (expected {original['kind']}, received {found})")
    before, after = original["metadata"], get_object(obj, "metadata")
    for field, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if before.get(field, "") != after.get(field, ""):
            mismatch = f"must have the same {name}: {before.get(field, '')} != {after.get(field, '')}"
            raise _webhook_error(original, f" returned invalid object: {mismatch}")
    if "metadata" not in obj:
        raise _webhook_error(original, " returned invalid metadata: missing metadata in converted object")
    return {**clone(obj), "metadata": _restored_metadata(original, after)}


def _restored_metadata(original: JsonObject, converted: JsonObject) -> JsonObject:
    """Return the original metadata with the converted labels and annotations."""
    result: JsonObject = clone(original["metadata"])
    for field in ("labels", "annotations"):
        values = converted.get(field)
        if values is None:
            result.pop(field, None)
            continue
        problem = _string_map_error(field, values, result.get(field) or {})
        if problem:
            raise _webhook_error(original, f" returned invalid metadata: {problem}")
        result[field] = clone(values)
    return result


def _string_map_error(field: str, values: Any, before: JsonObject) -> str:
    if not is_map(values):
        return f"invalid metadata.{field} of type {go_type_name(values)} in converted object"
    for key, value in values.items():
        if not isinstance(value, str):
            return f"metadata.{field}[{key}] must be a string, but is {go_type_name(value)} in converted object"
    if values == before:
        return ""
    errors: list[InvalidFieldError] = [
        *(validate_labels(values) if field == "labels" else validate_annotations(values))
    ]
    messages = list(dict.fromkeys(f"{e.path}: {e.text}" for e in errors))
    return messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]" if messages else ""
