"""What a request carries: decoding, and whether it belongs to the URL. The real server words each mistake apart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
import yaml

from steersman.api.meta_v1 import DeleteOptions
from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman.meta.documents import document
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import conform_struct, json_name
from steersman_testing.apiserver.failures import invalid_value
from steersman_testing.apiserver.go_values import Spelled, WrongType
from steersman_testing.apiserver.kinds import Kind, KindRegistry
from steersman_testing.apiserver.requests.media import JSON, PROTOBUF, YAML, media_type
from steersman_testing.apiserver.requests.protobuf import decode_protobuf
from steersman_testing.apiserver.values import JsonObject, is_list, is_map, metadata

_LARGEST_BODY = 3 * 1024 * 1024
_MEDIA_TYPES = (JSON, YAML, PROTOBUF)

How = Literal["write", "patch", "apply"]
SCHEME = 'scheme "pkg/runtime/scheme.go:111"'
_HEAD = 'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
_SUMMARY = 30


_PLAIN: msgspec.json.Decoder[Any] = msgspec.json.Decoder()
_SPELLED: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Spelled)
# What they hold may be anything, numbers included.
_UNTYPED = ("ControllerRevision", "CustomResourceDefinition")


def sent_to(kind: Kind, request: HttpRequest, named: str = "") -> Any:
    """``decode_body``, in which numbers remember how they were written where they may be quantities."""
    spelled = not kind.custom and kind.resource.kind not in _UNTYPED
    return decode_body(request, named, decoder=_SPELLED if spelled else _PLAIN)


def decode_body(request: HttpRequest, kind: str = "", *, decoder: msgspec.json.Decoder[Any] = _PLAIN) -> Any:
    """The body: JSON, or protobuf or YAML where the content type says so.

    Args:
        kind: what it must be, for refusals; then it must be a JSON object.
        decoder: of JSON.

    Raises:
        ApiError: 400, none of them.
    """
    body = request.body or b""
    if len(body) > _LARGEST_BODY:
        raise failures.body_too_large(_LARGEST_BODY)
    media = media_type(request)
    if request.method in ("POST", "PUT", "DELETE") and media not in ("", *_MEDIA_TYPES):
        raise failures.unsupported_media_type(_MEDIA_TYPES)
    if media == PROTOBUF:
        try:
            return decode_protobuf(body)
        except ValueError as error:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        found = decoder.decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in media:
            raise failures.bad_request(_unrecognized(kind, body, json_problem(error))) from error
        found = _from_yaml(body)
    if kind and (problem := head_problem(found)):
        raise failures.bad_request(_unrecognized(kind, body, problem))
    return found


def _from_yaml(body: bytes) -> Any:
    try:
        found = document(body)
        # What JSON cannot hold, such as a key that is null, cannot be served.
        msgspec.json.encode(found)
    except (yaml.YAMLError, TypeError) as error:
        raise failures.bad_request(f"error decoding YAML: {error}") from error
    return found


def json_problem(error: msgspec.DecodeError) -> str:
    """What Go says of JSON that is none, where that is known."""
    return "unexpected end of JSON input" if "truncated" in str(error) else str(error)


def head_problem(value: Any) -> str:
    """What Go says of JSON that it cannot read a version and a kind from; empty where it can."""
    if not is_map(value):
        return f"json: cannot unmarshal {json_name(value)} into Go value of type {_HEAD}"
    wrong = [n for n in ("apiVersion", "kind") if not isinstance(value.get(n), str | None)]
    if not wrong:
        return ""
    return f"json: cannot unmarshal {json_name(value[wrong[0]])} into Go struct field .{wrong[0]} of type string"


def _unrecognized(kind: str, body: bytes, because: str) -> str:
    if not kind:
        return f"couldn't get version/kind; json parse error: {because}"
    shown = body[:_SUMMARY]
    summary = (shown.decode(errors="replace") if body.startswith(b"{") else shown.hex()) or "<empty>"
    rest = " ..." if len(body) > _SUMMARY else ""
    reason = f"couldn't get version/kind; json parse error: {because}"
    return f"the object provided is unrecognized (must be of type {kind}): {reason} ({summary}{rest})"


class _Pairs(dict[str, Any]):
    """A JSON object that remembers which of its names came more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        names = [name for name, _ in pairs]
        self.repeated = sorted({n for n in names if names.count(n) > 1}) if len(names) > len(self) else []


def repeated_fields(request: HttpRequest, read: Any) -> list[str]:
    """What the real server says of fields that the body, which is ``read`` already, names more than once: all but the
    last are lost."""
    body = request.body or b""
    if media_type(request) == YAML:
        problem = repeated_keys(body)
        return [problem] if problem else []
    if msgspec.json.encode(read, enc_hook=float) == body:
        # As most clients write it, so that a field that was lost would be missing now.
        return []
    return [f'duplicate field "{path}"' for path in _repeated_names(body)]


def repeated_keys(body: bytes) -> str:
    """What Go says of YAML that names keys more than once; empty where none is."""
    if _names_each_once(body):
        return ""
    try:
        lines = list(_repeated_lines(yaml.compose(body, Loader=yaml.SafeLoader)))
    except yaml.YAMLError:
        return ""
    return "\n  ".join(("yaml: unmarshal errors:", *lines)) if lines else ""


def _repeated_lines(node: yaml.Node | None) -> Iterator[str]:
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, content in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                yield f'line {key.start_mark.line + 1}: key "{key.value}" already set in map'
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else "")
            yield from _repeated_lines(content)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _repeated_lines(item)


class _RepeatedError(Exception):
    """A JSON object names a field twice."""


def _once(pairs: list[tuple[str, Any]]) -> JsonObject:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _RepeatedError
    return found


_ONCE = json.JSONDecoder(object_pairs_hook=_once)


def _names_each_once(body: bytes) -> bool:
    """Whether this is JSON, which is read many times as fast as other YAML, and names no field twice."""
    try:
        _ONCE.decode(body.decode())
    except (_RepeatedError, ValueError):
        return False
    return True


def _repeated_names(body: bytes) -> list[str]:
    if _names_each_once(body):
        return []
    try:
        # Paths are found in a second pass, since hardly any body needs one.
        return list(_repeated(json.loads(body.decode(), object_pairs_hook=_Pairs), ""))
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
    """The DeleteOptions in the body of a deletion; without a body there are none.

    Raises:
        ApiError: 400, they are no DeleteOptions.
    """
    if not request.body:
        return {}
    options = decode_body(request)
    if options is None:
        return {}
    if problem := head_problem(options):
        raise failures.bad_request(f"couldn't get version/kind; json parse error: {problem}")
    if (options.get("apiVersion") or "").count("/") > 1:
        raise failures.bad_request(f"unexpected GroupVersion string: {options['apiVersion']}")
    if (named := options.get("kind") or "DeleteOptions") != "DeleteOptions":
        version = options.get("apiVersion") or "meta.k8s.io/v1"
        raise failures.bad_request(f'no kind "{named}" is registered for version "{version}" in {SCHEME}')
    try:
        return conform_struct(DeleteOptions, options)[0]
    except WrongType as error:
        raise failures.bad_request(str(error)) from None


def as_kind(kinds: KindRegistry, kind: Kind, body: Any, how: How, *, name: str) -> JsonObject:
    """``body`` as an object of ``kind``, whose metadata are its own to change.

    Args:
        name: that of the URL, for refusals.

    Raises:
        ApiError: 400 or 422, it is of another kind.
    """
    if not is_map(body):
        raise failures.bad_request(
            f"the object provided is unrecognized (must be of type {kind.resource.kind}): couldn't get version/kind"
        )
    _check_kind(kinds, kind, body, how, name)
    result = {**body, "apiVersion": kind.resource.api_version, "kind": kind.resource.kind}
    result["metadata"] = dict(metadata({**body}))
    return result


def _check_kind(kinds: KindRegistry, kind: Kind, body: JsonObject, how: How, name: str) -> None:
    resource = kind.resource
    if how == "patch" and not kind.custom and not body.get("apiVersion"):
        # Without a version Go reads an object of no kind, whose name nobody knows.
        raise failures.nameless(name)
    told = {n: v for n in ("apiVersion", "kind") if isinstance(v := body.get(n), str) and v}
    if how != "apply" and (problem := head_problem(body)):
        raise failures.invalid_patch(body, f"couldn't get version/kind; json parse error: {problem}")
    # Typed Go takes the URL's kind where the body names none; custom resources and apply do not.
    lenient = how != "apply" and not kind.custom
    api_version = told.get("apiVersion", resource.api_version if lenient else "")
    named = told.get("kind", resource.kind if lenient else "")
    if (api_version, named) == (resource.api_version, resource.kind):
        return
    group, _, version = api_version.rpartition("/")
    if how == "apply":
        raise failures.bad_request(f"invalid object type: {group}/{version}, Kind={named}")
    if kind.custom:
        raise _foreign_custom(resource, api_version, named, body, name)
    if kinds.named(api_version, named) is None:
        because = f'no kind "{named}" is registered for version "{api_version}" in {SCHEME}'
    else:
        wanted = f"{resource.group.partition('.')[0] or 'core'}.{resource.kind}"
        because = f"converting ({version}.{named}) to ({wanted}): unknown conversion"
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


def complete_from_url(meta: JsonObject, name: str, namespace: str) -> None:
    """Puts the namespace of the URL into the metadata ``meta`` of a body.

    Args:
        name: that of the URL; empty where the URL does not name the object.

    Raises:
        ApiError: 400, the body names another object.
    """
    sent = meta.get("name") or ""
    if name and not sent:
        raise failures.nameless(name)
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
