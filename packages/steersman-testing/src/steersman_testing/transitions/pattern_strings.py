"""Strings that match a pattern, by ``hypothesis``."""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from typing import Any

from steersman_cel.patterns import compile_pattern

_MAX_EXAMPLES = 40
_RESULT_COUNT = 4


@cache
def strings_matching(pattern: str, seed: int) -> tuple[str, ...]:
    """Four strings in which ``pattern`` is found, the shortest first; the same ones for the same seed.

    There may be fewer, and none where it asks for more than ASCII's letters, signs and spaces.

    Args:
        pattern: of a schema that the API server takes.
        seed: of the randomness.

    Raises:
        ModuleNotFoundError: ``hypothesis`` is not installed.
    """
    regex = compile_pattern(pattern)
    found = dict.fromkeys(s for s in _draw_strings(regex, seed) if regex.search(s))
    return tuple(sorted(found, key=lambda s: (len(s), s))[:_RESULT_COUNT])


def _draw_strings(regex: re.Pattern[str], seed: int) -> list[str]:
    hypothesis, strategies = _import_hypothesis()
    drawn: list[str] = []

    def draw(text: str) -> None:
        drawn.append(text)

    # Visible ASCII alone, if it does: what a person would type; then spaces as well, as between a schedule's fields.
    for first, fullmatch in ((33, True), (33, False), (32, True), (32, False)):
        alphabet = strategies.characters(min_codepoint=first, max_codepoint=126)
        strategy = strategies.from_regex(regex, fullmatch=fullmatch, alphabet=alphabet)
        test = hypothesis.given(strategy)(draw)
        settings = hypothesis.settings(
            max_examples=_MAX_EXAMPLES,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        try:
            settings(hypothesis.seed(seed)(test))()
        except (hypothesis.errors.Unsatisfiable, hypothesis.errors.InvalidArgument):
            # The pattern asks for more than ASCII: the schema's other values must do.
            continue
        if drawn:
            break
    return drawn


def _import_hypothesis() -> tuple[Any, Any]:
    try:
        return import_module("hypothesis"), import_module("hypothesis.strategies")
    except ModuleNotFoundError as error:
        text = "strings for a pattern need hypothesis: install steersman[testing], or give examples for the field"
        raise ModuleNotFoundError(text) from error
