"""What a request carries: decoding, and whether it belongs to the URL. The real server words each mistake apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import yaml

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.failures import invalid_value
from steersman.testing.apiserver.kinds import Kind, KindRegistry
from steersman.testing.apiserver.names import METADATA_FIELDS
from steersman.testing.apiserver.protobuf import MEDIA_TYPE, decode_protobuf
from steersman.testing.apiserver.values import JsonObject, is_list, is_map, metadata

_LARGEST_BODY = 3 * 1024 * 1024
_MEDIA_TYPES = ("application/json", "application/yaml", MEDIA_TYPE)

How = Literal["write", "patch", "apply"]


def decode_body(request: HttpRequest) -> Any:
    """The body: JSON, or protobuf or YAML where the content type says so.

    Raises:
        ApiError: 400, none of them.
    """
    body = request.body or b""
    if len(body) > _LARGEST_BODY:
        raise failures.body_too_large(_LARGEST_BODY)
    media_type = request.content_type.partition(";")[0].strip()
    if request.method in ("POST", "PUT") and media_type not in ("", *_MEDIA_TYPES):
        raise failures.unsupported_media_type(_MEDIA_TYPES)
    if media_type == MEDIA_TYPE:
        try:
            return decode_protobuf(body)
        except ValueError as error:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in request.content_type:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise failures.bad_request(f"error decoding YAML: {error}") from error


class _Pairs(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = sorted({n for n in names if names.count(n) > 1}) if len(names) > len(self) else []


def repeated_fields(request: HttpRequest) -> list[str]:
    """The paths of fields that the body, JSON, names more than once: all but the last are lost."""
    body, suspicious = request.body or b"", False

    def compare(pairs: list[tuple[str, Any]]) -> JsonObject:
        nonlocal suspicious
        found = dict(pairs)
        suspicious = suspicious or len(found) != len(pairs)
        return found

    try:
        json.loads(body, object_pairs_hook=compare)
        # Paths are found in a second pass, since hardly any body needs one.
        return list(_repeated(json.loads(body, object_pairs_hook=_Pairs), "")) if suspicious else []
    except ValueError:
        return []


def _repeated(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Pairs):
        yield from (f"{path}{name}" for name in value.repeated)
        for name, content in value.items():
            yield from _repeated(content, f"{path}{name}.")
    elif is_list(value):
        for position, item in enumerate(value):
            yield from _repeated(item, f"{path.removesuffix('.')}[{position}].")


def decode_options(request: HttpRequest) -> JsonObject:
    """The body of a DELETE: DeleteOptions, or nothing. Raises as ``decode_body``."""
    options: Any = decode_body(request) if request.body else {}
    if not is_map(options):
        raise failures.bad_request("DeleteOptions expected")
    return options


def check_body(kinds: KindRegistry, kind: Kind, body: Any, how: How, *, name: str, namespace: str) -> JsonObject:
    """``body`` as an object of ``kind``, its metadata completed from the URL.

    Raises:
        ApiError: 400 or 422, it is of another kind, or names another object than the URL.
    """
    if not is_map(body):
        raise failures.bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): couldn't get version/kind"
        )
    _check_kind(kinds, kind, body, how, name)
    result = {**body, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    result["metadata"] = dict(metadata(body))
    _complete_from_url(result["metadata"], name, namespace)
    _check_text_maps(kind, result["metadata"])
    return result


def _check_kind(kinds: KindRegistry, kind: Kind, body: JsonObject, how: How, name: str) -> None:
    resource = kind.resource
    # Typed Go takes the URL's kind where the body names none; custom resources and apply do not.
    lenient = how != "apply" and not kind.custom
    api_version = body.get("apiVersion") or (resource.api_version if lenient else "")
    named = body.get("kind") or (resource.kind if lenient else "")
    if (api_version, named) == (resource.api_version, resource.kind):
        return
    group, _, version = api_version.rpartition("/")
    if how == "apply":
        raise failures.bad_request(f"invalid object type: {group}/{version}, Kind={named}")
    if kind.custom:
        raise _foreign_custom(resource, api_version, named, body, name)
    if kinds.named(api_version, named) is None:
        because = f'no kind "{named}" is registered for version "{api_version}" in scheme "pkg/runtime/scheme.go:111"'
    else:
        because = (
            f"converting ({version}.{named}) to ({resource.group or 'core'}.{resource.kind}): unknown conversion"
        )
    if how == "patch":
        raise failures.invalid_patch(body, because)
    raise failures.bad_request(f'{named} in version "{version}" cannot be handled as a {resource.kind}: {because}')


def _foreign_custom(resource: ApiResource, api_version: str, named: str, body: JsonObject, name: str) -> ApiError:
    if not named:
        shown = msgspec.json.encode(body).decode()
        return failures.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing in "
            f"'{shown}'"
        )
    if api_version != resource.api_version:
        return failures.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    error = invalid_value("kind", named, f"must be {resource.kind}")
    return failures.invalid(resource._replace(kind=named), name or metadata(body).get("name", ""), [error])


def _complete_from_url(meta: JsonObject, name: str, namespace: str) -> None:
    sent = meta.get("name") or ""
    if name and sent and sent != name:
        raise failures.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
    if name:
        meta["name"] = name
    if not namespace:
        meta.pop("namespace", None)
    if (meta.get("namespace") or namespace) != namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace


def _check_text_maps(kind: Kind, meta: JsonObject) -> None:
    for field in ("labels", "annotations"):
        values = meta.get(field)
        if is_map(values) and not all(isinstance(v, str) or v is None for v in values.values()):
            resource = kind.resource
            path = f"ObjectMeta.{field}" if kind.custom else f"ObjectMeta.metadata.{field}"
            raise failures.bad_request(
                f'{resource.kind} in version "{resource.version}" cannot be handled as a {resource.kind}: '
                f"json: cannot unmarshal number into Go struct field {path} of type string"
            )


def unknown_metadata(body: JsonObject) -> list[str]:
    """The paths of metadata fields that no object has."""
    return [f"metadata.{name}" for name in body["metadata"] if name not in METADATA_FIELDS]
