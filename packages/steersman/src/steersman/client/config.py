"""One API server and one identity, as everything below the client needs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman.client.credentials import Anonymous, Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """Whom to act as, if RBAC allows us the verb ``impersonate``.

    Source: "Authenticating", section "User impersonation".

    Attributes:
        user: user name, such as ``jane`` or ``system:serviceaccount:shop:till``.
        uid: unique id of that user; may be empty.
        groups: without them the API server adds only ``system:authenticated``.
        extra: further facts for authorizers, such as ``{"scopes": ("view",)}``.
    """

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One API server and one identity. Secrets stay out of ``repr``. ``dataclasses.replace`` changes a field.

    Attributes:
        server: base URL, such as ``https://10.0.0.1:6443``.
        namespace: default namespace of the context.
        ca: whom to trust: PEM, or a file of it, which is read again as it changes; None: the system's authorities.
        credentials: who we are.
        impersonate: whom to act as.
        proxy_url: ``http://`` or ``https://`` URL of a proxy. None means what ``HTTPS_PROXY`` and ``NO_PROXY`` say;
            the empty string means no proxy.
        tls_server_name: name to verify in the server's certificate, where it differs from the URL's host.
        insecure_skip_tls_verify: accept any certificate; anybody on the way can then read and change everything.
        disable_compression: ask for no gzip. None means: no gzip from a server on this machine.
        source: file and entry of these settings, for error messages.
        user_agent: what the API server's audit log calls us; None means ``steersman/`` and the version.
    """

    server: str
    namespace: str = "default"
    ca: bytes | Path | None = None
    credentials: Credentials = field(default_factory=Anonymous)
    impersonate: Impersonation | None = None
    proxy_url: str | None = field(default=None, repr=False)
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False
    disable_compression: bool | None = None
    source: str = field(default="", compare=False)
    user_agent: str | None = None
