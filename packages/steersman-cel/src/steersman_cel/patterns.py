"""Regular expressions of schemas and rules; what cannot be imitated is refused as such."""

from __future__ import annotations

import re

from steersman.meta import patterns
from steersman.meta.patterns import PatternError, UnsupportedPattern
from steersman_cel.errors import refused_here

__all__ = ["PatternError", "compiled"]


def compiled(pattern: str) -> re.Pattern[str]:
    """``pattern`` for Python.

    Raises:
        PatternError: it is no pattern for RE2.
        ApiError: 501, it uses a class that is not imitated.
    """
    try:
        return patterns.compiled(pattern)
    except UnsupportedPattern as error:
        raise refused_here(str(error)) from None
