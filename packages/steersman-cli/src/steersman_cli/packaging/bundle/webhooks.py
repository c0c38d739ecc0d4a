"""Webhooks as OLM installs them, which makes their Service, their certificate and their configurations itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from steersman.errors import ConfigurationError
from steersman.meta.manifests import Manifest
from steersman_cli.packaging.installation import Installation

CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108
"""Where OLM mounts ``tls.crt`` and ``tls.key``, and renews them."""

_TYPES = {
    "MutatingWebhookConfiguration": "MutatingAdmissionWebhook",
    "ValidatingWebhookConfiguration": "ValidatingAdmissionWebhook",
}
_KEPT = (
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
)
_LONGEST_LABEL = 63
_LOST = ("namespaceSelector", "matchConditions")


def webhook_definitions(installation: Installation) -> list[dict[str, Any]]:
    """``spec.webhookdefinitions`` of the ClusterServiceVersion."""
    deployment = installation.deployment["metadata"]["name"]
    admission = (
        {
            "type": _TYPES[configuration["kind"]],
            "generateName": _label(webhook["name"]),
            "deploymentName": deployment,
            **_way(installation, webhook["clientConfig"]),
            **{key: webhook[key] for key in _KEPT if key in webhook},
        }
        for configuration in installation.webhooks
        for webhook in configuration["webhooks"]
    )
    conversions = (
        {
            "type": "ConversionWebhook",
            "generateName": f"convert.{definition['metadata']['name']}",
            "deploymentName": deployment,
            **_way(installation, definition["spec"]["conversion"]["webhook"]["clientConfig"]),
            "admissionReviewVersions": definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"],
            "sideEffects": "None",
            "conversionCRDs": [definition["metadata"]["name"]],
        }
        for definition in converted(installation)
    )
    return [*admission, *conversions]


def converted(installation: Installation) -> list[Manifest]:
    """The definitions whose versions a webhook converts."""
    return [d for d in installation.definitions if d["spec"].get("conversion", {}).get("strategy") == "Webhook"]


def lost(installation: Installation) -> Iterator[str]:
    """What OLM cannot be told of the webhooks."""
    for configuration in installation.webhooks:
        for webhook in configuration["webhooks"]:
            yield from (f"the {key} of the webhook {webhook['name']}" for key in _LOST if key in webhook)


def services(installation: Installation) -> set[str]:
    """The names of the Services that stand before webhooks."""
    clients = [w["clientConfig"] for c in installation.webhooks for w in c["webhooks"]]
    clients += [d["spec"]["conversion"]["webhook"]["clientConfig"] for d in converted(installation)]
    return {c["service"]["name"] for c in clients if "service" in c}


def _label(name: str) -> str:
    """``name``, short enough for a label: OLM labels configurations with the names of their webhooks."""
    if len(name) <= _LONGEST_LABEL:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_LABEL - 9].rstrip('.-')}-{digest}"


def _way(installation: Installation, client: dict[str, Any]) -> dict[str, Any]:
    """Port, target port and path to the webhook. Raises ConfigurationError: it is no Service's."""
    if "service" not in client:
        raise ConfigurationError(
            f"{client['url']}: OLM has the operator's own webhooks only: name a Service in clientConfig, not a url"
        )
    called = client["service"]
    port: int = called.get("port", 443)
    target: int | str = port
    for service in installation.of("Service"):
        if service["metadata"]["name"] == called["name"]:
            target = next((p.get("targetPort", port) for p in service["spec"]["ports"] if p["port"] == port), port)
    found = {"containerPort": port, "targetPort": target}
    return {**found, "webhookPath": called["path"]} if "path" in called else found
