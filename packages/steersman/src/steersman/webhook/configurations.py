"""Manifests of webhook configurations.

Source: ``admissionregistration.k8s.io/v1``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from steersman.meta import ApiResource
from steersman.webhook.conversion import CONVERT_PATH
from steersman.webhook.conversion_webhook import ConversionWebhook
from steersman.webhook.declaration import MUTATE_VERB, VALIDATE_VERB, Webhook
from steersman.webhook.server_options import WebhookServerOptions

_API_VERSION = "admissionregistration.k8s.io/v1"


def webhook_configurations(webhooks: Iterable[Webhook[Any]], options: WebhookServerOptions) -> list[dict[str, Any]]:
    """The MutatingWebhookConfiguration and ValidatingWebhookConfiguration, if they have webhooks."""
    webhooks = tuple(webhooks)
    mutating = [_webhook_entry(w, MUTATE_VERB, options) for w in webhooks if w.defaulters]
    validating = [_webhook_entry(w, VALIDATE_VERB, options) for w in webhooks if w.validation_operations]
    return [
        {
            "apiVersion": _API_VERSION,
            "kind": kind,
            "metadata": {"name": options.configuration_name},
            "webhooks": entries,
        }
        for kind, entries in (
            ("MutatingWebhookConfiguration", mutating),
            ("ValidatingWebhookConfiguration", validating),
        )
        if entries
    ]


def conversion_webhook(options: WebhookServerOptions) -> ConversionWebhook:
    """The conversion webhook for ``spec.conversion`` of a CRD."""
    if options.url:
        return ConversionWebhook(url=f"{options.url.rstrip('/')}{CONVERT_PATH}")
    return ConversionWebhook(service=(options.namespace, options.service), port=options.port, path=CONVERT_PATH)


def _webhook_entry(webhook: Webhook[Any], verb: str, serving: WebhookServerOptions) -> dict[str, Any]:
    options, resource = webhook.options, webhook.resource
    operations = options.operations if verb == MUTATE_VERB else webhook.validation_operations
    plural = f"{resource.plural}/{options.subresource}" if options.subresource else resource.plural
    rule: dict[str, Any] = {
        "apiGroups": [resource.group],
        "apiVersions": [resource.version],
        "resources": [plural],
        "operations": list(operations),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
    entry: dict[str, Any] = {
        "name": _qualified_name(webhook, verb),
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
    if conditions := {**options.match_conditions, **_own_secret_exclusion(resource, serving)}:
        entry["matchConditions"] = [{"name": n, "expression": e} for n, e in conditions.items()]
    if verb == MUTATE_VERB:
        entry["reinvocationPolicy"] = options.reinvocation_policy
    return entry


def _own_secret_exclusion(resource: ApiResource, options: WebhookServerOptions) -> dict[str, str]:
    """A match condition that excludes the Secret of the webhook server."""
    if resource.group_resource != ("", "secrets") or options.cert_path:
        return {}
    own_secret = f"request.namespace == '{options.namespace}' && request.name == '{options.secret_name}'"
    return {"not-its-certificate": f"!({own_secret})"}


def _qualified_name(webhook: Webhook[Any], verb: str) -> str:
    """Fully qualified name, such as ``validate.shop.v1.example.com``."""
    resource, options = webhook.resource, webhook.options
    group = resource.group if "." in resource.group else f"{resource.group or 'core'}.k8s.io"
    parts = (verb, options.name, options.subresource, resource.kind.lower(), resource.version, group)
    return ".".join(p for p in parts if p)
