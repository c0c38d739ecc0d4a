"""Label and field selectors of lists and watches: refusals as the API server words them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from steersman.meta import selectors
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject, child, is_map, list_at, map_at

Matcher = Callable[[JsonObject], bool]


def label_matcher(text: str) -> Matcher | None:
    """Whether an object's labels fit the selector ``text``; None for an empty one.

    Raises:
        ApiError: 400, not a selector.
    """
    if not text.strip():
        return None
    try:
        matches = selectors.label_matcher(text)
    except selectors.SelectorError as error:
        raise failures.bad_request(str(error)) from None
    return lambda obj: matches(_labels(obj))


def _labels(obj: JsonObject) -> dict[str, str]:
    found = child(child(obj, "metadata"), "labels")
    return found if is_map(found) else {}


def field_matcher(text: str, supported: Iterable[str], *, custom: bool) -> Matcher | None:
    """Whether an object's fields fit the selector ``text``; None for an empty one.

    Raises:
        ApiError: 400, not a selector, or a field that this kind cannot be selected by.
    """
    try:
        requirements = selectors.parse_field_selector(text)
    except selectors.SelectorError as error:
        raise failures.bad_request(str(error)) from None
    if not requirements:
        return None
    known = {"metadata.name", "metadata.namespace", *supported}
    for requirement in requirements:
        if requirement.field not in known:
            if custom or len(known) > 2:
                raise failures.bad_request(f"field label not supported: {requirement.field}")
            only = '"metadata.name", "metadata.namespace"'
            raise failures.bad_request(f'"{requirement.field}" is not a known field selector: only {only}')
    if not custom and any(requirement.field == "source" for requirement in requirements):
        return lambda obj: selectors.fields_fit(requirements, {**obj, "source": _source(obj)})
    return lambda obj: selectors.fields_fit(requirements, obj)


def _source(event: JsonObject) -> str:
    return map_at(event, "source").get("component") or event.get("reportingComponent") or ""


def selector_text(selector: JsonObject) -> str:
    """A ``metav1.LabelSelector`` as one writes it on a command line."""
    terms = [(k, f"{k}={v}") for k, v in map_at(selector, "matchLabels").items()]
    for expression in list_at(selector, "matchExpressions"):
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append((key, forms.get(expression["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(terms, key=lambda t: t[0]))
