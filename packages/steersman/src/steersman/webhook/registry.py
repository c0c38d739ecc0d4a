"""Registry of the webhooks of a manager."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from steersman.controller import Permission
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, Object
from steersman.webhook import metrics
from steersman.webhook.admission import ReviewResponse, admission_handlers
from steersman.webhook.configurations import conversion_webhook, webhook_configurations
from steersman.webhook.conversion import CONVERT_PATH, Conversion, ConversionHandler
from steersman.webhook.conversion_webhook import ConversionWebhook
from steersman.webhook.declaration import Webhook, WebhookOptions
from steersman.webhook.server_options import WebhookServerOptions

T = TypeVar("T", bound=Object)

# An object is 1.5 MiB at most in etcd, and 3 MiB in a request; a review of an update has two.
_MAX_ADMISSION_BYTES = 7 << 20
# A review has as many objects as a page of a list.
_MAX_CONVERSION_BYTES = 64 << 20
_MAX_TOTAL_ADMISSION_BYTES = 32 << 20
_CONVERSION_TIMEOUT_SECONDS = 30.0
# Leaves time for the response to arrive.
_TIMEOUT_MARGIN_RATIO = 0.1
_MAX_TIMEOUT_MARGIN_SECONDS = 0.5
_TIMEOUT_PARAMETER = re.compile(r"(?:^|&)timeout=(\d+)s(?:&|$)")

_ADMISSION = "admissionregistration.k8s.io"
MUTATING_CONFIGURATION = ApiResource(
    _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING_CONFIGURATION = ApiResource(
    _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
)
CUSTOM_RESOURCE_DEFINITION = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


class Webhooks:
    """The webhooks of a manager, as ``Manager.webhooks``.

    Attributes:
        admission: admission webhooks declared by ``Manager.webhook``.
    """

    def __init__(self) -> None:
        self.admission: list[Webhook[Any]] = []
        self._conversion = ConversionHandler()
        self._routes: dict[str, tuple[Callable[[bytes, float], Awaitable[ReviewResponse]], float]] = {}

    def __bool__(self) -> bool:
        return bool(self.admission or self._conversion.conversions)

    @property
    def conversions(self) -> tuple[Conversion[Any], ...]:
        """Conversions declared by ``Manager.conversion``."""
        return self._conversion.conversions

    def webhook(self, kind: type[T], options: WebhookOptions) -> Webhook[T]:
        """Declare an admission webhook. Raises ConfigurationError if kind and name are in use."""
        webhook = Webhook(kind, options)
        if any(known.slug == webhook.slug for known in self.admission):
            raise ConfigurationError(
                f"webhook {webhook.slug} is declared twice: set WebhookOptions.name for one of them"
            )
        self.admission.append(webhook)
        return webhook

    def conversion(self, conversion: Conversion[Any]) -> None:
        """Declare a conversion. Raises ConfigurationError if the kind has one."""
        self._conversion.add(conversion)

    # Manifests

    def configurations(self, options: WebhookServerOptions) -> list[dict[str, Any]]:
        """Webhook configurations in wire form, without CA bundles."""
        return webhook_configurations(self.admission, options)

    def conversion_webhook(self, options: WebhookServerOptions) -> ConversionWebhook:
        """The value of ``spec.conversion`` of CRDs with a conversion."""
        return conversion_webhook(options)

    def ca_bundle_targets(self, options: WebhookServerOptions) -> tuple[tuple[ApiResource, str], ...]:
        """Resources and names of the objects that need a CA bundle."""
        resources = {r.kind: r for r in (MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)}
        configurations = ((resources[c["kind"]], c["metadata"]["name"]) for c in self.configurations(options))
        return (
            *configurations,
            *((CUSTOM_RESOURCE_DEFINITION, conversion.crd_name) for conversion in self.conversions),
        )

    def permissions(self, options: WebhookServerOptions | None) -> tuple[Permission, ...]:
        """Permissions of the handlers, and those to inject CA bundles."""
        declared = tuple(p for webhook in self.admission for p in webhook.permissions)
        if options is None or options.cert_path:
            return declared
        targets = self.ca_bundle_targets(options)
        injection_permissions = (
            Permission(resource, ("get", "watch", "patch"), names=(name,)) for resource, name in targets
        )
        return (*declared, *injection_permissions)

    # Requests

    def max_body_size(self, path: str) -> int:
        """Maximum request body in bytes; 0 if ``path`` does not exist."""
        if path == CONVERT_PATH and self._conversion.conversions:
            return _MAX_CONVERSION_BYTES
        return _MAX_ADMISSION_BYTES if any(path in w.paths for w in self.admission) else 0

    @property
    def max_total_body_size(self) -> int:
        """Maximum bytes of all bodies: twice the largest one."""
        return 2 * _MAX_CONVERSION_BYTES if self._conversion.conversions else _MAX_TOTAL_ADMISSION_BYTES

    async def handle(self, path: str, query: str, body: bytes) -> ReviewResponse:
        """Respond to a review that was posted to ``path``."""
        if path not in self._routes:
            self._routes = self._build_routes()
        route = self._routes.get(path)
        if route is None:
            return ReviewResponse(404, b"not found\n")
        handler, seconds = route
        if (timeout_match := _TIMEOUT_PARAMETER.search(query)) is not None:
            seconds = min(seconds, float(timeout_match[1]))
        in_flight = metrics.in_flight.labels(path)
        in_flight.inc()
        started_at = time.perf_counter()
        try:
            response = await handler(
                body, seconds - min(_MAX_TIMEOUT_MARGIN_SECONDS, seconds * _TIMEOUT_MARGIN_RATIO)
            )
        finally:
            in_flight.inc(-1)
            metrics.latency.labels(path).observe(time.perf_counter() - started_at)
        metrics.requests.labels(path, str(response.status)).inc()
        return response

    def _build_routes(self) -> dict[str, tuple[Callable[[bytes, float], Awaitable[ReviewResponse]], float]]:
        handlers = {
            p: (h, float(w.options.timeout_seconds)) for w in self.admission for p, h in admission_handlers(w).items()
        }
        return {**handlers, CONVERT_PATH: (self._conversion.handle, _CONVERSION_TIMEOUT_SECONDS)}
