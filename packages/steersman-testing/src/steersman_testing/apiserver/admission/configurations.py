"""Defaults and validation of webhook configurations.

Two features are rejected with 501: webhooks without AdmissionReview ``v1``, and match conditions with the authorizer.
Source: ``admissionregistration.k8s.io/v1``; ``pkg/apis/admissionregistration/validation`` of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.admission.match_conditions import condition_error
from steersman_testing.apiserver.definitions.conversion_validation import service_errors, url_errors
from steersman_testing.apiserver.failures import InvalidFieldError, invalid_value, required_value, unsupported_value
from steersman_testing.apiserver.kinds import ServedKind
from steersman_testing.apiserver.values import JsonObject, get_array, get_object, is_map

_GROUP = "admissionregistration.k8s.io"
_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_MAX_TIMEOUT_SECONDS = 30
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_ENUM_VALUES = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_LIST_NOUNS = {"apiGroups": "API groups", "apiVersions": "API versions"}


def set_configuration_defaults(kind: ServedKind, obj: JsonObject) -> None:
    """Set the defaults of a webhook configuration.

    Other kinds are ignored.
    """
    if not _is_configuration(kind):
        return
    for webhook in get_array(obj, "webhooks"):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if kind.resource.kind == _KINDS[0]:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in get_array(webhook, "rules"):
            rule.setdefault("scope", "*")
        service = get_object(webhook, "clientConfig").get("service")
        if is_map(service):
            service.setdefault("port", 443)


def validate_configuration(kind: ServedKind, obj: JsonObject) -> None:
    """Validate a webhook configuration.

    Raises:
        ApiError: 422, it is invalid; 501, it has a feature that is not implemented.
    """
    if not _is_configuration(kind):
        return
    webhooks = get_array(obj, "webhooks")
    errors = [e for n, webhook in enumerate(webhooks) for e in _errors(webhook, f"webhooks[{n}]")]
    names = [w.get("name", "") for w in webhooks]
    for position, name in enumerate(names):
        if name in names[:position]:
            path = f"webhooks[{position}].name"
            errors.append(
                InvalidFieldError(path, "FieldValueDuplicate", f"Duplicate value: {failures.format_value(name)}")
            )
    if errors:
        raise failures.invalid(kind.resource, obj["metadata"].get("name", ""), errors)
    for webhook in webhooks:
        if "v1" not in webhook["admissionReviewVersions"]:
            raise failures.not_implemented(f'the webhook "{webhook["name"]}" without AdmissionReview v1')


def _is_configuration(kind: ServedKind) -> bool:
    return kind.resource.group == _GROUP and kind.resource.kind in _KINDS


def _errors(webhook: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    if not webhook.get("admissionReviewVersions"):
        yield required_value(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
    name = webhook.get("name", "")
    if not name:
        yield required_value(f"{path}.name")
    elif len(name.split(".")) < 3:
        yield invalid_value(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    for position, rule in enumerate(get_array(webhook, "rules")):
        yield from _rule_errors(rule, f"{path}.rules[{position}]")
    for field, choices in _ENUM_VALUES.items():
        if (chosen := webhook.get(field)) is not None and chosen not in choices:
            yield unsupported_value(f"{path}.{field}", chosen, choices)
    effects = webhook.get("sideEffects")
    if not effects:
        yield required_value(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        yield unsupported_value(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _MAX_TIMEOUT_SECONDS:
        yield invalid_value(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    yield from _client_errors(get_object(webhook, "clientConfig"), f"{path}.clientConfig")
    yield from _condition_errors(get_array(webhook, "matchConditions"), f"{path}.matchConditions")


def _client_errors(config: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required_value(path, "exactly one of url or service is required")
    elif url is not None:
        yield from url_errors(url, f"{path}.url")
    elif service is not None:
        # ``service_errors`` swaps both names.
        names: tuple[str, str] = service.get("name", ""), service.get("namespace", "")
        yield from service_errors(*names, service, f"{path}.service")


def _rule_errors(rule: JsonObject, path: str) -> Iterator[InvalidFieldError]:
    operations = get_array(rule, "operations")
    if not operations:
        yield required_value(f"{path}.operations")
    elif len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        yield invalid_value(f"{path}.operations", operations, detail)
    for position, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield unsupported_value(f"{path}.operations[{position}]", operation, _OPERATIONS)
    for field, noun in _LIST_NOUNS.items():
        values = get_array(rule, field)
        if not values:
            yield required_value(f"{path}.{field}")
        elif len(values) > 1 and "*" in values:
            yield invalid_value(f"{path}.{field}", values, f"if '*' is present, must not specify other {noun}")
    if not get_array(rule, "resources"):
        yield required_value(f"{path}.resources")
    if rule.get("scope", "*") not in ("*", "Cluster", "Namespaced"):
        yield unsupported_value(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _condition_errors(conditions: list[JsonObject], path: str) -> Iterator[InvalidFieldError]:
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        item_path, name, expression = (
            f"{path}[{position}]",
            condition.get("name", ""),
            condition.get("expression", ""),
        )
        if not expression.strip():
            yield required_value(f"{item_path}.expression")
        elif problem := condition_error(expression):
            yield invalid_value(f"{item_path}.expression", expression, problem)
        if not name:
            yield required_value(f"{item_path}.name")
        elif name in seen:
            yield InvalidFieldError(
                f"{item_path}.name", "FieldValueDuplicate", f"Duplicate value: {failures.format_value(name)}"
            )
        seen.add(name)
