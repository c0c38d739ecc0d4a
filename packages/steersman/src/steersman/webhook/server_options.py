"""Where and how webhooks are served."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from steersman.errors import ConfigurationError
from steersman.webhook.certificates import Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServerOptions:
    """Where webhooks are served, and how the API server gets there: by a Service, or by a URL.

    Attributes:
        service: name of the Service before the replicas.
        namespace: of the Service and the Secret: the operator's own.
        port: of the Service.
        url: ``https://host[:port][/path]``, in place of a Service: where the API server runs beside the operator.
        bind_address: ``host:port`` to listen at.
        name: of the configurations; the service's unless told.
        secret: holds the certificates; the name and ``-cert`` unless told.
        cert_path: a directory with a certificate that something else renews, such as a mounted Secret of
            cert-manager. Then no certificate is made, and the authority is not written into the configurations.
        cert_name: the file of the certificate in it.
        cert_key: the file of the private key in it.
        drain_seconds: how long a replica that ends still answers, so that the API server finds another one.
        rotation: when certificates follow each other.

    Raises:
        ConfigurationError: there is neither a Service nor a URL, or there are both; or no namespace.
    """

    service: str = ""
    namespace: str = ""
    port: int = 443
    url: str = ""
    bind_address: str = ":9443"
    name: str = ""
    secret: str = ""
    cert_path: str = ""
    cert_name: str = "tls.crt"
    cert_key: str = "tls.key"
    drain_seconds: float = 5.0
    rotation: Rotation = field(default_factory=Rotation)

    def __post_init__(self) -> None:
        if bool(self.service) == bool(self.url):
            raise ConfigurationError("webhooks are reached by a service or by a url: give one of them")
        if not self.namespace and (self.service or not self.cert_path):
            raise ConfigurationError("webhooks need a namespace: that of their Service and their Secret")

    @property
    def configuration_name(self) -> str:
        """Of the Mutating- and the ValidatingWebhookConfiguration."""
        return self.name or self.service or "webhooks"

    @property
    def secret_name(self) -> str:
        """Of the Secret with the certificates."""
        return self.secret or f"{self.configuration_name}-cert"

    @property
    def server_names(self) -> tuple[str, ...]:
        """Under which the API server calls: the certificate is for these."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        short = f"{self.service}.{self.namespace}.svc"
        return (short, f"{short}.cluster.local", f"{self.service}.{self.namespace}")

    def client_config(self, path: str) -> dict[str, object]:
        """A ``clientConfig`` in wire form, without ``caBundle``."""
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}"}
        return {"service": {"name": self.service, "namespace": self.namespace, "path": path, "port": self.port}}
