"""Decoding of request bodies, with the error messages of the real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec
import yaml

from steersman.api.meta_v1 import DeleteOptions
from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman_manifests.yaml_codec import load_yaml
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import decode_as_struct, json_type_name
from steersman_testing.apiserver.extensions import load_kubectl
from steersman_testing.apiserver.failures import invalid_value
from steersman_testing.apiserver.go_values import NumberLiteral, UnmarshalTypeError
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind
from steersman_testing.apiserver.requests.media import JSON, PROTOBUF, YAML, media_type
from steersman_testing.apiserver.values import JsonObject, ensure_metadata, is_list, is_map

_MAX_BODY_BYTES = 3 * 1024 * 1024
_MEDIA_TYPES = (JSON, YAML, PROTOBUF)

WriteMethod = Literal["write", "patch", "apply"]
SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_GO_TYPE_META = (
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)
_SUMMARY_BYTES = 30


_JSON_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_LITERAL_DECODER: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=NumberLiteral)
# These kinds have free-form values, whose numbers must not change.
_FREE_FORM_KINDS = ("ControllerRevision", "CustomResourceDefinition")


class ProtobufSupport(Protocol):
    """Functions of the package ``kubectl`` for protobuf."""

    def decode_protobuf(self, body: bytes) -> JsonObject: ...


def decode_for_kind(kind: ServedKind, request: HttpRequest, kind_name: str = "") -> Any:
    """Decode the body as ``decode_body``, with number literals for quantities."""
    keeps_literals = not kind.is_custom and kind.resource.kind not in _FREE_FORM_KINDS
    return decode_body(request, kind_name, decoder=_LITERAL_DECODER if keeps_literals else _JSON_DECODER)


def decode_body(request: HttpRequest, kind: str = "", *, decoder: msgspec.json.Decoder[Any] = _JSON_DECODER) -> Any:
    """Decode the body: JSON, protobuf or YAML, by its content type.

    Args:
        kind: the expected kind, for errors. If set, the body must be a JSON object.
        decoder: decoder of JSON.

    Raises:
        ApiError: 400, the body is malformed.
    """
    body = request.body or b""
    if len(body) > _MAX_BODY_BYTES:
        raise failures.body_too_large(_MAX_BODY_BYTES)
    media = media_type(request)
    if request.method in ("POST", "PUT", "DELETE") and media not in ("", *_MEDIA_TYPES):
        raise failures.unsupported_media_type(_MEDIA_TYPES)
    if media == PROTOBUF:
        try:
            support: ProtobufSupport = load_kubectl()
            return support.decode_protobuf(body)
        except ValueError as error:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        found = decoder.decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in media:
            raise failures.bad_request(_unrecognized(kind, body, go_json_error(error))) from error
        found = _from_yaml(body)
    if kind and (problem := type_meta_error(found)):
        raise failures.bad_request(_unrecognized(kind, body, problem))
    return found


def _from_yaml(body: bytes) -> Any:
    try:
        found = load_yaml(body)
        # YAML that JSON cannot express, such as a null key, is invalid.
        msgspec.json.encode(found)
    except (yaml.YAMLError, TypeError) as error:
        raise failures.bad_request(f"error decoding YAML: {error}") from error
    return found


def go_json_error(error: msgspec.DecodeError) -> str:
    """Return Go's message for malformed JSON, as far as known."""
    return "unexpected end of JSON input" if "truncated" in str(error) else str(error)


def type_meta_error(value: Any) -> str:
    """Return Go's message for an invalid apiVersion or kind.

    Empty if both are valid.
    """
    if not is_map(value):
        return f"json: cannot unmarshal {json_type_name(value)} into Go value of type {_GO_TYPE_META}"
    non_strings = [n for n in ("apiVersion", "kind") if not isinstance(value.get(n), str | None)]
    if not non_strings:
        return ""
    name = non_strings[0]
    return f"json: cannot unmarshal {json_type_name(value[name])} into Go struct field .{name} of type string"


def _unrecognized(kind: str, body: bytes, problem: str) -> str:
    if not kind:
        return f"couldn't get version/kind; json parse error: {problem}"
    formatted = body[:_SUMMARY_BYTES]
    summary = (formatted.decode(errors="replace") if body.startswith(b"{") else formatted.hex()) or "<empty>"
    rest = " ..." if len(body) > _SUMMARY_BYTES else ""
    reason = f"couldn't get version/kind; json parse error: {problem}"
    return f"the object provided is unrecognized (must be of type {kind}): {reason} ({summary}{rest})"


class _ObjectPairs(dict[str, Any]):
    """JSON object that keeps the names of its duplicate fields."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.duplicates = sorted({n for n in names if names.count(n) > 1}) if len(names) > len(self) else []


def duplicate_field_errors(request: HttpRequest, decoded: Any) -> list[str]:
    """Return the errors for duplicate fields. The last duplicate wins.

    Args:
        decoded: the decoded body.
    """
    body = request.body or b""
    if media_type(request) == YAML:
        problem = duplicate_key_error(body)
        return [problem] if problem else []
    if msgspec.json.encode(decoded, enc_hook=float) == body:
        # Common case: the encoding is identical, so no field was lost.
        return []
    return [f'duplicate field "{path}"' for path in _duplicate_paths(body)]


def duplicate_key_error(body: bytes) -> str:
    """Return Go's message for duplicate keys in YAML.

    Empty if all keys are unique.
    """
    if _has_unique_fields(body):
        return ""
    try:
        lines = list(_duplicate_key_lines(yaml.compose(body, Loader=yaml.SafeLoader)))
    except yaml.YAMLError:
        return ""
    return "\n  ".join(("yaml: unmarshal errors:", *lines)) if lines else ""


def _duplicate_key_lines(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, content in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
            yield from _duplicate_key_lines(content)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _duplicate_key_lines(item)


class _DuplicateFieldError(Exception):
    """A JSON object has a duplicate field."""


def _unique_pairs(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _DuplicateFieldError
    return found


_UNIQUE_DECODER = json.JSONDecoder(object_pairs_hook=_unique_pairs)


def _has_unique_fields(body: bytes) -> bool:
    """Return True if ``body`` is JSON without duplicate fields.

    This is a fast path, because JSON is parsed much faster than YAML. It returns False if ``body`` is not JSON.
    """
    try:
        _UNIQUE_DECODER.decode(body.decode())
    except (_DuplicateFieldError, ValueError):
        return False
    return True


def _duplicate_paths(body: bytes) -> list[str]:
    if _has_unique_fields(body):
        return []
    try:
        # Collect paths in a second pass, because few bodies need one.
        return list(_find_duplicates(json.loads(body.decode(), object_pairs_hook=_ObjectPairs), ""))
    except ValueError:
        return []


def _find_duplicates(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _ObjectPairs):
        yield from (f"{path}{name}" for name in value.duplicates)
        for name, content in value.items():
            yield from _find_duplicates(content, f"{path}{name}.")
    elif is_list(value):
        for position, item in enumerate(value):
            yield from _find_duplicates(item, f"{path.removesuffix('.')}[{position}].")


def decode_delete_options(request: HttpRequest) -> JsonObject:
    """Return the DeleteOptions of the body, or an empty object.

    Raises:
        ApiError: 400, the body is malformed.
    """
    if not request.body:
        return {}
    options = decode_body(request)
    if options is None:
        return {}
    if problem := type_meta_error(options):
        raise failures.bad_request(f"couldn't get version/kind; json parse error: {problem}")
    if (options.get("apiVersion") or "").count("/") > 1:
        raise failures.bad_request(f"unexpected GroupVersion string: {options['apiVersion']}")
    if (kind_name := options.get("kind") or "DeleteOptions") != "DeleteOptions":
        version = options.get("apiVersion") or "meta.k8s.io/v1"
        raise failures.bad_request(f'no kind "{kind_name}" is registered for version "{version}" in {SCHEME}')
    try:
        return decode_as_struct(DeleteOptions, options)[0]
    except UnmarshalTypeError as error:
        raise failures.bad_request(str(error)) from None


def check_type_meta(
    kinds: KindRegistry, kind: ServedKind, body: Any, method: WriteMethod, *, name: str
) -> JsonObject:
    """Check ``apiVersion`` and ``kind`` of ``body``. Return a copy with both set.

    The copy also has its own ``metadata``, which the caller may change.

    Args:
        name: object name in the URL, for errors. Empty if the URL has no name.

    Raises:
        ApiError: 400 or 422, the body is not an object, or has another or no kind.
    """
    if not is_map(body):
        raise failures.bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): couldn't get version/kind"
        )
    _check_kind(kinds, kind, body, method, name)
    result = {**body, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    result["metadata"] = dict(ensure_metadata({**body}))
    return result


def _check_kind(kinds: KindRegistry, kind: ServedKind, body: JsonObject, method: WriteMethod, name: str) -> None:
    resource = kind.resource
    if method == "patch" and not kind.is_custom and not body.get("apiVersion"):
        # Without an apiVersion, Go decodes an object without kind and name.
        raise failures.missing_name(name)
    type_meta = {n: v for n in ("apiVersion", "kind") if isinstance(v := body.get(n), str) and v}
    if method != "apply" and (problem := type_meta_error(body)):
        raise failures.invalid_patch(body, f"couldn't get version/kind; json parse error: {problem}")
    # Typed Go defaults to the kind of the URL. Custom resources and apply do not.
    uses_url_kind = method != "apply" and not kind.is_custom
    api_version = type_meta.get("apiVersion", resource.api_version if uses_url_kind else "")
    kind_name = type_meta.get("kind", resource.kind if uses_url_kind else "")
    if (api_version, kind_name) == (resource.api_version, resource.kind):
        return
    group, _, version = api_version.rpartition("/")
    if method == "apply":
        raise failures.bad_request(f"invalid object type: {group}/{version}, Kind={kind_name}")
    if kind.is_custom:
        raise _custom_kind_error(resource, api_version, kind_name, body, name)
    if kinds.find_by_gvk(api_version, kind_name) is None:
        reason = f'no kind "{kind_name}" is registered for version "{api_version}" in {SCHEME}'
    else:
        go_type = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        reason = f"converting ({version}.{kind_name}) to ({go_type}): unknown conversion"
    if method == "patch":
        raise failures.invalid_patch(body, reason)
    raise failures.bad_request(f'{kind_name} in version "{version}" cannot be handled as a {resource.kind}: {reason}')


def _custom_kind_error(
    resource: ApiResource, api_version: str, kind_name: str, body: JsonObject, name: str
) -> ApiError:
    if not kind_name:
        formatted = msgspec.json.encode(body).decode()
        return failures.bad_request(
            f"the object provided is unrecognized (must be of type {resource.kind}): Object 'Kind' is missing in "
            f"'{formatted}'"
        )
    if api_version != resource.api_version:
        return failures.bad_request(
            f"the API version in the data ({api_version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    error = invalid_value("kind", kind_name, f"must be {resource.kind}")
    return failures.invalid(resource._replace(kind=kind_name), name or ensure_metadata(body).get("name", ""), [error])


def set_name_and_namespace(meta: JsonObject, name: str, namespace: str) -> None:
    """Check the name of a body and set its namespace.

    Args:
        meta: the metadata of the body, which is changed.
        name: name of the URL. Empty if the URL has no name.

    Raises:
        ApiError: 400, the body names another object.
    """
    sent = meta.get("name") or ""
    if name and not sent:
        raise failures.missing_name(name)
    if name and sent != name:
        raise failures.bad_request(f"the name of the object ({sent}) does not match the name on the URL ({name})")
    if not namespace:
        meta.pop("namespace", None)
    if (meta.get("namespace") or namespace) != namespace:
        raise failures.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    if namespace:
        meta["namespace"] = namespace
