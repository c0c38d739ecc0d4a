"""Lists: selection, versions, pages. Source: "Kubernetes API Concepts", "Retrieving large results sets in chunks"."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

import msgspec

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ObjectKey
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.kinds import Kind
from steersman.testing.apiserver.routes import Route
from steersman.testing.apiserver.selectors import Matcher, field_matcher, label_matcher
from steersman.testing.apiserver.storage import PARTIAL, Storage, Stored
from steersman.testing.apiserver.values import JsonObject


def wants_metadata(request: HttpRequest, *, listed: bool = False) -> bool:
    """Whether the answer is to be metadata alone. Source: KEP-2334.

    Raises:
        ApiError: 406, none of the media types that are accepted can be had.
    """
    for wanted in request.accept.split(","):
        media_type, *options = (part.strip() for part in wanted.split(";"))
        named = next((o.removeprefix("as=") for o in options if o.startswith("as=")), "")
        if media_type not in ("application/json", "application/*", "*/*"):
            continue
        # The first that fits is taken, even where it does not fit the answer's shape.
        if named in ("", f"{PARTIAL}List" if listed else PARTIAL):
            return bool(named)
        break
    raise failures.not_acceptable()


def selection(route: Route, query: Mapping[str, str]) -> Matcher | None:
    """What the query's selectors, and a name in the path, let through; None for everything.

    Raises:
        ApiError: 400, a selector is malformed.
    """
    labels = label_matcher(query.get("labelSelector", ""))
    fields = field_matcher(query.get("fieldSelector", ""), route.kind.fields, custom=route.kind.custom)
    matchers = [m for m in (labels, fields) if m is not None]
    if route.name:
        matchers.append(lambda obj: obj["metadata"]["name"] == route.name)
    return (lambda obj: all(m(obj) for m in matchers)) if matchers else None


class _Token(msgspec.Struct):
    version: int
    namespace: str
    name: str


def list_objects(storage: Storage, route: Route, request: HttpRequest) -> bytes:
    """A page of a collection, as JSON.

    Raises:
        ApiError: 400, a parameter is malformed; 410, the version is forgotten; 504, it is still to come.
    """
    query = request.query
    token = _token(query.get("continue", ""))
    exact, shown = _version(storage, query, token)
    matches = selection(route, query)
    try:
        found = storage.list(route.kind.collection, route.namespace, exact)
    except ApiError as error:
        raise failures.continue_expired() if token else error from error
    if token is not None:
        after = ObjectKey(token.namespace, token.name)
        found = [s for s in found if s.key > after]
    if matches is not None:
        found = [s for s in found if matches(s.object)]
    limit = parse_number(query, "limit")
    page = found[:limit] if limit else found
    meta: JsonObject = {"resourceVersion": str(shown)}
    if len(page) < len(found):
        last = page[-1].key
        meta["continue"] = _encode_token(_Token(shown, last.namespace, last.name))
        if matches is None:
            meta["remainingItemCount"] = len(found) - len(page)
    return encode_list(route.kind, page, meta, partial=wants_metadata(request, listed=True))


def encode_list(kind: Kind, items: list[Stored], meta: JsonObject, *, partial: bool) -> bytes:
    """A list of ``items`` as JSON. Items of built-in kinds come without apiVersion and kind, as from typed Go."""
    version = kind.resource.api_version
    head = {
        "kind": f"{PARTIAL if partial else kind.resource.kind}List",
        "apiVersion": "meta.k8s.io/v1" if partial else version,
        "metadata": meta,
    }
    encoded = b",".join(s.encoded(version, typed=kind.custom, partial=partial) for s in items)
    return msgspec.json.encode(head)[:-1] + b',"items":[' + encoded + b"]}"


def _version(storage: Storage, query: Mapping[str, str], token: _Token | None) -> tuple[int | None, int]:
    """The version to list at (None: now), and the one that the list tells."""
    if token is not None:
        return token.version, token.version
    wanted = _parse_version(query)
    if wanted > storage.version:
        raise failures.too_large_version(wanted, storage.version)
    match = query.get("resourceVersionMatch", "")
    if match and not query.get("resourceVersion"):
        text = "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided"
        raise failures.invalid_options("ListOptions", "resourceVersionMatch", text, "FieldValueForbidden")
    if match == "Exact":
        if not wanted:
            text = 'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
            raise failures.invalid_options("ListOptions", "resourceVersionMatch", text, "FieldValueForbidden")
        return wanted, wanted
    return None, storage.version


def parse_number(query: Mapping[str, str], name: str) -> int:
    """A number of the query, 0 where it is absent.

    Raises:
        ApiError: 400, not a number.
    """
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isdigit():
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    return int(text)


def _parse_version(query: Mapping[str, str]) -> int:
    text = query.get("resourceVersion", "")
    if text and not text.isdigit():
        detail = f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        raise failures.bad_request(f"invalid resource version: resourceVersion: {detail}")
    return int(text or 0)


def _encode_token(token: _Token) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode()


def _token(text: str) -> _Token | None:
    if not text:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=_Token)
    except (binascii.Error, msgspec.DecodeError) as error:
        raise failures.bad_request(f"invalid continue token: continue key is not valid: {error}") from error
