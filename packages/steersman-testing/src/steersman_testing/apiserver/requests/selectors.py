"""Label and field selectors, with the error messages of the API server."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from steersman.meta import selectors
from steersman_testing.apiserver import failures
from steersman_testing.apiserver.values import JsonObject, get_array, get_field, get_object, is_map

ObjectMatcher = Callable[[JsonObject], bool]


def label_matcher(text: str) -> ObjectMatcher | None:
    """Return a predicate for a label selector.

    None if the selector is empty.

    Raises:
        ApiError: 400, the selector is malformed.
    """
    if not text.strip():
        return None
    try:
        matches = selectors.label_matcher(text)
    except selectors.SelectorError as error:
        raise failures.bad_request(str(error)) from None
    return lambda obj: matches(_labels(obj))


def _labels(obj: JsonObject) -> dict[str, str]:
    found = get_field(get_field(obj, "metadata"), "labels")
    return found if is_map(found) else {}


def field_matcher(text: str, supported: Iterable[str], *, custom: bool) -> ObjectMatcher | None:
    """Return a predicate for a field selector.

    None if the selector is empty.

    Raises:
        ApiError: 400, the selector is malformed, or the kind does not support a field.
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
        return lambda obj: selectors.matches_fields(requirements, {**obj, "source": _event_source(obj)})
    return lambda obj: selectors.matches_fields(requirements, obj)


def _event_source(event: JsonObject) -> str:
    return get_object(event, "source").get("component") or event.get("reportingComponent") or ""


def label_selector_text(selector: JsonObject) -> str:
    """Return a ``metav1.LabelSelector`` as a selector string."""
    terms = [(k, f"{k}={v}") for k, v in get_object(selector, "matchLabels").items()]
    for expression in get_array(selector, "matchExpressions"):
        key, values = expression["key"], ",".join(sorted(expression.get("values") or ()))
        texts = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}
        terms.append((key, texts.get(expression["operator"], f"!{key}")))
    return ",".join(text for _, text in sorted(terms, key=lambda t: t[0]))
