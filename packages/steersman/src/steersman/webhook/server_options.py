"""Settings of the webhook server."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from steersman.errors import ConfigurationError
from steersman.webhook.certificates import Rotation


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookServerOptions:
    """Settings of the webhook server and of its clients, the API servers.

    Attributes:
        service: name of the Service of the webhooks.
        namespace: namespace of the Service and the Secret.
        port: port of the Service.
        url: ``https://host[:port][/path]`` instead of a Service, for an operator outside of the cluster.
        bind_address: ``host:port`` to listen on.
        name: name of the webhook configurations. Defaults to the name of the Service.
        secret: name of the Secret with the certificate. Defaults to ``name`` with the suffix ``-cert``.
        cert_path: directory with a certificate that another component renews, such as a Secret mounted from
            cert-manager. The operator then issues no certificate and injects no CA bundle.
        cert_name: name of the certificate file.
        cert_key: name of the private key file.
        drain_seconds: seconds for which a terminating replica still responds, until the API server uses another one.
        rotation: times of the certificate rotation.

    Raises:
        ConfigurationError: not exactly one of ``service`` and ``url`` is set, or ``namespace`` is missing.
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
            raise ConfigurationError("webhooks need either a service or a url: set one of them")
        if not self.namespace and (self.service or not self.cert_path):
            raise ConfigurationError("webhooks need a namespace: set that of their Service and Secret")

    @property
    def configuration_name(self) -> str:
        """Name of the MutatingWebhookConfiguration and ValidatingWebhookConfiguration."""
        return self.name or self.service or "webhooks"

    @property
    def secret_name(self) -> str:
        """Name of the Secret with the certificate."""
        return self.secret or f"{self.configuration_name}-cert"

    @property
    def server_names(self) -> tuple[str, ...]:
        """DNS names or IP address in the certificate."""
        if self.url:
            return (urlsplit(self.url).hostname or "",)
        short = f"{self.service}.{self.namespace}.svc"
        return (short, f"{short}.cluster.local", f"{self.service}.{self.namespace}")

    def client_config(self, path: str) -> dict[str, object]:
        """A ``clientConfig`` in wire form, without ``caBundle``."""
        if self.url:
            return {"url": f"{self.url.rstrip('/')}{path}"}
        return {"service": {"name": self.service, "namespace": self.namespace, "path": path, "port": self.port}}
