"""Application of patches by the media type of their request."""

from __future__ import annotations

from typing import Any

from steersman.client.transport import HttpRequest
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.fields.patches import json_patch, merge_patch, strategic_merge_patch
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.requests import media
from steersman_testing.apiserver.values import JsonObject, normalize_numbers


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
