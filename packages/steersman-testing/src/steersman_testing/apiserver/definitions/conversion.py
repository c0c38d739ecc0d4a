"""Custom resources in several versions: kept in one, read and written in all that are served.

What was kept is read as the schema of its own version tells (pruned, nulls dropped, defaults filled in, those also
that the schema has had only since), then converted, and pruned by the schema of the version that is asked for.

Source: ``pkg/apiserver/conversion`` and ``customresource_handler.go`` of
``k8s.io/apiextensions-apiserver``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.events import NEWER, as_kept, as_newer
from steersman_testing.apiserver.callouts import Call, CallFailed, Callouts, NeedsCall
from steersman_testing.apiserver.failures import FieldError
from steersman_testing.apiserver.fields import ownership
from steersman_testing.apiserver.fields.ownership import Managers
from steersman_testing.apiserver.kinds import Kind, Versions
from steersman_testing.apiserver.names import check_annotations, check_labels
from steersman_testing.apiserver.schemas.embedded import tidy_metadata
from steersman_testing.apiserver.schemas.schema import fill_defaults, prune
from steersman_testing.apiserver.storage import Stored
from steersman_testing.apiserver.values import JsonObject, clone, is_list, is_map, list_at, map_at, type_of

_REVIEW_VERSIONS = ("v1", "v1beta1")


@dataclass(frozen=True, slots=True)
class Conversion:
    """Takes custom resources from their stored version to others, and back."""

    callouts: Callouts

    def read(self, kind: Kind, stored: Stored) -> Stored:
        """``stored`` as it is read in the version of ``kind``; itself where that is how it is kept.

        Raises:
            ApiError: 500, its webhook refuses or answers wrongly.
            NeedsCall: its webhook must be asked first.
        """
        versions = kind.versions
        if versions is None:
            return _event(stored) if kind.resource == NEWER else stored
        view = stored.view(kind.resource.version, versions)
        if view is None:
            obj = self._read(kind, versions, stored.object, stored.managers)
            view = stored.keep_view(kind.resource.version, versions, obj)
        return view

    def read_all(self, kind: Kind, stored: Sequence[Stored]) -> list[Stored]:
        """``read`` for each; a webhook is asked about all of them at the same time."""
        if kind.versions is None:
            return [self.read(kind, one) for one in stored] if kind.resource == NEWER else list(stored)
        found: list[Stored] = []
        missing: list[Call] = []
        for one in stored:
            try:
                found.append(self.read(kind, one))
            except NeedsCall as needed:
                missing += needed.calls
        if missing:
            raise NeedsCall(missing)
        return found

    def _read(self, kind: Kind, versions: Versions, kept: JsonObject, managers: Managers) -> JsonObject:
        kept_in = kept["apiVersion"].rpartition("/")[2]
        schema = versions.schemas.get(kept_in)
        if schema is None:
            group = kind.resource.group
            raise failures.untyped(f"request to convert CR from an invalid group/version: {group}/{kept_in}")
        obj, _ = conform(kept, schema)
        fill_defaults(obj, schema)
        return self._convert(versions, obj, managers, kind.resource.group, kind.resource.version)

    def write(self, kind: Kind, obj: JsonObject, managers: Managers) -> JsonObject:
        """``obj``, in the version of ``kind``, as it is to be kept; itself where that is the same.

        What is asked to read it back is asked now, before anything is stored. Raises as ``read``.
        """
        versions = kind.versions
        if versions is None:
            return as_kept(obj) if kind.resource == NEWER else obj
        kept = self._convert(versions, obj, managers, kind.resource.group, versions.storage)
        if kept is not obj and versions.conversion.get("strategy") == "Webhook":
            self._read(kind, versions, kept, managers)
        return kept

    def read_back(self, kind: Kind, stored: Stored, *, converted: bool) -> Stored:
        """``read`` for what was just written; ``converted``: whether ``write`` changed it."""
        if converted or kind.versions is None:
            return self.read(kind, stored)
        return stored.keep_view(kind.resource.version, kind.versions, stored.object)

    def _convert(
        self, versions: Versions, obj: JsonObject, managers: Managers, group: str, version: str
    ) -> JsonObject:
        wanted = f"{group}/{version}"
        if obj["apiVersion"] == wanted:
            return obj
        return conform(self.convert(versions, obj, wanted, managers), versions.schemas[version])[0]

    def convert(
        self, versions: Versions, obj: JsonObject, wanted: str, managers: Managers | None = None
    ) -> JsonObject:
        """``obj`` in the API version ``wanted``, with what that does not know, too. Raises as ``read``."""
        if versions.conversion.get("strategy") == "Webhook" and obj["apiVersion"] != wanted:
            return self._ask(versions, obj, managers or {}, wanted)
        return {**obj, "apiVersion": wanted}

    def _ask(self, versions: Versions, obj: JsonObject, managers: Managers, wanted: str) -> JsonObject:
        # Objects are converted on their way to the store and back, where they have no version.
        meta = {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}
        if managers:
            meta["managedFields"] = ownership.render(managers)
        webhook: JsonObject = versions.conversion["webhook"]
        named = next((v for v in webhook["conversionReviewVersions"] if v in _REVIEW_VERSIONS), "")
        question: JsonObject = {
            "kind": "ConversionReview",
            "apiVersion": f"apiextensions.k8s.io/{named}",
            "request": {"desiredAPIVersion": wanted, "objects": [{**obj, "metadata": meta}]},
        }
        try:
            answer = self.callouts.answer(webhook["clientConfig"], question)
            converted = _converted(answer.review, answer.uid, question["apiVersion"])
        except CallFailed as error:
            raise _failed(obj, f" failed: {error}") from error
        except _Wrong as error:
            raise _failed(obj, f" failed: {error}") from error
        return _accepted(obj, converted, wanted)


def _event(stored: Stored) -> Stored:
    """An event as it is read in the newer group; made anew each time, since few read them so."""
    if stored.object["apiVersion"] == NEWER.api_version:
        return stored
    return Stored(stored.collection, stored.key, as_newer(stored.object), stored.managers, stored.version, stored)


class _Wrong(Exception):
    """The answer is no answer to the question."""


def conform(obj: JsonObject, schema: JsonObject, *, keep_nulls: bool = False) -> tuple[JsonObject, list[str]]:
    """A copy of ``obj`` without what ``schema`` does not know, of which it tells the paths, and unless ``keep_nulls``
    without wrong nulls."""
    result, unknown = prune(obj, schema, keep_nulls=keep_nulls)
    return result, [*unknown, *tidy_metadata(result, schema)]


def _failed(obj: JsonObject, text: str) -> ApiError:
    return failures.untyped(f"conversion webhook for {obj['apiVersion']}, Kind={obj['kind']}{text}")


def _converted(review: JsonObject, uid: str, api_version: str) -> Sequence[Any]:
    response = review.get("response")
    if api_version.endswith("/v1"):
        found = f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
        if (expected := f"{api_version}, Kind=ConversionReview") != found:
            raise _Wrong(f"expected webhook response of {expected}, got {found}")
    if not is_map(response):
        raise _Wrong("no response provided")
    if api_version.endswith("/v1") and response.get("uid") != uid:
        raise _Wrong(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    result = map_at(response, "result")
    if result.get("status") != "Success":
        told = f"response.result.status was '{result.get('status', '')}', not 'Success'"
        raise _Wrong(result.get("message") or told)
    return list_at(response, "convertedObjects")


def _accepted(original: JsonObject, converted: Sequence[Any], wanted: str) -> JsonObject:
    """The converted object, with the metadata that a webhook cannot change."""
    if len(converted) != 1:
        raise _failed(original, f" returned {len(converted)} objects, expected 1")
    obj: JsonObject = converted[0]
    odd = " returned invalid object at index 0: invalid "
    if (found := obj.get("apiVersion", "")) != wanted:
        raise _failed(original, f"{odd}groupVersion (expected {wanted}, received {found})")
    if (found := obj.get("kind", "")) != original["kind"]:
        raise _failed(original, f"{odd}kind (expected {original['kind']}, received {found})")
    before, after = original["metadata"], map_at(obj, "metadata")
    for field, name in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        if before.get(field, "") != after.get(field, ""):
            differs = f"must have the same {name}: {before.get(field, '')} != {after.get(field, '')}"
            raise _failed(original, f" returned invalid object: {differs}")
    if "metadata" not in obj:
        raise _failed(original, " returned invalid metadata: missing metadata in converted object")
    return {**clone(obj), "metadata": _restored(original, after)}


def _restored(original: JsonObject, converted: JsonObject) -> JsonObject:
    """The metadata of ``original`` with the labels and annotations of ``converted``."""
    result: JsonObject = clone(original["metadata"])
    for field in ("labels", "annotations"):
        values = converted.get(field)
        if values is None:
            result.pop(field, None)
            continue
        problem = _text_map_problem(field, values, result.get(field) or {})
        if problem:
            raise _failed(original, f" returned invalid metadata: {problem}")
        result[field] = clone(values)
    return result


def _text_map_problem(field: str, values: Any, before: JsonObject) -> str:
    if not is_map(values):
        return f"invalid metadata.{field} of type {_go_type(values)} in converted object"
    for key, value in values.items():
        if not isinstance(value, str):
            return f"metadata.{field}[{key}] must be a string, but is {_go_type(value)} in converted object"
    if values == before:
        return ""
    errors: list[FieldError] = [*(check_labels(values) if field == "labels" else check_annotations(values))]
    listed = list(dict.fromkeys(f"{e.path}: {e.text}" for e in errors))
    return listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]" if listed else ""


def _go_type(value: Any) -> str:
    if is_list(value):
        return "[]interface {}"
    names = {bool: "bool", int: "int64", float: "float64", str: "string", dict: "map[string]interface {}"}
    return names.get(type_of(value), "<nil>")
