"""Configuration of a client: one API server and one identity."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman.client.credentials import Anonymous, Credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class Impersonation:
    """The user to impersonate. RBAC must allow the verb ``impersonate``.

    Source: "Authenticating", section "User impersonation".

    Attributes:
        user: user name, such as ``jane`` or ``system:serviceaccount:shop:till``.
        uid: unique ID of the user. May be empty.
        groups: groups of the user. The API server adds ``system:authenticated``.
        extra: additional attributes for authorizers, such as ``{"scopes": ("view",)}``.
    """

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """Address of an API server, credentials and options of the connection.

    ``repr`` omits secrets. Use ``dataclasses.replace`` to change a field.

    Attributes:
        server: base URL, such as ``https://10.0.0.1:6443``.
        namespace: default namespace of the context.
        ca: trusted certificate authorities: PEM, or a PEM file that is reloaded when it changes. Defaults to the
            authorities of the system.
        credentials: source of tokens and client certificates. Defaults to anonymous requests.
        impersonate: user to impersonate. Defaults to none.
        proxy_url: ``http://`` or ``https://`` URL of a proxy. The empty string disables proxies. Defaults to the
            variables ``HTTPS_PROXY`` and ``NO_PROXY``.
        tls_server_name: name to verify in the server's certificate. Defaults to the host of the URL.
        insecure_skip_tls_verify: accept any certificate. An attacker on the network can then read and change all
            traffic.
        disable_compression: True requests responses without gzip. Defaults to True only for a server on this machine.
        source: file and entry of these settings, for error messages.
        user_agent: the ``User-Agent`` header, which the audit log of the API server shows. Defaults to
            ``steersman/`` and the version.
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
