"""Lists: selectors, resource versions and pages.

Source: "Kubernetes API Concepts", "Retrieving large results sets in chunks".
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import datetime

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.definitions.conversion import VersionConverter
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.requests.negotiation import PARTIAL_OBJECT_METADATA, negotiate
from steersman_testing.apiserver.requests.parameters import int_parameter, parse_resource_version
from steersman_testing.apiserver.requests.routes import Route
from steersman_testing.apiserver.requests.selectors import ObjectMatcher, field_matcher, label_matcher
from steersman_testing.apiserver.storage import Storage, StoredObject, list_sort_key
from steersman_testing.apiserver.tables import table_encoder
from steersman_testing.apiserver.values import JsonObject

_VERSION_MATCHES = ("Exact", "NotOlderThan")


def selector_matcher(route: Route, query: Mapping[str, str]) -> ObjectMatcher | None:
    """Return a predicate for the selectors and the name of a request.

    None if the request has neither.

    Raises:
        ApiError: 400, a selector is malformed.
    """
    labels = label_matcher(query.get("labelSelector", ""))
    fields = field_matcher(query.get("fieldSelector", ""), route.kind.selectable_fields, custom=route.kind.is_custom)
    matchers = [m for m in (labels, fields) if m is not None]
    if route.name:
        matchers.append(lambda obj: obj["metadata"]["name"] == route.name)
    return (lambda obj: all(m(obj) for m in matchers)) if matchers else None


def check_list_options(query: Mapping[str, str]) -> None:
    """Validate the numbers of list options and reject options of watches.

    Raises:
        ApiError: 400 or 422.
    """
    for name in ("timeoutSeconds", "limit"):
        int_parameter(query, name)
    if "sendInitialEvents" in query:
        text = "Forbidden: sendInitialEvents is forbidden for list"
        raise failures.invalid_options("ListOptions", "sendInitialEvents", text, "FieldValueForbidden")


class _ContinueToken(msgspec.Struct):
    version: int
    namespace: str
    name: str


def list_objects(
    storage: Storage, route: Route, request: HttpRequest, conversion: VersionConverter, now: datetime
) -> bytes:
    """Return a page of a collection as JSON.

    Args:
        now: the time up to which a Table counts ages.

    Raises:
        ApiError: 400, a parameter is malformed; 410, the version was compacted; 504, the version is in the future.
    """
    representation = negotiate(request, is_list=True)
    tables = table_encoder(route.kind, request) if representation == "table" else None
    page, meta = list_page(storage, route, request.query, conversion)
    if tables is not None:
        return tables.encode(page, meta, now)
    return encode_list(route.kind, page, meta, partial=representation == "metadata")


def list_page(
    storage: Storage, route: Route, query: Mapping[str, str], conversion: VersionConverter
) -> tuple[list[StoredObject], JsonObject]:
    """Return the objects of a page and the metadata of the list.

    Raises:
        ApiError: as ``list_objects``.
    """
    check_list_options(query)
    token = _decode_continue(query.get("continue", ""))
    exact_version, list_version = _list_version(storage, query, token)
    matches = selector_matcher(route, query)
    try:
        found = storage.list(route.kind.collection, route.namespace, exact_version)
    except ApiError as error:
        if token is None:
            raise
        raise failures.continue_token_expired() from error
    if token is not None:
        after = list_sort_key(ObjectKey(token.namespace, token.name))
        found = [s for s in found if list_sort_key(s.key) > after]
    found = conversion.list_from_storage(route.kind, found)
    if matches is not None:
        found = [s for s in found if matches(s.object)]
    limit = int_parameter(query, "limit") or 0
    page = found[:limit] if limit > 0 else found
    meta: JsonObject = {"resourceVersion": str(list_version)}
    if len(page) < len(found):
        last = page[-1].key
        meta["continue"] = _encode_continue(_ContinueToken(list_version, last.namespace, last.name))
        if matches is None:
            meta["remainingItemCount"] = len(found) - len(page)
    return page, meta


def encode_list(kind: ServedKind, items: list[StoredObject], meta: JsonObject, *, partial: bool) -> bytes:
    """Encode a list as JSON.

    Items of built-in kinds have no apiVersion and kind, as in lists of typed Go.
    """
    version = kind.resource.api_version
    if kind.is_custom and not partial:
        # Lists of built-in kinds omit an empty continue token.
        meta.setdefault("continue", "")
    head = {
        "kind": f"{PARTIAL_OBJECT_METADATA}List" if partial else kind.list_kind or f"{kind.resource.kind}List",
        "apiVersion": "meta.k8s.io/v1" if partial else version,
        "metadata": meta,
    }
    encoded = b",".join(s.to_json(version, typed=kind.is_custom, partial=partial) for s in items)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + encoded + b"]}"


def _list_version(storage: Storage, query: Mapping[str, str], token: _ContinueToken | None) -> tuple[int | None, int]:
    """Return the version to read and the version of the list.

    The first one is None for the current version.
    """
    match = query.get("resourceVersionMatch", "")
    if match and match not in _VERSION_MATCHES:
        supported = ", ".join(f'"{m}"' for m in _VERSION_MATCHES)
        text = f'Unsupported value: "{match}": supported values: {supported}, ""'
        raise failures.invalid_options("ListOptions", "resourceVersionMatch", text)
    if token is not None:
        if match:
            text = "Forbidden: resourceVersionMatch is forbidden when continue is provided"
            raise failures.invalid_options("ListOptions", "resourceVersionMatch", text, "FieldValueForbidden")
        if query.get("resourceVersion", "") not in ("", "0"):
            raise failures.bad_request("specifying resource version is not allowed when using continue")
        return token.version, token.version
    requested = _requested_version(query)
    if requested > storage.version:
        raise failures.resource_version_too_large(requested, storage.version)
    if match and not query.get("resourceVersion"):
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise failures.invalid_options("ListOptions", "resourceVersionMatch", text, "FieldValueForbidden")
    if match == "Exact":
        if not requested:
            text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            raise failures.invalid_options("ListOptions", "resourceVersionMatch", text, "FieldValueForbidden")
        return requested, requested
    return None, storage.version


def _requested_version(query: Mapping[str, str]) -> int:
    text = query.get("resourceVersion", "")
    try:
        return parse_resource_version(text)
    except ValueError as error:
        detail = f'Invalid value: "{text}": {error}'
        raise failures.bad_request(f"invalid resource version: resourceVersion: {detail}") from None


def parse_watch_version(text: str) -> int:
    """Return the resourceVersion of a get or a watch, or 0.

    Raises:
        ApiError: 500, it is invalid.
    """
    try:
        return parse_resource_version(text)
    except ValueError as error:
        raise failures.unclassified_error(f'resourceVersion: Invalid value: "{text}": {error}') from None


def check_get_version(storage: Storage, text: str) -> None:
    """Reject a get at an invalid or future version.

    Raises:
        ApiError: 500, it is not a number; 504, it is in the future.
    """
    version = parse_watch_version(text)
    if version > storage.version:
        raise failures.resource_version_too_large(version, storage.version)


def _encode_continue(token: _ContinueToken) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _decode_continue(text: str) -> _ContinueToken | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_ContinueToken)
    except (ValueError, msgspec.DecodeError) as error:
        raise failures.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
