"""The picture for the README."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.summary import Summary


def draw(summaries: Sequence[Summary]) -> str:
    """An SVG."""
    return f"<svg><!-- {len(summaries)} --></svg>"
