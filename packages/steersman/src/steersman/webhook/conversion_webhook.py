"""``spec.conversion`` of a CustomResourceDefinition."""

from __future__ import annotations

import base64
from typing import Any

from msgspec import Struct

from steersman.errors import ConfigurationError


class ConversionWebhook(Struct, frozen=True, kw_only=True):
    """The conversion webhook of a kind, by Service or URL.

    Attributes:
        service: namespace and name of the Service.
        port: port of the Service.
        path: URL path at the Service.
        url: URL instead of a Service, ``https://…``.
        ca_bundle: CA certificates (PEM) that sign the webhook's certificate. Leave it empty if another component
            injects it.
        review_versions: versions of ConversionReview that the webhook supports, in order of preference.

    Source: "Versions in CustomResourceDefinitions", section "Webhook conversion".
    """

    service: tuple[str, str] | None = None
    port: int = 443
    path: str = "/convert"
    url: str | None = None
    ca_bundle: bytes = b""
    review_versions: tuple[str, ...] = ("v1",)

    def to_wire(self) -> dict[str, Any]:
        """``spec.conversion``.

        Raises:
            ConfigurationError: both a Service and a URL are set, or neither.
        """
        if (self.service is None) == (self.url is None):
            raise ConfigurationError("a ConversionWebhook needs either service=(namespace, name) or url")
        if self.url is not None and not self.url.startswith("https://"):
            raise ConfigurationError(f"the URL {self.url!r} of a ConversionWebhook must start with https://")
        if not self.review_versions:
            raise ConfigurationError(
                'a ConversionWebhook needs at least one version of ConversionReview, such as "v1"'
            )
        client_config: dict[str, Any] = {}
        if self.service is not None:
            namespace, name = self.service
            client_config["service"] = {"namespace": namespace, "name": name, "path": self.path, "port": self.port}
        else:
            client_config["url"] = self.url
        if self.ca_bundle:
            client_config["caBundle"] = base64.b64encode(self.ca_bundle).decode()
        webhook = {"clientConfig": client_config, "conversionReviewVersions": list(self.review_versions)}
        return {"strategy": "Webhook", "webhook": webhook}
