"""Decoder of request bodies, patch results and applied configurations.

It checks that the object matches the types of its kind. In requests other than server-side apply, unknown fields
are ignored, reported as warnings or rejected, as the query parameter ``fieldValidation`` requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import decode_metadata
from steersman_testing.apiserver.fields.typed import validate_applied
from steersman_testing.apiserver.go_values import UnmarshalTypeError
from steersman_testing.apiserver.kinds import KindRegistry, ServedKind
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.bodies import (
    WriteMethod,
    check_type_meta,
    decode_for_kind,
    duplicate_field_errors,
    set_name_and_namespace,
)
from steersman_testing.apiserver.schemas.embedded import metadata_type_errors
from steersman_testing.apiserver.strategy import decode_as_kind
from steersman_testing.apiserver.values import JsonObject, get_object, is_map


@dataclass(frozen=True, slots=True)
class BodyDecoder:
    """Decodes bodies.

    Attributes:
        kinds: all served kinds, to distinguish unknown kinds from misplaced ones.
        warnings: receives the warnings of field validation.
    """

    kinds: KindRegistry
    warnings: list[str]

    def decode(
        self, kind: ServedKind, request: HttpRequest, options: WriteOptions, *, name: str, namespace: str
    ) -> JsonObject:
        """Decode the body of a POST or a PUT as ``kind``.

        ``name`` and ``namespace`` of the URL are set in its metadata.

        Args:
            name: empty if the URL has no name.

        Raises:
            ApiError: 400 or 422, the body is invalid or names another object than the URL.
        """
        result = self.decode_unchecked(kind, request, options, name=name)
        set_name_and_namespace(result["metadata"], name, namespace)
        return result

    def decode_unchecked(
        self, kind: ServedKind, request: HttpRequest, options: WriteOptions, *, name: str
    ) -> JsonObject:
        """Decode as ``decode``, without name and namespace of the URL."""
        body = decode_for_kind(kind, request, kind.resource.kind)
        duplicates = duplicate_field_errors(request, body) if options.field_validation != "Ignore" else ()
        return self._decode(kind, body, "write", options, duplicates, name)

    def decode_patched(
        self, kind: ServedKind, body: Any, method: WriteMethod, options: WriteOptions, *, name: str, namespace: str
    ) -> JsonObject:
        """Decode the result of a patch, or an applied configuration, as ``decode``."""
        result = self._decode(kind, body, method, options, (), name)
        if method == "apply":
            # An applied configuration may omit the name of an existing object.
            result["metadata"].setdefault("name", name)
        set_name_and_namespace(result["metadata"], name, namespace)
        return result

    def _decode(
        self,
        kind: ServedKind,
        body: Any,
        method: WriteMethod,
        options: WriteOptions,
        duplicates: Sequence[str],
        name: str,
    ) -> JsonObject:
        invalid_times: JsonObject = {}
        if method == "apply" and kind.is_custom:
            body, invalid_times = _split_invalid_times(body)
        result = check_type_meta(self.kinds, kind, body, method, name=name)
        if method == "apply":
            validate_applied(kind, body, invalid_times)
        try:
            sent_metadata: Any = body.get("metadata")
            owner = "" if kind.is_custom else kind.resource.kind
            result["metadata"], unknown_metadata = decode_metadata(
                {} if sent_metadata is None else sent_metadata, owner
            )
        except UnmarshalTypeError as error:
            raise _decode_error(kind, body, method, str(error)) from None
        if method == "apply":
            # A null in an applied configuration is owned by its manager.
            result["metadata"] |= {n: v for n, v in get_object(body, "metadata").items() if v is None}
        if kind.schema is not None and (mismatch := metadata_type_errors(result, kind.schema)):
            raise _decode_error(kind, body, method, f"{mismatch[0].path}: {mismatch[0].text}")
        if method == "apply":
            # The merge with the live object completes it.
            return result
        try:
            result, unknown = decode_as_kind(kind, result)
        except UnmarshalTypeError as error:
            raise _decode_error(kind, body, method, str(error)) from None
        problems = [*duplicates, *(f'unknown field "{p}"' for p in (*unknown_metadata, *unknown))]
        if options.strict and problems:
            raise _decode_error(kind, body, method, "strict decoding error: " + ", ".join(problems))
        if options.field_validation != "Ignore":
            self.warnings.extend(problems)
        return result


def _split_invalid_times(body: Any) -> tuple[Any, JsonObject]:
    """Return ``body`` without invalid times in its metadata, and these.

    Custom resources ignore such times, but the manager that applies one owns it.
    """
    if not is_map(sent := get_object({"body": body}, "body").get("metadata")):
        return body, {}
    invalid_times = {
        n: sent[n] for n in ("creationTimestamp", "deletionTimestamp") if n in sent and not _is_time(sent[n])
    }
    return ({**body, "metadata": {**sent, **dict.fromkeys(invalid_times)}} if invalid_times else body), invalid_times


def _is_time(value: Any) -> bool:
    try:
        decode_metadata({"creationTimestamp": value})
    except UnmarshalTypeError:
        return False
    return True


def _decode_error(kind: ServedKind, body: Any, method: WriteMethod, reason: str) -> ApiError:
    if method == "patch":
        return failures.invalid_patch(body, reason)
    if method == "apply":
        return failures.unclassified_error(f"failed to convert new object to proper version: {reason}")
    named = kind.resource.kind
    return failures.bad_request(
        f'{named} in version "{kind.resource.version}" cannot be handled as a {named}: {reason}'
    )
