"""Application of patches by the media type of their request."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from steersman.client.transport import HttpRequest
from steersman.errors import ApiError
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields.patches import json_patch, merge_patch, strategic_merge_patch
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.requests import media
from steersman_testing.apiserver.storage import StoredObject
from steersman_testing.apiserver.values import MISSING, JsonObject, get_field, normalize_numbers


def patched_body(
    kind: ServedKind, old: StoredObject, patch: Any, request: HttpRequest, decode: Callable[[Any], JsonObject]
) -> JsonObject:
    """Return ``old`` with the patch applied, decoded by ``decode``.

    Raises:
        ApiError: as ``apply_patch`` and ``decode``.
    """
    api_version = kind.resource.api_version
    has_managers = get_field(get_field(patch, "metadata"), "managedFields") is not MISSING
    if media.media_type(request) == media.MERGE_PATCH and not has_managers:
        # Managers that the result does not mention stay, and most of the object's JSON are managedFields.
        with suppress(ApiError):
            return decode(merge_patch(old.to_wire(api_version, managers=False), patch))
    # The messages of errors have the whole object.
    return decode(apply_patch(old.to_wire(api_version), patch, request, kind))


def apply_patch(current: JsonObject, patch: Any, request: HttpRequest, kind: ServedKind) -> Any:
    """Return ``current`` with the patch applied.

    The media type of ``request`` selects the kind of patch.

    Raises:
        ApiError: the patch does not apply, or ``kind`` does not support the media type.
    """
    match media.media_type(request):
        case media.JSON_PATCH:
            return json_patch(current, patch)
        case media.MERGE_PATCH:
            return merge_patch(current, patch)
        case media.STRATEGIC_PATCH if not kind.is_custom:
            normalize_numbers(patch)
            return strategic_merge_patch(current, patch, kind.shape)
        case media.APPLY:
            raise failures.not_implemented("server-side apply to this subresource")
        case _:
            strategic = () if kind.is_custom else (media.STRATEGIC_PATCH,)
            accepted = (media.JSON_PATCH, media.MERGE_PATCH, *strategic, media.APPLY)
            raise failures.unsupported_media_type(accepted)
