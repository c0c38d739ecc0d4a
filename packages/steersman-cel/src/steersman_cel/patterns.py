"""Regular expressions of schemas and rules."""

from __future__ import annotations

import re

from steersman.meta import patterns
from steersman.meta.patterns import PatternError, UnsupportedPattern
from steersman_cel.errors import not_implemented

__all__ = ["PatternError", "compile_pattern"]


def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile an RE2 pattern for Python.

    Raises:
        PatternError: RE2 rejects the pattern.
        ApiError: 501 if Python cannot express the pattern.
    """
    try:
        return patterns.compile_pattern(pattern)
    except UnsupportedPattern as error:
        raise not_implemented(str(error)) from None
