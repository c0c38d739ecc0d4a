"""What a write sends, decoded as its kind: wrong types are refused, unknown fields refused, told or passed over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.builtin.types import conform_metadata
from steersman_testing.apiserver.fields.typed import check_typed
from steersman_testing.apiserver.go_values import WrongType
from steersman_testing.apiserver.kinds import Kind, KindRegistry
from steersman_testing.apiserver.options import WriteOptions
from steersman_testing.apiserver.requests.bodies import How, as_kind, complete_from_url, repeated_fields, sent_to
from steersman_testing.apiserver.schemas.embedded import metadata_mismatch
from steersman_testing.apiserver.strategy import conformed
from steersman_testing.apiserver.values import JsonObject, is_map, map_at


@dataclass(frozen=True, slots=True)
class Incoming:
    """Reads bodies.

    Attributes:
        kinds: all that are served, to tell an unknown kind from a misplaced one.
        warnings: gathers what the answer warns of.
    """

    kinds: KindRegistry
    warnings: list[str]

    def sent(
        self, kind: Kind, request: HttpRequest, options: WriteOptions, *, name: str, namespace: str
    ) -> JsonObject:
        """The body of a POST or a PUT as an object of ``kind``, completed from the URL's ``name`` and ``namespace``.

        Args:
            name: empty where the URL does not name the object.

        Raises:
            ApiError: 400 or 422, it is none, or another object than the URL's.
        """
        result = self.decoded(kind, request, options, name=name)
        complete_from_url(result["metadata"], name, namespace)
        return result

    def decoded(self, kind: Kind, request: HttpRequest, options: WriteOptions, *, name: str) -> JsonObject:
        """As ``sent``, not completed, and not compared with the URL."""
        sent = sent_to(kind, request, kind.resource.kind)
        repeated = repeated_fields(request, sent) if options.validation != "Ignore" else ()
        return self._read(kind, sent, "write", options, repeated, name)

    def read(
        self, kind: Kind, body: Any, how: How, options: WriteOptions, *, name: str, namespace: str
    ) -> JsonObject:
        """As ``sent``, of what a patch makes, or of an applied configuration."""
        result = self._read(kind, body, how, options, (), name)
        if how == "apply":
            # What is applied to an object that is there has its name.
            result["metadata"].setdefault("name", name)
        complete_from_url(result["metadata"], name, namespace)
        return result

    def _read(
        self, kind: Kind, body: Any, how: How, options: WriteOptions, repeated: Sequence[str], name: str
    ) -> JsonObject:
        odd: JsonObject = {}
        if how == "apply" and kind.custom:
            body, odd = _without_odd_times(body)
        result = as_kind(self.kinds, kind, body, how, name=name)
        if how == "apply":
            check_typed(kind, body, odd)
        try:
            sent: Any = body.get("metadata")
            owner = "" if kind.custom else kind.resource.kind
            result["metadata"], strange = conform_metadata({} if sent is None else sent, owner)
        except WrongType as error:
            raise _undecodable(kind, body, how, str(error)) from None
        if how == "apply":
            # Who applies a null owns it.
            result["metadata"] |= {n: v for n, v in map_at(body, "metadata").items() if v is None}
        if kind.schema is not None and (wrong := metadata_mismatch(result, kind.schema)):
            raise _undecodable(kind, body, how, f"{wrong[0].path}: {wrong[0].text}")
        if how == "apply":
            # What it is merged with makes it whole.
            return result
        try:
            result, unknown = conformed(kind, result)
        except WrongType as error:
            raise _undecodable(kind, body, how, str(error)) from None
        found = [*repeated, *(f'unknown field "{p}"' for p in (*strange, *unknown))]
        if options.strict and found:
            raise _undecodable(kind, body, how, "strict decoding error: " + ", ".join(found))
        if options.validation != "Ignore":
            self.warnings.extend(found)
        return result


def _without_odd_times(body: Any) -> tuple[Any, JsonObject]:
    """``body`` with null for the times in its metadata that are none, and these.

    Of custom resources nobody reads them, but who applies one owns it.
    """
    if not is_map(sent := map_at({"body": body}, "body").get("metadata")):
        return body, {}
    odd = {n: sent[n] for n in ("creationTimestamp", "deletionTimestamp") if n in sent and not _is_time(sent[n])}
    return ({**body, "metadata": {**sent, **dict.fromkeys(odd)}} if odd else body), odd


def _is_time(value: Any) -> bool:
    try:
        conform_metadata({"creationTimestamp": value})
    except WrongType:
        return False
    return True


def _undecodable(kind: Kind, body: Any, how: How, because: str) -> ApiError:
    if how == "patch":
        return failures.invalid_patch(body, because)
    if how == "apply":
        return failures.untyped(f"failed to convert new object to proper version: {because}")
    named = kind.resource.kind
    return failures.bad_request(
        f'{named} in version "{kind.resource.version}" cannot be handled as a {named}: {because}'
    )
