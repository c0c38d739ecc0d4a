"""String functions of CEL that cel-cpp lacks or implements differently.

They raise ValueError for a position out of range. Source: ``ext/strings.go`` of cel-go.
"""

from __future__ import annotations


def _check_position(position: int, length: int) -> int:
    if not 0 <= position <= length:
        raise ValueError(f"index out of range: {position}")
    return position


def char_at(text: str, position: int) -> str:
    """The character at ``position``. Empty at the end."""
    return text[_check_position(position, len(text)) :][:1]


def substring(text: str, start: int, end: int | None = None) -> str:
    """The characters from ``start`` up to ``end``, exclusive."""
    if end is not None and start > end:
        raise ValueError(f"invalid substring range. start: {start}, end: {end}")
    return text[_check_position(start, len(text)) : None if end is None else _check_position(end, len(text))]


def index_of(text: str, substring_to_find: str, start: int = 0) -> int:
    """The first position of a substring at or after ``start``, or -1."""
    if start < 0 and substring_to_find:
        raise ValueError(f"index out of range: {start}")
    return text.find(substring_to_find, start) if substring_to_find else start


def last_index_of(text: str, substring_to_find: str, start: int | None = None) -> int:
    """The last position of a substring at or before ``start``, or -1."""
    if start is None:
        return text.rfind(substring_to_find)
    if not substring_to_find:
        return start
    if start < 0:
        raise ValueError(f"index out of range: {start}")
    return text.rfind(substring_to_find, 0, start + len(substring_to_find)) if start < len(text) else -1
