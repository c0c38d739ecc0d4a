"""Hashes of declared content, for annotations."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec


def content_hash(value: Any) -> str:
    """Return 16 hexadecimal digits that are equal for equal JSON values."""
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()[:16]
