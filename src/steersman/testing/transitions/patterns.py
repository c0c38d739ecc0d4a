"""Strings that match a pattern, by ``hypothesis``."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

_TRIES = 40


@cache
def matching(pattern: str, seed: int, wanted: int = 4) -> tuple[str, ...]:
    """Strings in which ``pattern`` (RE2 syntax) is found, the shortest first; the same ones for the same seed.

    Args:
        pattern: of a schema.
        seed: of the randomness.
        wanted: how many at most; there may be fewer, and none where the pattern is not one of Python's too.

    Raises:
        ModuleNotFoundError: ``hypothesis`` is not installed.
    """
    try:
        compiled = re.compile(pattern.replace(r"\z", r"\Z"))
    except re.error:
        return ()
    found = dict.fromkeys(s for s in _drawn(compiled, seed) if compiled.search(s) and not s.endswith("\n"))
    return tuple(sorted(found, key=lambda s: (len(s), s))[:wanted])


def _drawn(compiled: re.Pattern[str], seed: int) -> list[str]:
    hypothesis, strategies = _library()
    drawn: list[str] = []
    # Visible ASCII alone: what a person would type.
    alphabet = strategies.characters(min_codepoint=33, max_codepoint=126)

    def draw(text: str) -> None:
        drawn.append(text)

    for fullmatch in (True, False):
        strategy = strategies.from_regex(compiled, fullmatch=fullmatch, alphabet=alphabet)
        test = hypothesis.given(strategy)(draw)
        settings = hypothesis.settings(
            max_examples=_TRIES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            settings(hypothesis.seed(seed)(test))()
        except (hypothesis.errors.Unsatisfiable, hypothesis.errors.InvalidArgument):
            # The pattern asks for more than visible ASCII: the schema's other values must do.
            continue
        if drawn:
            break
    return drawn


def _library() -> tuple[Any, Any]:
    try:
        return import_module("hypothesis"), import_module("hypothesis.strategies")
    except ModuleNotFoundError as error:
        text = "strings for a pattern need hypothesis: install steersman[testing], or give examples for the field"
        raise ModuleNotFoundError(text) from error
