"""Label and field selectors, evaluated on this side of the wire.

A cache asks them whether an object that we have just written still belongs to an informer; the API server in memory
answers lists and watches by them. Source: "Labels and Selectors", "Field Selectors"; ``labels.Parse`` and
``fields.ParseSelector`` in ``k8s.io/apimachinery``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Any, cast

from msgspec import Struct

Labels = Mapping[str, str]
LabelMatcher = Callable[[Labels], bool]

_KEY = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9.]*[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
_EQUALITY = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_MEMBERSHIP = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EXISTENCE = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_NUMERIC = re.compile(rf"\s*({_KEY})\s*(>|<)\s*(-?\d+)\s*")
_FIELD = re.compile(r"\s*([^=!\s]+?)\s*(==|=|!=)\s*(.*?)\s*", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\,=])")

# Where a label of a field is not its path, and what Go shows for one that the wire leaves out.
_FIELD_ALIASES = {"status.successful": "status.succeeded"}
_ZERO_VALUES = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}


class SelectorError(ValueError):
    """Not a selector; the message is the API server's."""


@lru_cache(maxsize=256)
def label_matcher(selector: str) -> LabelMatcher:
    """Whether labels fit ``selector``, equality or set based: ``a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1``.

    An empty one fits all. ``!=`` and ``notin`` fit too where there is no such label.

    Raises:
        SelectorError: it is malformed.
    """
    if not selector.strip():
        return lambda labels: True
    requirements = tuple(_requirement(part) for part in re.split(r",(?![^(]*\))", selector))
    if len(requirements) == 1:
        return requirements[0]
    return lambda labels: all(fits(labels) for fits in requirements)


def _requirement(text: str) -> LabelMatcher:
    if found := _EQUALITY.fullmatch(text):
        key, operator, value = found.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _MEMBERSHIP.fullmatch(text):
        key, operator, listed = found.groups()
        values = frozenset(v.strip() for v in listed.split(","))
        if operator == "notin":
            return lambda labels: labels.get(key) not in values
        return lambda labels: labels.get(key) in values
    if found := _NUMERIC.fullmatch(text):
        return _comparison(*found.groups())
    if found := _EXISTENCE.fullmatch(text):
        absent, key = found.groups()
        return lambda labels: (key in labels) != bool(absent)
    raise SelectorError(f"unable to parse requirement: found '{text.strip()}', expected: identifier")


def _comparison(key: str, operator: str, bound: str) -> LabelMatcher:
    def matches(labels: Labels) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > int(bound) if operator == ">" else value < int(bound)

    return matches


class FieldRequirement(Struct, frozen=True):
    """One term of a field selector: ``field`` has ``value``, or has another where not ``equal``."""

    field: str
    value: str
    equal: bool

    def matches(self, content: Mapping[str, Any]) -> bool:
        """Whether an object, in wire form, meets it."""
        return (_field_value(content, self.field) == self.value) == self.equal


@lru_cache(maxsize=256)
def parse_field_selector(selector: str) -> tuple[FieldRequirement, ...]:
    """The terms of ``selector``, such as ``metadata.name=x,status.phase!=Running``; none for an empty one.

    Raises:
        SelectorError: it is malformed.
    """
    if not selector.strip():
        return ()
    return tuple(_field_requirement(part) for part in re.split(r"(?<!\\),", selector))


def _field_requirement(text: str) -> FieldRequirement:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise SelectorError(f"invalid selector: '{text}'; can't understand '{text}'")
    field, operator, value = found.groups()
    return FieldRequirement(field, _ESCAPED.sub(r"\1", value), operator != "!=")


def matches_fields(requirements: Iterable[FieldRequirement], content: Mapping[str, Any]) -> bool:
    """Whether an object, in wire form, meets all ``requirements``."""
    return all(requirement.matches(content) for requirement in requirements)


def _field_value(content: Mapping[str, Any], field: str) -> str:
    value: Any = content
    for name in _FIELD_ALIASES.get(field, field).split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else _ZERO_VALUES.get(field, "")
