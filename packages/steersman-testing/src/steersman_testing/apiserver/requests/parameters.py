"""Parsing of query parameters as in Go.

Source: ``k8s.io/apimachinery/pkg/runtime/conversion.go``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from steersman_testing.apiserver import failures

_INT64_LIMIT = 2**63
_MAX_DIGITS = 20


def bool_parameter(query: Mapping[str, str], name: str) -> bool:
    """Return True if a parameter is set and neither ``false`` nor ``0``.

    Other values count as true, such as ``?watch=no``.
    """
    return name in query and query[name].lower() not in ("false", "0")


def int_parameter(query: Mapping[str, str], name: str) -> int | None:
    """Return the integer of a parameter, or None if it is missing.

    Raises:
        ApiError: 400, it is not an integer.
    """
    text = query.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]+", text):
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    found = _parse_digits(text)
    if found is None or not -_INT64_LIMIT <= found < _INT64_LIMIT:
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return found


def parse_resource_version(text: str) -> int:
    """Return the number of a ``resourceVersion``, or 0 if it is empty.

    Raises:
        ValueError: it is not a number. The text is that of Go.
    """
    if not re.fullmatch("[0-9]*", text):
        raise ValueError(f'strconv.ParseUint: parsing "{text}": invalid syntax')
    found = _parse_digits(text or "0")
    if found is None or found >= 2 * _INT64_LIMIT:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return found


def _parse_digits(text: str) -> int | None:
    """Return the integer, or None if it is too long."""
    sign, digits = ("-" if text.startswith("-") else ""), text.lstrip("+-").lstrip("0") or "0"
    return int(sign + digits) if len(digits) <= _MAX_DIGITS else None
