"""Parsing of resourceVersions."""

from __future__ import annotations


def parse_resource_version(version: str) -> int | None:
    """Return ``version`` as a number, or None if it is not one.

    Numbers order the versions of one kind.

    Source: KEP-5504, "Comparable Resource Version": a decimal number of any length, without leading zeros.
    """
    return int(version) if version.isascii() and version.isdigit() else None
