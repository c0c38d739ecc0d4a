"""``spec.conversion``: who converts objects between versions."""

from __future__ import annotations

import base64
from typing import Any

from msgspec import Struct

from steersman.crd.errors import SchemaError


class ConversionWebhook(Struct, frozen=True, kw_only=True):
    """Where the API server sends objects to be converted: to a Service of the cluster, or to a URL.

    Attributes:
        service: namespace and name of the Service.
        port: of the Service.
        path: at the Service.
        url: in place of a Service; ``https://…``.
        ca_bundle: certificates (PEM) that the webhook's is signed by. Leave it out where something injects it.
        review_versions: versions of ConversionReview that the webhook reads, the best first.

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
            SchemaError: it has both a Service and a URL, or neither.
        """
        if (self.service is None) == (self.url is None):
            raise SchemaError("a ConversionWebhook has either service=(namespace, name) or url")
        if self.url is not None and not self.url.startswith("https://"):
            raise SchemaError(f"a ConversionWebhook is asked by TLS only: {self.url!r} must start with https://")
        if not self.review_versions:
            raise SchemaError('a ConversionWebhook reads at least one version of ConversionReview, such as "v1"')
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
