"""Where the API server of a test calls webhooks: on this machine, with certificates made for it."""

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

from steersman.meta.manifests import Manifest
from steersman_testing.envtest.directory import EnvironmentDirectory
from steersman_testing.envtest.ports import reserve_port


@dataclass(frozen=True, slots=True)
class LocalWebhookServing:
    """What a webhook server needs to be called: it listens on ``host`` and ``port``, and shows ``certificate``.

    The port is nobody else's meanwhile. Who listens on it has to set SO_REUSEADDR, as asyncio's servers and Go's do.

    Attributes:
        host: address or name under which the API server reaches this machine.
        port: to listen on.
        directory: has ``tls.crt``, ``tls.key`` and ``ca.crt``, as a mounted Secret of cert-manager has.
        ca: PEM of the authority that the API server trusts for it.
    """

    host: str
    port: int
    directory: Path
    ca: bytes

    @property
    def certificate(self) -> Path:
        """The server's certificate: PEM."""
        return self.directory / "tls.crt"

    @property
    def key(self) -> Path:
        """Its private key: PEM."""
        return self.directory / "tls.key"

    def ssl_context(self) -> ssl.SSLContext:
        """For a server in Python, such as that of ``asyncio.start_server``."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.certificate, self.key)
        return context

    def url(self, path: str) -> str:
        """Where the API server calls the webhook ``path``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"https://{host}:{self.port}/{path.removeprefix('/')}"


def prepare_local_serving(home: EnvironmentDirectory, host: str) -> tuple[LocalWebhookServing, socket.socket]:
    """Certificates in ``home`` and a port for a webhook server on ``host``; the port is reserved by the socket."""
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
    """``configuration`` with its webhooks behind services called at ``serving``; those with a URL stay."""
    configuration = copy.deepcopy(configuration)
    for webhook in configuration.get("webhooks") or ():
        webhook["clientConfig"] = _redirect(webhook["clientConfig"], serving)
    return configuration


def redirect_conversion(crd: Manifest, serving: Callable[[], LocalWebhookServing]) -> Manifest:
    """``crd`` with its conversion webhook, if it has one behind a service, called at ``serving``."""
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
