"""Regular expressions that stand for names in pg_hba.conf."""

from __future__ import annotations

import re
from warnings import catch_warnings

_CLASSES = "alnum|alpha|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit"
_ESCAPED = r"\\(?:[dwsDWS]|[^A-Za-z0-9])"
# A - is itself at the edges of a class alone: to Python it is so after a range, too.
_WITHIN = rf"[^][\\-]-[^][\\-]|[^][\\-]|\\(?:[dws]|[^A-Za-z0-9])|\[:(?:{_CLASSES}):\]"
# What PostgreSQL and Python read alike. `a*+` is one quantifier to Python, `a{x` no quantifier.
_BOTH = re.compile(
    rf"""(?:
        [^][(){{}}*+?\\]              # a character, and . ^ $ |
      | {_ESCAPED}
      | \[\^?(?:\](?!-)|(?![]-])|-(?!-))(?:{_WITHIN})*-?\]
      | \((?:\?:|(?!\?)) | \)
      | (?:[*+?]|(?<!\))\{{\d{{1,2}}(?:,\d{{0,2}})?\}})\??(?![*+?{{])
    )*""",
    re.VERBOSE,
)


def is_readable(pattern: str) -> bool:
    """Whether PostgreSQL is sure to read a regular expression.

    Only what Python's language has in common with that of PostgreSQL's is: characters, classes, groups, alternatives,
    repetitions, and of single characters up to 99 times: of groups that many, within each other, would be more than a
    server has memory for. Back references, looking ahead or behind and options are not.

    Source: PostgreSQL 17 documentation, 9.7.3 "POSIX Regular Expressions".
    """
    if not _BOTH.fullmatch(pattern):
        return False
    try:
        # Of what may get another meaning in some later Python, such as a class's [: .
        with catch_warnings(action="ignore", category=FutureWarning):
            re.compile(pattern)
    except (re.error, OverflowError, RecursionError):
        return False
    return True
