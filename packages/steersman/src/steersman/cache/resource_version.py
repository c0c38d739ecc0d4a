"""Resource versions as numbers."""

from __future__ import annotations


def parse_resource_version(version: str) -> int | None:
    """``version`` as a number, by which versions of one kind can be ordered; None where it is none.

    Source: KEP-5504, "Comparable Resource Version": a decimal number of any length, without leading zeros.
    """
    return int(version) if version.isascii() and version.isdigit() else None
