"""Regular expressions for names in pg_hba.conf."""

from __future__ import annotations

import re
from warnings import catch_warnings

_CLASSES = "alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit"
_ESCAPED = r"\\(?:[dwsDWS]|[^A-Za-z0-9])"
# A - is literal only at the edges of a class. In Python it is literal after a range, too.
_BRACKET_ITEM = rf"[^][\\-]-[^][\\-]|[^][\\-]|\\(?:[dws]|[^A-Za-z0-9])|\[:(?:{_CLASSES}):\]"
# The syntax that PostgreSQL and Python parse alike. `a*+` is one quantifier in Python, `a{x` is not a quantifier.
_PATTERN = re.compile(
    rf"""(?:
        [^][(){{}}*+?\\]              # a character, and . ^ $ |
      | {_ESCAPED}
      | \[\^?(?:\](?!-)|(?![]-])|-(?!-))(?:{_BRACKET_ITEM})*-?\]
      | \((?:\?:|(?!\?)) | \)
      | (?:[*+?]|(?<!\))\{{\d{{1,2}}(?:,\d{{0,2}})?\}})\??(?![*+?{{])
    )*""",
    re.VERBOSE,
)


def is_valid_pattern(pattern: str) -> bool:
    """Return True if PostgreSQL certainly accepts a regular expression.

    Only the common part of PostgreSQL's and Python's syntax is accepted: characters, classes, groups, alternatives
    and repetitions. Single characters may repeat up to 99 times. With nested groups this many repetitions would need
    more memory than a server has. Back references, look-around and options are not accepted.

    Source: PostgreSQL 17 documentation, 9.7.3 "POSIX Regular Expressions".
    """
    if not _PATTERN.fullmatch(pattern):
        return False
    try:
        # Python warns about syntax whose meaning may change, such as [: in a class.
        with catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
