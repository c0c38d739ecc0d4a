"""Errors of the API server, with its messages.

Source: ``k8s.io/apimachinery/pkg/api/errors`` and ``.../util/validation/field``; wording of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from steersman.errors import ApiError, ApiStatus, StatusCause, StatusDetails, error_from_status
from steersman.meta import ApiResource
from steersman_cel.errors import not_implemented as not_implemented


class InvalidFieldError(NamedTuple):
    """Error of one field.

    Attributes:
        path: path of the field.
        reason: the machine-readable reason.
        text: the message without the path.
    """

    path: str
    reason: str
    text: str


def required_value(path: str, detail: str = "") -> InvalidFieldError:
    return InvalidFieldError(path, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def invalid_value(path: str, value: Any, detail: str, *, reason: str = "FieldValueInvalid") -> InvalidFieldError:
    return InvalidFieldError(path, reason, f"Invalid value: {format_value(value)}: {detail}")


def forbidden_field(path: str, detail: str) -> InvalidFieldError:
    return InvalidFieldError(path, "FieldValueForbidden", f"Forbidden: {detail}")


def duplicate_value(path: str, value: Any) -> InvalidFieldError:
    return InvalidFieldError(path, "FieldValueDuplicate", f"Duplicate value: {format_value(value)}")


def unsupported_value(path: str, value: Any, supported: Iterable[str]) -> InvalidFieldError:
    listed = ", ".join(format_value(s) for s in supported)
    return InvalidFieldError(
        path, "FieldValueNotSupported", f"Unsupported value: {format_value(value)}: supported values: {listed}"
    )


def format_value(value: Any) -> str:
    """Format a value as Go does in a field error."""
    return msgspec.json.encode(value, enc_hook=float).decode()


def qualified_resource(resource: ApiResource) -> str:
    """Return ``deployments.apps``, or ``pods`` for the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _failure(
    code: int, reason: str, message: str, resource: ApiResource | None = None, name: str = "", **details: Any
) -> ApiError:
    group, kind = (resource.group, resource.plural) if resource else ("", "")
    return error_from_status(
        ApiStatus(
            message=message,
            reason=reason,
            code=code,
            details=StatusDetails(name=name, group=group, kind=details.pop("kind", kind), **details),
        )
    )


def not_found(resource: ApiResource, name: str) -> ApiError:
    return _failure(404, "NotFound", f'{qualified_resource(resource)} "{name}" not found', resource, name)


def unknown_path() -> ApiError:
    """Return the error for an unknown group or path.

    The real server responds with plain text: see ``responses``.
    """
    return error_from_status(ApiStatus(message="404 page not found", reason="NotFound", code=404))


def unknown_resource() -> ApiError:
    """Return the 404 error for an unknown resource in a built-in group.

    Custom and unknown groups use ``unknown_path`` instead.
    """
    return _failure(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: ApiResource, name: str) -> ApiError:
    message = f'{qualified_resource(resource)} "{name}" already exists'
    return _failure(409, "AlreadyExists", message, resource, name)


def conflict(resource: ApiResource, name: str, reason: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {qualified_resource(resource)} "{name}": {reason}'
    return _failure(409, "Conflict", message, resource, name)


def object_modified(resource: ApiResource, name: str) -> ApiError:
    reason = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, reason)


def precondition_failed(resource: ApiResource, name: str, field: str, expected: str, found: str) -> ApiError:
    """Return the error for a failed precondition of a deletion.

    Args:
        field: ``UID`` or ``ResourceVersion``.
    """
    guess = "deleted and then recreated" if field == "UID" else "modified"
    # The message has the kind in place of the plural, as in rest.BeforeDelete.
    kind_name = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = (
        f'Operation cannot be fulfilled on {kind_name} "{name}": the {field} in the precondition ({expected}) does '
        f"not match the {field} in record ({found}). The object might have been {guess}"
    )
    return _failure(409, "Conflict", message, resource, name, kind=resource.kind)


def token_binding_conflict(resource: ApiResource, name: str, uid: str) -> ApiError:
    """Return the error for a bound object with another UID."""
    message = (
        f'Operation cannot be fulfilled on {resource.kind} "{name}": the UID in the bound object reference ({uid}) '
        "does not match the UID in record. The object might have been deleted and then recreated"
    )
    return _failure(409, "Conflict", message, resource, name, kind=resource.kind)


def apply_conflict(causes: Sequence[StatusCause], message: str) -> ApiError:
    return _failure(409, "Conflict", message, causes=tuple(causes))


def invalid(resource: ApiResource, name: str, errors: Iterable[InvalidFieldError]) -> ApiError:
    found = list(errors)
    # Duplicate errors are one message, but several causes.
    messages = list(dict.fromkeys(f"{e.path}: {e.text}" for e in found))
    text = messages[0] if len(messages) == 1 else f"[{', '.join(messages)}]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    causes = tuple(StatusCause(field=e.path, message=e.text, reason=e.reason) for e in found)
    message = f'{kind} "{name}" is invalid: {text}'
    return _failure(422, "Invalid", message, resource, name, kind=resource.kind, causes=causes)


def invalid_patch(patched: Any, reason: str) -> ApiError:
    """Return the error for a patch with an invalid result."""
    error = invalid_value("patch", format_value(patched), reason)
    return invalid(ApiResource("", "", "", ""), "", [error])


def inapplicable_patch() -> ApiError:
    """Return the error for a JSON patch that does not apply."""
    return _failure(422, "Invalid", "the server rejected our request due to an error in our request")


def bad_request(message: str) -> ApiError:
    return error_from_status(ApiStatus(message=message, reason="BadRequest", code=400))


def missing_name(name: str) -> ApiError:
    """Return the error for a body without a name.

    Args:
        name: name of the URL.
    """
    return bad_request(f"the name of the object ({name} based on URL) was undeterminable: name must be provided")


def body_too_large(limit: int) -> ApiError:
    """Return the error for a body of more than ``limit`` bytes."""
    return _failure(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def forbidden(resource: ApiResource, name: str, reason: str, causes: Sequence[StatusCause] = ()) -> ApiError:
    """Return the error for a forbidden request.

    Without a name it is about the collection. Without a plural it names no resource.
    """
    subject = f'{qualified_resource(resource)} "{name}" is ' if name else f"{qualified_resource(resource)} is "
    message = f"{subject if resource.plural else ''}forbidden: {reason}"
    return _failure(403, "Forbidden", message, resource, name, causes=tuple(causes) or None)


def unauthorized() -> ApiError:
    """Return the error for an invalid bearer token."""
    return error_from_status(ApiStatus(message="Unauthorized", reason="Unauthorized", code=401))


def namespace_terminating(namespace: str) -> StatusCause:
    """Return the cause for a create in a terminating namespace."""
    return StatusCause(
        reason="NamespaceTerminating",
        message=f"namespace {namespace} is being terminated",
        field="metadata.namespace",
    )


def invalid_options(kind: str, field: str, text: str, reason: str = "FieldValueNotSupported") -> ApiError:
    """Return the error for invalid options such as ``PatchOptions``."""
    message = f'{kind}.meta.k8s.io "" is invalid: {field}: {text}'
    cause = StatusCause(field=field, message=text, reason=reason)
    return error_from_status(
        ApiStatus(
            message=message,
            reason="Invalid",
            code=422,
            details=StatusDetails(group="meta.k8s.io", kind=kind, causes=(cause,)),
        )
    )


def missing_manager() -> ApiError:
    """Return the error for an apply without ``fieldManager``."""
    text = "Required value: is required for apply patch"
    return invalid_options("PatchOptions", "fieldManager", text, "FieldValueRequired")


def method_not_allowed(resource: ApiResource | None = None, verb: str = "") -> ApiError:
    """Return the error for a method that is not supported.

    Custom resources have their name in the message.
    """
    message = "the server does not allow this method on the requested resource"
    if resource is not None:
        message = f'{verb} is not supported on resources of kind "{qualified_resource(resource)}"'
    return _failure(405, "MethodNotAllowed", message)


def unsupported_media_type(accepted: Iterable[str]) -> ApiError:
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    )
    return error_from_status(ApiStatus(message=message, reason="UnsupportedMediaType", code=415))


def not_acceptable() -> ApiError:
    types = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
    message = f"406: Not Acceptable\n\nAvailable representations: {types}"
    return _failure(406, "NotAcceptable", message)


def resource_version_too_old(requested: int, oldest: int) -> ApiError:
    return error_from_status(
        ApiStatus(message=f"too old resource version: {requested} ({oldest})", reason="Expired", code=410)
    )


def continue_token_expired() -> ApiError:
    message = (
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list."
    )
    return error_from_status(ApiStatus(message=message, reason="Expired", code=410))


def resource_version_too_large(requested: int, current: int) -> ApiError:
    message = f"Too large resource version: {requested}, current: {current}"
    cause = StatusCause(message="Too large resource version", reason="ResourceVersionTooLarge")
    return _failure(504, "Timeout", f"Timeout: {message}", causes=(cause,), retry_after_seconds=1)


def internal(message: str) -> ApiError:
    text = f"Internal error occurred: {message}"
    return _failure(500, "InternalError", text, causes=(StatusCause(message=message),))


def eviction_blocked(cause: StatusCause, retry_after: int = 0) -> ApiError:
    """Return the error for an eviction that a budget blocks.

    Args:
        retry_after: seconds.
    """
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    return _failure(429, "TooManyRequests", message, causes=(cause,), retry_after_seconds=retry_after)


def webhook_denied(message: str, status: Mapping[str, Any]) -> ApiError:
    """Return the error for a request that an admission webhook denied.

    Args:
        status: code, reason and details of the webhook, in wire form.
    """
    code = status.get("code", 0)
    status_details = status.get("details")
    details = msgspec.convert(status_details, StatusDetails) if status_details is not None else None
    error_status = ApiStatus(message=message, reason=status.get("reason", ""), code=max(code, 400), details=details)
    return error_from_status(error_status)


def unclassified_error(message: str) -> ApiError:
    """Return an error without a reason and the code 500."""
    return error_from_status(ApiStatus(message=message, code=500))
