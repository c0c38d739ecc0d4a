"""Webhooks of a bundle: OLM creates their Service, certificate and configurations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from steersman.errors import ConfigurationError
from steersman_cli.packaging.operator_manifests import OperatorManifests
from steersman_manifests.manifest_files import Manifest

OLM_CERTIFICATE_PATH = "/tmp/k8s-webhook-server/serving-certs"  # noqa: S108
"""Mount path of the certificate that OLM renews, with ``tls.crt`` and ``tls.key``."""

_WEBHOOK_TYPES = {
    "MutatingWebhookConfiguration": "MutatingAdmissionWebhook",
    "ValidatingWebhookConfiguration": "ValidatingAdmissionWebhook",
}
_COPIED_FIELDS = (
    "admissionReviewVersions",
    "failurePolicy",
    "matchPolicy",
    "objectSelector",
    "reinvocationPolicy",
    "rules",
    "sideEffects",
    "timeoutSeconds",
)
_MAX_LABEL_LENGTH = 63
_UNSUPPORTED_FIELDS = ("namespaceSelector", "matchConditions")


def webhook_definitions(installation: OperatorManifests) -> list[dict[str, Any]]:
    """Build ``spec.webhookdefinitions`` of the ClusterServiceVersion."""
    deployment = installation.deployment["metadata"]["name"]
    admission = (
        {
            "type": _WEBHOOK_TYPES[configuration["kind"]],
            "generateName": _generate_name(webhook["name"]),
            "deploymentName": deployment,
            **_service_target(installation, webhook["clientConfig"]),
            **{key: webhook[key] for key in _COPIED_FIELDS if key in webhook},
        }
        for configuration in installation.webhooks
        for webhook in configuration["webhooks"]
    )
    conversions = (
        {
            "type": "ConversionWebhook",
            "generateName": f"convert.{definition['metadata']['name']}",
            "deploymentName": deployment,
            **_service_target(installation, definition["spec"]["conversion"]["webhook"]["clientConfig"]),
            "admissionReviewVersions": definition["spec"]["conversion"]["webhook"]["conversionReviewVersions"],
            "sideEffects": "None",
            "conversionCRDs": [definition["metadata"]["name"]],
        }
        for definition in crds_with_conversion_webhook(installation)
    )
    return [*admission, *conversions]


def crds_with_conversion_webhook(installation: OperatorManifests) -> list[Manifest]:
    """Return the CRDs with a conversion webhook."""
    return [d for d in installation.crds if d["spec"].get("conversion", {}).get("strategy") == "Webhook"]


def unsupported_fields(installation: OperatorManifests) -> Iterator[str]:
    """Yield the fields of webhooks that OLM does not support."""
    for configuration in installation.webhooks:
        for webhook in configuration["webhooks"]:
            yield from (
                f"the {key} of the webhook {webhook['name']}" for key in _UNSUPPORTED_FIELDS if key in webhook
            )


def webhook_service_names(installation: OperatorManifests) -> set[str]:
    """Return the names of the webhooks' Services."""
    clients = [w["clientConfig"] for c in installation.webhooks for w in c["webhooks"]]
    clients += [
        d["spec"]["conversion"]["webhook"]["clientConfig"] for d in crds_with_conversion_webhook(installation)
    ]
    return {c["service"]["name"] for c in clients if "service" in c}


def _generate_name(name: str) -> str:
    """Shorten a webhook's name to a label value for OLM."""
    if len(name) <= _MAX_LABEL_LENGTH:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _MAX_LABEL_LENGTH - 9].rstrip('.-')}-{digest}"


def _service_target(installation: OperatorManifests, client: dict[str, Any]) -> dict[str, Any]:
    """Return ports and path of a webhook.

    Raises:
        ConfigurationError: the webhook has a URL instead of a Service.
    """
    if "service" not in client:
        raise ConfigurationError(
            f"{client['url']}: OLM supports only webhooks behind a Service: set clientConfig.service instead of url"
        )
    service_ref = client["service"]
    port: int = service_ref.get("port", 443)
    target: int | str = port
    for service in installation.of_kind("Service"):
        if service["metadata"]["name"] == service_ref["name"]:
            target = next((p.get("targetPort", port) for p in service["spec"]["ports"] if p["port"] == port), port)
    found = {"containerPort": port, "targetPort": target}
    return {**found, "webhookPath": service_ref["path"]} if "path" in service_ref else found
