"""Label and field selectors, evaluated in the client.

The cache uses them to check if a written object still belongs to an informer. The in-memory API server uses them for
lists and watches. Source: "Labels and Selectors", "Field Selectors"; ``labels.Parse`` and
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

# Field labels that differ from the field path, and the values of fields that the JSON omits.
_FIELD_ALIASES = {"status.successful": "status.succeeded"}
_ZERO_VALUES = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
    "status.successful": "0",
}


class SelectorError(ValueError):
    """The selector is invalid. The message is that of the API server."""


@lru_cache(maxsize=256)
def label_matcher(selector: str) -> LabelMatcher:
    """Return a function that matches labels against a label selector.

    An empty selector matches all labels. ``!=`` and ``notin`` also match if the label is missing.

    Args:
        selector: terms such as ``a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1``.

    Raises:
        SelectorError: the selector is malformed.
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
    """One term of a field selector.

    It requires ``field`` to equal ``value``, or to differ if ``equal`` is False.
    """

    field: str
    value: str
    equal: bool

    def matches(self, content: Mapping[str, Any]) -> bool:
        """Return True if an object in wire form meets the requirement."""
        return (_field_value(content, self.field) == self.value) == self.equal


@lru_cache(maxsize=256)
def parse_field_selector(selector: str) -> tuple[FieldRequirement, ...]:
    """Parse a field selector.

    Args:
        selector: terms such as ``metadata.name=x,status.phase!=Running``. May be empty.

    Raises:
        SelectorError: the selector is malformed.
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
    """Return True if an object in wire form meets all ``requirements``."""
    return all(requirement.matches(content) for requirement in requirements)


def _field_value(content: Mapping[str, Any], field: str) -> str:
    value: Any = content
    for name in _FIELD_ALIASES.get(field, field).split("."):
        value = cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int) else _ZERO_VALUES.get(field, "")
