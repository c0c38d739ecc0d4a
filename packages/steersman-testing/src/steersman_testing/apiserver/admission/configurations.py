"""Webhook configurations: what the server fills in, and what it refuses.

A webhook that speaks no ``v1``, or whose match conditions ask the authorizer, is refused with 501: it could not be
asked here. Source: ``admissionregistration.k8s.io/v1``; ``pkg/apis/admissionregistration/validation`` of Kubernetes
1.36.
"""

from __future__ import annotations

from collections.abc import Iterator

from steersman_testing.apiserver import failures
from steersman_testing.apiserver.admission.match_conditions import condition_problem
from steersman_testing.apiserver.definitions.conversions import service_errors, url_errors
from steersman_testing.apiserver.definitions.schemas import not_supported
from steersman_testing.apiserver.failures import FieldError, invalid_value, required
from steersman_testing.apiserver.kinds import Kind
from steersman_testing.apiserver.values import JsonObject, is_map, list_at, map_at

_GROUP = "admissionregistration.k8s.io"
_KINDS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_LONGEST_TIMEOUT = 30
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_CHOICES = {
    "failurePolicy": ("Fail", "Ignore"),
    "matchPolicy": ("Equivalent", "Exact"),
    "reinvocationPolicy": ("IfNeeded", "Never"),
}
_LISTS = {"apiGroups": "API groups", "apiVersions": "API versions"}


def complete_configuration(kind: Kind, obj: JsonObject) -> None:
    """Fills in the defaults, if ``obj`` is a webhook configuration."""
    if not _is_configuration(kind):
        return
    for webhook in list_at(obj, "webhooks"):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if kind.resource.kind == _KINDS[0]:
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in list_at(webhook, "rules"):
            rule.setdefault("scope", "*")
        service = map_at(webhook, "clientConfig").get("service")
        if is_map(service):
            service.setdefault("port", 443)


def check_configuration(kind: Kind, obj: JsonObject) -> None:
    """Refuses a malformed webhook configuration.

    Raises:
        ApiError: 422; or 501, a webhook cannot be asked here.
    """
    if not _is_configuration(kind):
        return
    webhooks = list_at(obj, "webhooks")
    errors = [e for n, webhook in enumerate(webhooks) for e in _errors(webhook, f"webhooks[{n}]")]
    names = [w.get("name", "") for w in webhooks]
    for position, name in enumerate(names):
        if name in names[:position]:
            path = f"webhooks[{position}].name"
            errors.append(FieldError(path, "FieldValueDuplicate", f"Duplicate value: {failures.shown(name)}"))
    if errors:
        raise failures.invalid(kind.resource, obj["metadata"].get("name", ""), errors)
    for webhook in webhooks:
        if "v1" not in webhook["admissionReviewVersions"]:
            raise failures.refused_here(f'the webhook "{webhook["name"]}" knows no AdmissionReview of version v1')


def _is_configuration(kind: Kind) -> bool:
    return kind.resource.group == _GROUP and kind.resource.kind in _KINDS


def _errors(webhook: JsonObject, path: str) -> Iterator[FieldError]:
    if not webhook.get("admissionReviewVersions"):
        yield required(f"{path}.admissionReviewVersions", "must specify one of v1, v1beta1")
    name = webhook.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif len(name.split(".")) < 3:
        yield invalid_value(f"{path}.name", name, "should be a domain with at least three segments separated by dots")
    for position, rule in enumerate(list_at(webhook, "rules")):
        yield from _rule_errors(rule, f"{path}.rules[{position}]")
    for field, choices in _CHOICES.items():
        if (chosen := webhook.get(field)) is not None and chosen not in choices:
            yield not_supported(f"{path}.{field}", chosen, choices)
    effects = webhook.get("sideEffects")
    if not effects:
        yield required(f"{path}.sideEffects", "must specify one of None, NoneOnDryRun")
    elif effects not in ("None", "NoneOnDryRun"):
        yield not_supported(f"{path}.sideEffects", effects, ("None", "NoneOnDryRun"))
    seconds = webhook.get("timeoutSeconds", 10)
    if not 1 <= seconds <= _LONGEST_TIMEOUT:
        yield invalid_value(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    yield from _client_errors(map_at(webhook, "clientConfig"), f"{path}.clientConfig")
    yield from _condition_errors(list_at(webhook, "matchConditions"), f"{path}.matchConditions")


def _client_errors(config: JsonObject, path: str) -> Iterator[FieldError]:
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from url_errors(url, f"{path}.url")
    elif service is not None:
        # In this order, as ``service_errors`` says.
        names: tuple[str, str] = service.get("name", ""), service.get("namespace", "")
        yield from service_errors(*names, service, f"{path}.service")


def _rule_errors(rule: JsonObject, path: str) -> Iterator[FieldError]:
    operations = list_at(rule, "operations")
    if not operations:
        yield required(f"{path}.operations")
    elif len(operations) > 1 and "*" in operations:
        detail = "if '*' is present, must not specify other operations"
        yield invalid_value(f"{path}.operations", operations, detail)
    for position, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(f"{path}.operations[{position}]", operation, _OPERATIONS)
    for field, called in _LISTS.items():
        values = list_at(rule, field)
        if not values:
            yield required(f"{path}.{field}")
        elif len(values) > 1 and "*" in values:
            yield invalid_value(f"{path}.{field}", values, f"if '*' is present, must not specify other {called}")
    if not list_at(rule, "resources"):
        yield required(f"{path}.resources")
    if rule.get("scope", "*") not in ("*", "Cluster", "Namespaced"):
        yield not_supported(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced"))


def _condition_errors(conditions: list[JsonObject], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for position, condition in enumerate(conditions):
        place, name, expression = f"{path}[{position}]", condition.get("name", ""), condition.get("expression", "")
        if not expression.strip():
            yield required(f"{place}.expression")
        elif problem := condition_problem(expression):
            yield invalid_value(f"{place}.expression", expression, problem)
        if not name:
            yield required(f"{place}.name")
        elif name in seen:
            yield FieldError(f"{place}.name", "FieldValueDuplicate", f"Duplicate value: {failures.shown(name)}")
        seen.add(name)
