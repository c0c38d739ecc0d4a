"""Label and field selectors. Source: "Labels and Selectors", "Field Selectors"; ``labels.Parse``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from steersman.testing.apiserver import failures
from steersman.testing.apiserver.values import JsonObject, child, is_map

Labels = dict[str, str]
Matcher = Callable[[JsonObject], bool]

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_MEMBERSHIP = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTENCE = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_NUMERIC = re.compile(rf"\s*({_KEY})\s*(>|<)\s*(-?\d+)\s*")


def label_matcher(text: str) -> Matcher | None:
    """Whether an object's labels fit the selector ``text``; None for an empty one.

    Raises:
        ApiError: 400, not a selector.
    """
    if not text.strip():
        return None
    requirements = [_requirement(part) for part in _split(text)]
    return lambda obj: all(fits(_labels(obj)) for fits in requirements)


def _labels(obj: JsonObject) -> Labels:
    found = child(child(obj, "metadata"), "labels")
    return found if is_map(found) else {}


def _split(text: str) -> Iterable[str]:
    """At the commas outside of parentheses."""
    return re.split(r",(?![^(]*\))", text)


def _requirement(text: str) -> Callable[[Labels], bool]:
    if found := _EQUALITY.fullmatch(text):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _MEMBERSHIP.fullmatch(text):
        key, operator, listed = found.groups()
        values = {v.strip() for v in listed.split(",")}
        if operator == "notin":
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
    if found := _NUMERIC.fullmatch(text):
        return _comparison(*found.groups())
    if found := _EXISTENCE.fullmatch(text):
        absent, key = found.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise failures.bad_request(f"unable to parse requirement: found '{text.strip()}', expected: identifier")


def _comparison(key: str, operator: str, bound: str) -> Callable[[Labels], bool]:
    def fits(labels: Labels) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > int(bound) if operator == ">" else value < int(bound)

    return fits


def field_matcher(text: str, supported: Iterable[str], *, custom: bool) -> Matcher | None:
    """Whether an object's fields fit the selector ``text``; None for an empty one.

    Raises:
        ApiError: 400, not a selector, or a field that this kind cannot be selected by.
    """
    if not text.strip():
        return None
    known = {"metadata.name", "metadata.namespace", *supported}
    requirements: list[tuple[tuple[str, ...], str, bool]] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([^=!\s]+?)\s*(==|=|!=)\s*(.*?)\s*", part)
        if found is None:
            raise failures.bad_request(
                f"invalid selector: '{part}'; can't understand '{part}'",
            )
        name, operator, value = found.groups()
        if name not in known:
            if custom or len(known) > 2:
                raise failures.bad_request(f"field label not supported: {name}")
            only = '"metadata.name", "metadata.namespace"'
            raise failures.bad_request(f'"{name}" is not a known field selector: only {only}')
        requirements.append((tuple(name.split(".")), value, operator != "!="))
    return lambda obj: all((_text_at(obj, path) == value) == wanted for path, value, wanted in requirements)


def _text_at(obj: Any, path: tuple[str, ...]) -> str:
    for name in path:
        obj = child(obj, name)
    if isinstance(obj, bool):
        return str(obj).lower()
    return str(obj) if isinstance(obj, str | int) else ""
