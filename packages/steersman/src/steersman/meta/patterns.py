"""Translation of regular expressions of RE2 and Go to Python's ``re``.

The translation rejects constructs that RE2 lacks (look-around, back references, possessive quantifiers), with the
error of Go. It rewrites constructs that have another meaning in Python. It does not support classes of Unicode
properties (``\\pL``), and only 100 levels of groups: Go permits 1000, but the parser of Python is recursive.

Source: https://github.com/google/re2/wiki/Syntax; wording of Go's ``regexp/syntax``.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache

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
_REPEAT = re.compile(r"\{([0-9]+)(?:,([0-9]*))?\}")
_MAX_REPEATS = 1000
_MAX_DEPTH = 100
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>[0-9A-Za-z_]+)>|(?P<flags>[imsU]*(?:-[imsU]+)?)(?P<end>[:)]))")
_DIGITS = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|(0[0-7]{0,2}|[1-7][0-7]{1,2}))")
_SIMPLE_ESCAPES = frozenset("bBdDwWAz")
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_PERL_CLASSES = {r"\d": r"\d", r"\D": r"\D", r"\w": r"\w", r"\W": r"\W", r"\s": r"\t\n\f\r ", r"\S": r"\S\v"}


class PatternError(Exception):
    """Go rejects the pattern, with this error message."""


class UnsupportedPattern(Exception):
    """Go may accept the pattern, but it cannot be translated. The message names the construct."""


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str, *, syntax_only: bool = False) -> re.Pattern[str]:
    """Compile a pattern of RE2.

    Args:
        pattern: regular expression in the syntax of RE2.
        syntax_only: only check the syntax, which is fast for large classes too. Do not match with the result.

    Raises:
        PatternError: the pattern is invalid in RE2.
        UnsupportedPattern: the pattern uses a class or a flag that cannot be translated.
    """
    translated = _Translator(pattern, syntax_only).translate()
    try:
        return re.compile(translated, re.ASCII)
    except re.error as error:
        raise PatternError(f"error parsing regexp: {error.msg}: `{pattern}`") from None


class _Translator:
    """Translates a pattern in one pass."""

    def __init__(self, pattern: str, syntax_only: bool) -> None:
        self._text, self._syntax_only = pattern, syntax_only
        self._position = 0
        self._output: list[str] = []
        # Per open group: number of Python groups opened by inline flags, which end with the group.
        self._open_groups: list[int] = []
        self._unclosed_groups = 0
        self._multiline = [False]
        # Highest product of nested repeat counts: per open group, and of the preceding item.
        self._repeats, self._last_repeats = [1], 1
        # True if a quantifier may follow, and the text of the preceding quantifier, if any.
        self._repeatable, self._last_quantifier = False, ""

    def translate(self) -> str:
        while self._position < len(self._text):
            self._translate_token()
        if self._open_groups:
            raise self._error("missing closing )", self._text)
        return "".join(self._output) + ")" * self._unclosed_groups

    def _error(self, problem: str, excerpt: str) -> PatternError:
        return PatternError(f"error parsing regexp: {problem}: `{excerpt}`")

    def _emit(self, text: str, length: int, *, repeatable: bool = True, repeats: int = 1) -> None:
        self._output.append(text)
        self._position += length
        self._repeatable, self._last_quantifier, self._last_repeats = repeatable, "", repeats
        self._repeats[-1] = max(self._repeats[-1], repeats)

    def _translate_token(self) -> None:
        char = self._text[self._position]
        match char:
            case "(":
                if len(self._open_groups) + sum(self._open_groups) + self._unclosed_groups >= _MAX_DEPTH:
                    raise self._error("expression nests too deeply", self._text)
                self._group()
            case ")":
                if not self._open_groups:
                    raise self._error("unexpected )", self._text)
                self._multiline.pop()
                self._emit(")" * (self._open_groups.pop() + 1), 1, repeats=self._repeats.pop())
            case "[":
                self._class()
            case "\\":
                self._escape()
            case "*" | "+" | "?":
                self._quantifier(char)
            case "{" if found := _REPEAT.match(self._text, self._position):
                self._counted_quantifier(found)
            case "$":
                self._emit("$" if self._multiline[-1] else r"\Z", 1)
            case "|":
                self._emit("|", 1, repeatable=False)
            case _:
                self._emit(f"\\{char}" if char in "{}" else char, 1)

    def _group(self) -> None:
        found = _GROUP.match(self._text, self._position)
        if not self._text.startswith("(?", self._position) or (found and found["name"]):
            # Names are unused here, and Go permits duplicate names.
            self._open_group("(", len(found[0]) if found else 1, multiline=self._multiline[-1])
            return
        if found is None:
            rest = self._text[self._position :]
            if rest.startswith(("(?<", "(?P<")):
                raise self._error("invalid named capture", rest)
            raise self._error("invalid or unsupported Perl syntax", rest[:3])
        flags = found["flags"]
        if "U" in flags:
            raise UnsupportedPattern(f"the flag U in the pattern {self._text!r}")
        on, _, off = flags.partition("-")
        multiline = (self._multiline[-1] or "m" in on) and "m" not in off
        flags = "" if self._syntax_only else flags
        if found["end"] == ":":
            self._open_group(f"(?{flags}:", len(found[0]), multiline=multiline)
        else:
            self._emit(f"(?{flags}:", len(found[0]), repeatable=False)
            self._multiline[-1] = multiline
            if self._open_groups:
                self._open_groups[-1] += 1
            else:
                self._unclosed_groups += 1

    def _open_group(self, text: str, length: int, *, multiline: bool) -> None:
        self._emit(text, length, repeatable=False)
        self._open_groups.append(0)
        self._multiline.append(multiline)
        self._repeats.append(1)

    def _counted_quantifier(self, found: re.Match[str]) -> None:
        # int() rejects thousands of digits.
        minimum, maximum = int(found[1][:5]), int((found[2] or found[1])[:5])
        if max(minimum, maximum) > _MAX_REPEATS or maximum < minimum:
            raise self._error("invalid repeat count", found[0])
        self._quantifier(found[0], max(maximum, 1))

    def _quantifier(self, text: str, count: int = 1) -> None:
        if not self._repeatable:
            if self._last_quantifier:
                raise self._error("invalid nested repetition operator", self._last_quantifier + text)
            raise self._error("missing argument to repetition operator", text)
        if (repeats := count * self._last_repeats) > _MAX_REPEATS:
            raise self._error("invalid repeat count", text)
        text += "?" * self._text.startswith("?", self._position + len(text))
        self._emit(text, len(text), repeatable=False, repeats=repeats)
        self._last_quantifier = text

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
        digits = _DIGITS.match(self._text, at)
        if digits and (code := int(digits[1] or digits[2] or digits[3], 8 if digits[3] else 16)) <= sys.maxunicode:
            return re.escape(chr(code)), len(digits[0])
        if char in _CONTROLS:
            return re.escape(_CONTROLS[char]), 2
        if char not in _SIMPLE_ESCAPES and (char.isalnum() or not char.isascii()):
            raise self._error("invalid escape sequence", f"\\{char}")
        return f"\\{char}", 2

    def _class(self) -> None:
        start = self._position
        at = start + 1 + self._text.startswith("^", start + 1)
        out = [self._text[start:at]]
        while not self._text.startswith("]", at) or len(out) == 1:
            if at >= len(self._text):
                raise self._error("missing closing ]", self._text[start:])
            text, length = self._class_item(at)
            out.append(text)
            at += length
        self._emit("[a]" if self._syntax_only else "".join(out) + "]", at + 1 - start)

    def _class_item(self, at: int) -> tuple[str, int]:
        if found := re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL).match(self._text, at):
            if found[2] not in _POSIX:
                raise self._error("invalid character class range", found[0])
            if found[1]:
                raise UnsupportedPattern(f"the negated class in the pattern {self._text!r}")
            return _POSIX[found[2]], len(found[0])
        low, length = self._class_char(at)
        if low in _PERL_CLASSES or not re.compile(r"-[^]]", re.DOTALL).match(self._text, at + length):
            return _PERL_CLASSES.get(low, re.escape(low)), length
        high, high_length = self._class_char(at + length + 1)
        length += 1 + high_length
        if len(high) > 1 or high < low:
            raise self._error("invalid character class range", self._text[at : at + length])
        return f"{re.escape(low)}-{re.escape(high)}", length

    def _class_char(self, at: int) -> tuple[str, int]:
        escape = self._text[at : at + 2]
        if escape in _PERL_CLASSES:
            return escape, 2
        text, length = self._translate_escape(at) if escape[0] == "\\" and escape[1:] else (escape[0], 1)
        if len(text) > 1 and text[1].isalnum():  # such as \b
            raise self._error("invalid escape sequence", escape)
        return text[-1], length
