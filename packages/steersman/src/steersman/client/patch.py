"""Patches other than server-side apply. Source: RFC 6902, RFC 7386, "API Conventions"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from msgspec import Struct


class JsonPatch(Struct, frozen=True):
    """Operations in order, such as ``{"op": "test", "path": "/metadata/uid", "value": uid}`` (RFC 6902)."""

    content_type: ClassVar[str] = "application/json-patch+json"
    body: Sequence[Mapping[str, Any]]


class MergePatch(Struct, frozen=True):
    """Fields in their wire names to set, or with None to remove; lists are replaced whole (RFC 7386)."""

    content_type: ClassVar[str] = "application/merge-patch+json"
    body: Mapping[str, Any]


class StrategicMergePatch(Struct, frozen=True):
    """As ``MergePatch``, but lists of built-in kinds are merged by their keys; custom resources do not know it.

    Source: "Update API Objects in Place Using kubectl patch".
    """

    content_type: ClassVar[str] = "application/strategic-merge-patch+json"
    body: Mapping[str, Any]


Patch = JsonPatch | MergePatch | StrategicMergePatch
"""What ``Client.patch`` sends."""
