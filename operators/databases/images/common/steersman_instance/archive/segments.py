"""Files of WAL, and where pgBackRest stores them."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEGMENT = re.compile(r"[0-9A-F]{24}")
_FILE = re.compile(r"[0-9A-F]{24}(\.partial|\.[0-9A-F]{8}\.backup)?|[0-9A-F]{8}\.history")
_ARCHIVE_ID = re.compile(r"([0-9]+(?:\.[0-9]+)?)-([0-9]+)")


def is_segment(name: str) -> bool:
    """Return True for the name of a whole segment."""
    return _SEGMENT.fullmatch(name) is not None


def is_wal_file(name: str) -> bool:
    """Return True for any file that PostgreSQL archives."""
    return _FILE.fullmatch(name) is not None


def directory_of(archive_id: str, name: str, stanza: str) -> str:
    """Return the repository directory of a file.

    Segments are grouped by their first 16 digits.
    """
    group = "" if name.endswith(".history") else f"/{name[:16]}"
    return f"archive/{stanza}/{archive_id}{group}"


def is_stored(name: str, listing: Iterable[str]) -> bool:
    """Return True if a listing has the file.

    pgBackRest appends a checksum: ``<name>-<sha1>.zst``.
    """
    return any(entry == name or entry.startswith(f"{name}-") for entry in listing)


def newest_archive_id(names: Iterable[str], major: str = "") -> str:
    """Return the newest archive directory, such as ``17-1``, or "".

    Args:
        major: consider this major version only. Defaults to all versions.
    """
    found = [match for name in names if (match := _ARCHIVE_ID.fullmatch(name)) and major in ("", match[1])]
    return max(found, key=lambda match: int(match[2]))[0] if found else ""
