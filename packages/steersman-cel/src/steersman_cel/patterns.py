"""Regular expressions of schemas and rules; what cannot be imitated is refused as such."""

from __future__ import annotations

import re

from steersman.meta import patterns
from steersman.meta.patterns import PatternError, UnsupportedPattern
from steersman_cel.errors import not_implemented

__all__ = ["PatternError", "compile_pattern"]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """``pattern`` for Python.

    Raises:
        PatternError: it is no pattern for RE2.
        ApiError: 501, it uses a class that is not imitated.
    """
    try:
        return patterns.compile_pattern(pattern)
    except UnsupportedPattern as error:
        raise not_implemented(str(error)) from None
