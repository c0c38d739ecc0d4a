"""Sizes as text."""

from __future__ import annotations


def format_bytes(count: float) -> str:
    """Return a size in binary units, such as ``1.5 GiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count:.0f} B"
