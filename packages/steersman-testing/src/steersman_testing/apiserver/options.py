"""Options of writes and deletions, with their validation.

Source: ``k8s.io/apimachinery/pkg/apis/meta/v1/validation``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.access.authorization import RequestUser
from steersman_testing.apiserver.failures import format_value
from steersman_testing.apiserver.fields.managed_fields import DEFAULT_FIELD_MANAGER
from steersman_testing.apiserver.requests.bodies import decode_delete_options
from steersman_testing.apiserver.requests.media import APPLY, media_type
from steersman_testing.apiserver.requests.parameters import bool_parameter, int_parameter
from steersman_testing.apiserver.values import JsonObject

_OPTIONS_KINDS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions"}
_MAX_MANAGER_BYTES = 128
_FIELD_VALIDATIONS = ("Ignore", "Strict", "Warn")
_PROPAGATION_POLICIES = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a write from the query, and its user."""

    manager: str
    force: bool
    dry_run: bool
    field_validation: str
    user: RequestUser

    @staticmethod
    def of(request: HttpRequest, user: RequestUser) -> WriteOptions:
        """Parse the options of ``request``.

        Raises:
            ApiError: 422, an option is invalid.
        """
        _check(request)
        query = request.query
        return WriteOptions(
            manager=query.get("fieldManager", ""),
            force=bool_parameter(query, "force"),
            dry_run="dryRun" in query,
            field_validation=query.get("fieldValidation", ""),
            user=user,
        )

    @property
    def effective_manager(self) -> str:
        """The field manager. Defaults to the user agent."""
        return self.manager or self.user.user_agent or DEFAULT_FIELD_MANAGER

    @property
    def strict(self) -> bool:
        """Unknown fields are rejected."""
        return self.field_validation == "Strict"

    def to_wire(self) -> JsonObject:
        """Return the options in wire form, as webhooks receive them."""
        options = {"dryRun": ["All"] if self.dry_run else None, "fieldManager": self.manager}
        return {k: v for k, v in {**options, "fieldValidation": self.field_validation}.items() if v}


def _check(request: HttpRequest) -> None:
    query, kind = request.query, _OPTIONS_KINDS.get(request.method, "CreateOptions")
    is_apply = request.method == "PATCH" and media_type(request) == APPLY
    if "force" in query and request.method == "PATCH" and not is_apply:
        text = "Forbidden: may not be specified for non-apply patch"
        raise failures.invalid_options(kind, "force", text, "FieldValueForbidden")
    _check_manager(kind, query.get("fieldManager", ""))
    _check_dry_run(kind, [query["dryRun"]] if "dryRun" in query else [])
    validation = query.get("fieldValidation", "")
    if validation and validation not in _FIELD_VALIDATIONS:
        supported = ", ".join(f'"{v}"' for v in ("", *_FIELD_VALIDATIONS))
        text = f'Unsupported value: "{validation}": supported values: {supported}'
        raise failures.invalid_options(kind, "fieldValidation", text)


def _check_manager(kind: str, manager: str) -> None:
    if len(manager) > _MAX_MANAGER_BYTES:
        text = f"Too long: may not be more than {_MAX_MANAGER_BYTES} bytes"
        raise failures.invalid_options(kind, "fieldManager", text, "FieldValueTooLong")
    if manager.isprintable():
        return
    for position, character in enumerate(manager):
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            # Go's quoting escapes such characters differently from JSON.
            quoted = format_value(manager).replace("\\u00", "\\x")
            text = f"Invalid value: {quoted}: {detail}"
            raise failures.invalid_options(kind, "fieldManager", text, "FieldValueInvalid")


def _check_dry_run(kind: str, values: list[str]) -> None:
    if any(v != "All" for v in values):
        text = f'Unsupported value: {format_value(values)}: supported values: "All"'
        raise failures.invalid_options(kind, "dryRun", text)


def delete_options(request: HttpRequest) -> JsonObject:
    """Return the DeleteOptions of the body or the query.

    Raises:
        ApiError: 400, the body has no DeleteOptions; 422, an option is invalid.
    """
    return validate_delete_options(decode_delete_options(request) if request.body else _options_from_query(request))


def validate_delete_options(options: JsonObject) -> JsonObject:
    """Validate DeleteOptions and translate deprecated fields.

    Raises:
        ApiError: 422, an option is invalid.
    """
    _check_dry_run("DeleteOptions", options.get("dryRun") or [])
    policy = options.get("propagationPolicy")
    if options.get("orphanDependents") is not None:
        if policy:
            raise _conflicting_options(policy)
        # orphanDependents is the deprecated form.
        options = {**options, "propagationPolicy": "Orphan" if options["orphanDependents"] else "Background"}
    elif policy and policy not in _PROPAGATION_POLICIES:
        supported = ", ".join(f'"{p}"' for p in (*_PROPAGATION_POLICIES, "nil"))
        text = f"Unsupported value: {format_value(policy)}: supported values: {supported}"
        raise failures.invalid_options("DeleteOptions", "propagationPolicy", text)
    grace = options.get("gracePeriodSeconds")
    return {**options, "gracePeriodSeconds": 1} if grace is not None and grace < 0 else options


def _options_from_query(request: HttpRequest) -> JsonObject:
    query = request.query
    options: JsonObject = {"gracePeriodSeconds": int_parameter(query, "gracePeriodSeconds")}
    if query.get("propagationPolicy"):
        options["propagationPolicy"] = query["propagationPolicy"]
    if "dryRun" in query:
        options["dryRun"] = [query["dryRun"]]
    if "orphanDependents" in query:
        options["orphanDependents"] = bool_parameter(query, "orphanDependents")
    return options


def _conflicting_options(policy: Any) -> ApiError:
    text = f"Invalid value: {format_value(policy)}: orphanDependents and deletionPropagation cannot be both set"
    return failures.invalid_options("DeleteOptions", "propagationPolicy", text, "FieldValueInvalid")
