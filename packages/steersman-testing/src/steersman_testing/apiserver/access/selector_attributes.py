"""Validation of selectors in access reviews, which RBAC ignores.

Source: ``pkg/apis/authorization/validation``, ``pkg/registry/authorization/util`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman.meta import selectors
from steersman_testing.apiserver.failures import InvalidFieldError, forbidden_field, invalid_value, required_value
from steersman_testing.apiserver.names import key_errors
from steersman_testing.apiserver.values import JsonObject, get_array

_PATH = "spec.resourceAttributes"
_SELECTORS = ("fieldSelector", "labelSelector")
_VALUE_OPERATORS = ("In", "NotIn")
_EXISTENCE_OPERATORS = ("Exists", "DoesNotExist")


def selector_errors(attributes: JsonObject) -> Iterator[InvalidFieldError]:
    """Yield the errors of the selectors of ``resourceAttributes``."""
    for name in _SELECTORS:
        selector, path = attributes.get(name), f"{_PATH}.{name}"
        if selector is None:
            continue
        raw, requirements = selector.get("rawSelector"), get_array(selector, "requirements")
        if raw and requirements:
            yield invalid_value(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not requirements:
            detail = f"when {path} is specified, requirements or rawSelector is required"
            yield required_value(f"{path}.requirements", detail)
        for position, requirement in enumerate(requirements):
            yield from _requirement_errors(requirement, f"{path}.requirements[{position}]", name)


def _requirement_errors(requirement: JsonObject, path: str, name: str) -> Iterator[InvalidFieldError]:
    key, operator, values = requirement.get("key", ""), requirement.get("operator"), requirement.get("values")
    if operator in _VALUE_OPERATORS and not values:
        yield required_value(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    if operator in _EXISTENCE_OPERATORS and values:
        yield forbidden_field(f"{path}.values", "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    if name == "labelSelector":
        yield from key_errors(key, f"{path}.key")
    elif not key:
        yield required_value(f"{path}.key", "must be specified")


def unparsable_selectors(attributes: JsonObject) -> Iterator[str]:
    """Yield the evaluation errors of selectors that cannot be parsed."""
    for name in _SELECTORS:
        selector = attributes.get(name)
        if selector is not None and not _is_parsable(name, selector):
            yield f"{_PATH}.{name} ignored due to parse error"


def _is_parsable(name: str, selector: JsonObject) -> bool:
    parse = selectors.parse_field_selector if name == "fieldSelector" else selectors.label_matcher
    try:
        parse(selector.get("rawSelector") or "")
    except selectors.SelectorError:
        return False
    known = _VALUE_OPERATORS if name == "fieldSelector" else (*_VALUE_OPERATORS, *_EXISTENCE_OPERATORS)
    return all(r.get("operator") in known for r in get_array(selector, "requirements"))
