"""All webhooks of a manager."""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from steersman.controller import Permission
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, Object
from steersman.webhook import metrics
from steersman.webhook.admission import Answer, handlers_of
from steersman.webhook.configurations import conversion_webhook, webhook_configurations
from steersman.webhook.conversion import CONVERT, Conversion, ConversionHandler
from steersman.webhook.declaration import Webhook, WebhookOptions
from steersman.webhook.serving import WebhookServing

if TYPE_CHECKING:
    from steersman.crd import ConversionWebhook

T = TypeVar("T", bound=Object)

# An object is 1.5 MiB at most in etcd, and 3 MiB in a request; a review of an update has two.
_LONGEST_ADMISSION = 7 << 20
# A page of a list: as many objects as the API server reads at once.
_LONGEST_CONVERSION = 64 << 20
_CONVERSION_SECONDS = 30.0
# What the answer needs on its way.
_MARGIN = 0.1
_LONGEST_MARGIN = 0.5
_GO_SECONDS = re.compile(r"(?:^|&)timeout=(\d+)s(?:&|$)")

_ADMISSION = "admissionregistration.k8s.io"
MUTATING = ApiResource(
    _ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", namespaced=False
)
VALIDATING = ApiResource(
    _ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", namespaced=False
)
DEFINITION = ApiResource(
    "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", namespaced=False
)


class Webhooks:
    """All webhooks of a manager: ``Manager.webhooks``.

    Attributes:
        admission: those that were declared by ``Manager.webhook``.
    """

    def __init__(self) -> None:
        self.admission: list[Webhook[Any]] = []
        self._conversion = ConversionHandler()
        self._served: dict[str, tuple[Callable[[bytes, float], Awaitable[Answer]], float]] = {}

    def __bool__(self) -> bool:
        return bool(self.admission or self._conversion.conversions)

    @property
    def conversions(self) -> tuple[Conversion[Any], ...]:
        """Those that were declared by ``Manager.conversion``."""
        return self._conversion.conversions

    def webhook(self, kind: type[T], options: WebhookOptions) -> Webhook[T]:
        """Declares one. Raises ConfigurationError: there is one of that kind and name."""
        webhook = Webhook(kind, options)
        if any(known.slug == webhook.slug for known in self.admission):
            raise ConfigurationError(f"there are two webhooks of {webhook.slug}: give one a name")
        self.admission.append(webhook)
        return webhook

    def conversion(self, conversion: Conversion[Any]) -> None:
        """Declares one. Raises ConfigurationError: there is one of that kind."""
        self._conversion.add(conversion)

    # Manifests

    def configurations(self, serving: WebhookServing) -> list[dict[str, Any]]:
        """The webhook configurations to install, in wire form; the authorities are written into them later."""
        return webhook_configurations(self.admission, serving)

    def conversion_webhook(self, serving: WebhookServing) -> ConversionWebhook:
        """The ``conversion`` of the definitions whose kinds are converted."""
        return conversion_webhook(serving)

    def targets(self, serving: WebhookServing) -> tuple[tuple[ApiResource, str], ...]:
        """The objects that name an authority: resource and name."""
        resources = {r.kind: r for r in (MUTATING, VALIDATING)}
        configurations = ((resources[c["kind"]], c["metadata"]["name"]) for c in self.configurations(serving))
        return (*configurations, *((DEFINITION, conversion.crd_name) for conversion in self.conversions))

    def permissions(self, serving: WebhookServing | None) -> tuple[Permission, ...]:
        """What the handlers declared, and what it takes to write authorities into the objects that name them."""
        declared = tuple(p for webhook in self.admission for p in webhook.permissions)
        if serving is None or serving.cert_path:
            return declared
        targets = self.targets(serving)
        written = (Permission(resource, ("get", "watch", "patch"), names=(name,)) for resource, name in targets)
        return (*declared, *written)

    # Answers

    def longest_body(self, path: str) -> int:
        """Bytes that a request to ``path`` may have; 0 where nothing is served."""
        if path == CONVERT and self._conversion.conversions:
            return _LONGEST_CONVERSION
        return _LONGEST_ADMISSION if any(path in w.paths for w in self.admission) else 0

    async def answer(self, path: str, query: str, body: bytes) -> Answer:
        """What to answer to a review that was posted to ``path``."""
        if path not in self._served:
            self._served = self._handlers()
        found = self._served.get(path)
        if found is None:
            return Answer(404, b"not found\n")
        handler, seconds = found
        if (asked := _GO_SECONDS.search(query)) is not None:
            seconds = min(seconds, float(asked[1]))
        in_flight = metrics.in_flight.labels(path)
        in_flight.inc()
        begun = time.perf_counter()
        try:
            answer = await handler(body, seconds - min(_LONGEST_MARGIN, seconds * _MARGIN))
        finally:
            in_flight.inc(-1)
            metrics.latency.labels(path).observe(time.perf_counter() - begun)
        metrics.requests.labels(path, str(answer.status)).inc()
        return answer

    def _handlers(self) -> dict[str, tuple[Callable[[bytes, float], Awaitable[Answer]], float]]:
        handlers = {
            p: (h, float(w.options.timeout_seconds)) for w in self.admission for p, h in handlers_of(w).items()
        }
        return {**handlers, CONVERT: (self._conversion.answer, _CONVERSION_SECONDS)}
