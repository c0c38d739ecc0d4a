"""Webhook configurations from declarations. Source: ``admissionregistration.k8s.io/v1``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from steersman.meta import ApiResource
from steersman.webhook.conversion import CONVERT
from steersman.webhook.declaration import MUTATE, VALIDATE, Webhook
from steersman.webhook.serving import WebhookServing

if TYPE_CHECKING:
    from steersman.crd import ConversionWebhook

_API_VERSION = "admissionregistration.k8s.io/v1"


def webhook_configurations(webhooks: Iterable[Webhook[Any]], serving: WebhookServing) -> list[dict[str, Any]]:
    """The MutatingWebhookConfiguration and the ValidatingWebhookConfiguration, each if there is something in it."""
    webhooks = tuple(webhooks)
    mutating = [_entry(w, MUTATE, serving) for w in webhooks if w.defaulters]
    validating = [_entry(w, VALIDATE, serving) for w in webhooks if w.validation_operations]
    return [
        {
            "apiVersion": _API_VERSION,
            "kind": kind,
            "metadata": {"name": serving.configuration_name},
            "webhooks": entries,
        }
        for kind, entries in (
            ("MutatingWebhookConfiguration", mutating),
            ("ValidatingWebhookConfiguration", validating),
        )
        if entries
    ]


def conversion_webhook(serving: WebhookServing) -> ConversionWebhook:
    """Who converts the versions of a kind that has a ``Conversion``."""
    from steersman.crd import ConversionWebhook

    if serving.url:
        return ConversionWebhook(url=f"{serving.url.rstrip('/')}{CONVERT}")
    return ConversionWebhook(service=(serving.namespace, serving.service), port=serving.port, path=CONVERT)


def _entry(webhook: Webhook[Any], verb: str, serving: WebhookServing) -> dict[str, Any]:
    options, resource = webhook.options, webhook.resource
    operations = options.operations if verb == MUTATE else webhook.validation_operations
    plural = f"{resource.plural}/{options.subresource}" if options.subresource else resource.plural
    rule: dict[str, Any] = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [plural],
        "operations": list(operations),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    entry: dict[str, Any] = {
        "name": _name(webhook, verb),
        "clientConfig": serving.client_config(f"/{verb}-{webhook.slug}"),
        "rules": [rule],
        "admissionReviewVersions": ["v1"],
        "sideEffects": options.side_effects,
        "failurePolicy": options.failure_policy,
        "matchPolicy": options.match_policy,
        "timeoutSeconds": options.timeout_seconds,
    }
    if options.namespace_selector:
        entry["namespaceSelector"] = dict(options.namespace_selector)
    if options.object_selector:
        entry["objectSelector"] = dict(options.object_selector)
    if conditions := {**options.match_conditions, **_reserved(resource, serving)}:
        entry["matchConditions"] = [{"name": n, "expression": e} for n, e in conditions.items()]
    if verb == MUTATE:
        entry["reinvocationPolicy"] = options.reinvocation_policy
    return entry


def _reserved(resource: ApiResource, serving: WebhookServing) -> dict[str, str]:
    """A webhook about Secrets is not asked about the one without which it cannot answer."""
    if (resource.group, resource.plural) != ("", "secrets") or serving.cert_path:
        return {}
    ours = f"request.namespace == '{serving.namespace}' && request.name == '{serving.secret_name}'"
    return {"not-its-certificate": f"!({ours})"}


def _name(webhook: Webhook[Any], verb: str) -> str:
    """Fully qualified, as the API demands: ``validate.shop.v1.example.com``."""
    resource, options = webhook.resource, webhook.options
    group = resource.group if "." in resource.group else f"{resource.group or 'core'}.k8s.io"
    parts = (verb, options.name, options.subresource, resource.kind.lower(), resource.version, group)
    return ".".join(p for p in parts if p)
