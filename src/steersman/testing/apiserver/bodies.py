"""What a request carries: decoding, and whether it belongs to the URL. The real server words each mistake apart."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import yaml

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman.meta import ApiResource
from steersman.testing.apiserver import failures
from steersman.testing.apiserver.failures import invalid_value
from steersman.testing.apiserver.kinds import Kind, KindRegistry
from steersman.testing.apiserver.values import JsonObject, is_map, metadata

How = Literal["write", "patch", "apply"]

_METADATA_FIELDS = frozenset(
    {
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    }
)


def decode_body(request: HttpRequest) -> Any:
    """The body: JSON, or YAML where the content type says so.

    Raises:
        ApiError: 400, neither.
    """
    body = request.body or b""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        if "yaml" not in request.content_type:
            raise failures.bad_request(f"the object provided is unrecognized: {error}") from error
    try:
        return yaml.safe_load(body)
    except yaml.YAMLError as error:
        raise failures.bad_request(f"error decoding YAML: {error}") from error


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
    return [f"metadata.{name}" for name in body["metadata"] if name not in _METADATA_FIELDS]
