"""Patches other than server-side apply.

Source: RFC 6902, RFC 7386, "API Conventions".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct


class JsonPatch(Struct, frozen=True):
    """JSON Patch (RFC 6902): a list of operations, applied in order.

    An example of an operation is ``{"op": "test", "path": "/metadata/uid", "value": uid}``.
    """

    content_type: ClassVar[str] = "application/json-patch+json"
    body: Sequence[Mapping[str, Any]]


class MergePatch(Struct, frozen=True):
    """JSON Merge Patch (RFC 7386): new values by JSON field name.

    None removes a field. A list replaces the whole previous list.
    """

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: Mapping[str, Any]


class StrategicMergePatch(Struct, frozen=True):
    """Merge patch that merges lists of built-in kinds by their keys.

    Custom resources do not support it.

    Source: "Update API Objects in Place Using kubectl patch".
    """

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    body: Mapping[str, Any]


Patch = JsonPatch | MergePatch | StrategicMergePatch
"""Any patch that ``Client.patch`` accepts."""
