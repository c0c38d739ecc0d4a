"""Translation of regular expressions of RE2 and Go to Python's ``re``.

The translation rejects constructs that RE2 lacks (look-around, back references, possessive quantifiers), with the
error of Go. It rewrites constructs that have another meaning in Python. It does not support classes of Unicode
properties (``\\pL``).

Source: https://github.com/google/re2/wiki/Syntax; wording of Go's ``regexp/syntax``.
"""

from __future__ import annotations

import re
from functools import cache

_POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7F",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1F\x7F",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_REPEAT = re.compile(r"\{(\d+)(?:,(\d*))?\}")
_MAX_REPEATS = 1000
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_SIMPLE_ESCAPES = frozenset("aftnrvxbBdDwWAz.") | frozenset("01234567")


class PatternError(Exception):
    """Go rejects the pattern, with this error message."""


class UnsupportedPattern(Exception):
    """Go accepts the pattern, but it cannot be translated. The message names the construct."""


@cache
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of RE2.

    Args:
        pattern: regular expression in the syntax of RE2.

    Raises:
        PatternError: the pattern is invalid in RE2.
        UnsupportedPattern: the pattern uses a class or a flag that cannot be translated.
    """
    translated = _Translator(pattern).translate()
    try:
        return re.compile(translated, re.ASCII)
    except re.error as error:
        raise PatternError(f"error parsing regexp: {error.msg}: `{pattern}`") from None


class _Translator:
    """Translates a pattern in one pass."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._position = 0
        self._output: list[str] = []
        # Per open group: number of Python groups opened by inline flags, which end with the group.
        self._open_groups: list[int] = []
        self._unclosed_groups = 0
        self._multiline = [False]
        # True if a quantifier may follow, and the text of the preceding quantifier, if any.
        self._repeatable = False
        self._last_quantifier = ""

    def translate(self) -> str:
        while self._position < len(self._text):
            self._translate_token()
        if self._open_groups:
            raise self._error("missing closing )", self._text)
        return "".join(self._output) + ")" * self._unclosed_groups

    def _error(self, problem: str, excerpt: str) -> PatternError:
        return PatternError(f"error parsing regexp: {problem}: `{excerpt}`")

    def _emit(self, text: str, length: int, *, repeatable: bool = True) -> None:
        self._output.append(text)
        self._position += length
        self._repeatable, self._last_quantifier = repeatable, ""

    def _translate_token(self) -> None:
        char = self._text[self._position]
        match char:
            case "(":
                self._group()
            case ")":
                if not self._open_groups:
                    raise self._error("unexpected )", self._text)
                self._emit(")" * (self._open_groups.pop() + 1), 1)
                self._multiline.pop()
            case "[":
                self._class()
            case "\\":
                self._escape()
            case "*" | "+" | "?":
                self._quantifier(char)
            case "{" if _REPEAT.match(self._text, self._position):
                self._counted_quantifier()
            case "{" | "}":
                self._emit(f"\\{char}", 1)
            case "$":
                self._emit("$" if self._multiline[-1] else r"\Z", 1)
            case "|":
                self._emit("|", 1, repeatable=False)
            case _:
                self._emit(char, 1)

    def _group(self) -> None:
        if not self._text.startswith("(?", self._position):
            self._emit("(", 1, repeatable=False)
            self._open_groups.append(0)
            self._multiline.append(self._multiline[-1])
            return
        found = _GROUP.match(self._text, self._position)
        if found is None:
            rest = self._text[self._position :]
            if rest.startswith(("(?<", "(?P<")):
                raise self._error("invalid named capture", rest)
            raise self._error("invalid or unsupported Perl syntax", rest[:3])
        if found["name"] is not None:
            # Names are unused here, and Go permits duplicate names.
            self._emit("(", len(found[0]), repeatable=False)
            self._open_groups.append(0)
            self._multiline.append(self._multiline[-1])
            return
        flags = found["flags"]
        if "U" in flags:
            raise UnsupportedPattern(f"the flag U in the pattern {self._text!r}")
        on, _, off = flags.partition("-")
        multiline = (self._multiline[-1] or "m" in on) and "m" not in off
        self._emit(f"(?{flags}:", len(found[0]), repeatable=False)
        if found["end"] == ":":
            self._open_groups.append(0)
            self._multiline.append(multiline)
        else:
            self._multiline[-1] = multiline
            if self._open_groups:
                self._open_groups[-1] += 1
            else:
                self._unclosed_groups += 1

    def _quantifier(self, char: str) -> None:
        if not self._repeatable:
            if self._last_quantifier:
                raise self._error("invalid nested repetition operator", self._last_quantifier + char)
            raise self._error("missing argument to repetition operator", char)
        lazy = self._text.startswith("?", self._position + 1)
        self._emit(char + "?" * lazy, 1 + lazy, repeatable=False)
        self._last_quantifier = char + "?" * lazy

    def _counted_quantifier(self) -> None:
        found = _REPEAT.match(self._text, self._position)
        assert found is not None
        if not self._repeatable:
            if self._last_quantifier:
                raise self._error("invalid nested repetition operator", self._last_quantifier + found[0])
            raise self._error("missing argument to repetition operator", found[0])
        minimum, maximum = int(found[1]), int(found[2] or found[1])
        if minimum > _MAX_REPEATS or maximum > _MAX_REPEATS or (found[2] and maximum < minimum):
            raise self._error("invalid repeat count", found[0])
        lazy = self._text.startswith("?", self._position + len(found[0]))
        self._emit(found[0] + "?" * lazy, len(found[0]) + lazy, repeatable=False)
        self._last_quantifier = found[0] + "?" * lazy

    def _escape(self) -> None:
        if self._position + 1 >= len(self._text):
            raise self._error("trailing backslash at end of expression", "")
        char = self._text[self._position + 1]
        if char == "Q":
            end = self._text.find(r"\E", self._position)
            quoted = self._text[self._position + 2 : end if end >= 0 else len(self._text)]
            self._emit(re.escape(quoted), len(quoted) + 2 + (2 if end >= 0 else 0))
        elif char in "sS":
            self._emit("[^\\t\\n\\f\\r ]" if char == "S" else "[\\t\\n\\f\\r ]", 2)
        elif char == "z":
            self._emit(r"\Z", 2)
        else:
            text, length = self._translate_escape(self._position)
            self._emit(text, length)

    def _translate_escape(self, at: int) -> tuple[str, int]:
        """Return the translated escape at ``at``, and the length of the original."""
        char = self._text[at + 1]
        if char in "pP":
            raise UnsupportedPattern(f"the Unicode class in the pattern {self._text!r}")
        if braces := re.compile(r"\\x\{([0-9A-Fa-f]+)\}").match(self._text, at):
            return re.escape(chr(int(braces[1], 16))), len(braces[0])
        if char in "123456789" and not re.compile(r"\\[1-7][0-7]").match(self._text, at):
            raise self._error("invalid escape sequence", f"\\{char}")
        if char.isalnum() and char not in _SIMPLE_ESCAPES:
            raise self._error("invalid escape sequence", f"\\{char}")
        return f"\\{char}", 2

    def _class(self) -> None:
        start, at = self._position, self._position + 1
        out = ["["]
        if self._text.startswith("^", at):
            out.append("^")
            at += 1
        first = True
        while True:
            if at >= len(self._text):
                raise self._error("missing closing ]", self._text[start:])
            char = self._text[at]
            if char == "]" and not first:
                break
            first = False
            text, length = self._class_item(at)
            out.append(text)
            at += length
        self._emit("".join(out) + "]", at + 1 - start)

    def _class_item(self, at: int) -> tuple[str, int]:
        char = self._text[at]
        if found := re.compile(r"\[:(\^?)(\w+):\]").match(self._text, at):
            if found[2] not in _POSIX:
                raise self._error("invalid character class range", found[0])
            if found[1]:
                raise UnsupportedPattern(f"the negated class in the pattern {self._text!r}")
            return _POSIX[found[2]], len(found[0])
        if char == "\\" and at + 1 < len(self._text):
            if self._text[at + 1] == "s":
                return r"\t\n\f\r ", 2
            return self._translate_escape(at)
        if span := re.compile(r"([^\\\]])-([^\\\]])").match(self._text, at):
            if span[2] < span[1]:
                raise self._error("invalid character class range", span[0])
            return f"{re.escape(span[1])}-{re.escape(span[2])}", 3
        return (f"\\{char}" if char in "[]&~|" else char), 1
