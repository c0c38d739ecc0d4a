"""Local webhook server address and its certificates."""

from __future__ import annotations

import base64
import copy
import ipaddress
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman_manifests.manifest_files import Manifest
from steersman_testing.envtest.directory import EnvironmentDirectory
from steersman_testing.envtest.ports import reserve_port


@dataclass(frozen=True, slots=True)
class LocalWebhookServing:
    """Address and certificate files of a webhook server.

    The test starts the server. The environment reserves the port on 127.0.0.1 until it stops: a server must set
    SO_REUSEADDR to listen on the port, as asyncio and Go do.

    Attributes:
        host: address or name of this machine as reached by the API server.
        port: port to listen on.
        directory: directory with ``tls.crt``, ``tls.key`` and ``ca.crt``, like a mounted Secret of cert-manager.
        ca: PEM of the certificate authority.
    """

    host: str
    port: int
    directory: Path
    ca: bytes

    @property
    def certificate(self) -> Path:
        """Path of the server certificate in PEM."""
        return self.directory / "tls.crt"

    @property
    def key(self) -> Path:
        """Path of the private key in PEM."""
        return self.directory / "tls.key"

    def ssl_context(self) -> ssl.SSLContext:
        """SSL context for a Python server, such as that of ``asyncio.start_server``."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def url(self, path: str) -> str:
        """URL of the webhook ``path``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}/{path.removeprefix('/')}"


def prepare_local_serving(home: EnvironmentDirectory, host: str) -> tuple[LocalWebhookServing, socket.socket]:
    """Issue certificates in ``home`` and reserve a port for a webhook server.

    The returned socket holds the reservation.
    """
    from steersman_testing.envtest.certificates import CertificateAuthority

    directory = home.path / "webhooks"
    directory.mkdir(mode=0o700)
    authority = CertificateAuthority()
    names, addresses = ["localhost"], ["127.0.0.1"]
    (addresses if _is_address(host) else names).append(host)
    pair = authority.issue_server(names, addresses)
    for name, content in (("tls.crt", pair.certificate), ("tls.key", pair.key), ("ca.crt", authority.certificate)):
        home.write(f"webhooks/{name}", content)
    reservation = reserve_port(socket.SO_REUSEADDR, socket.SO_REUSEPORT)
    serving = LocalWebhookServing(host, reservation.getsockname()[1], directory, authority.certificate)
    return serving, reservation


def redirect_webhooks(configuration: Manifest, serving: LocalWebhookServing) -> Manifest:
    """Redirect webhooks of Services to ``serving``. Webhooks with a URL remain unchanged."""
    configuration = copy.deepcopy(configuration)
    for webhook in configuration.get("webhooks") or ():
        webhook["clientConfig"] = _redirect(webhook["clientConfig"], serving)
    return configuration


def redirect_conversion(crd: Manifest, serving: Callable[[], LocalWebhookServing]) -> Manifest:
    """Redirect the conversion webhook of a Service to ``serving``."""
    conversion: dict[str, Any] = crd["spec"].get("conversion") or {}
    if conversion.get("strategy") != "Webhook":
        return crd
    crd = copy.deepcopy(crd)
    webhook: dict[str, Any] = crd["spec"]["conversion"]["webhook"]
    webhook["clientConfig"] = _redirect(webhook.get("clientConfig") or {}, serving())
    return crd


def _redirect(config: dict[str, Any], serving: LocalWebhookServing) -> dict[str, Any]:
    if config.get("url"):
        return config
    service: dict[str, Any] = config.get("service") or {}
    return {"url": serving.url(service.get("path") or "/"), "caBundle": base64.b64encode(serving.ca).decode()}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
