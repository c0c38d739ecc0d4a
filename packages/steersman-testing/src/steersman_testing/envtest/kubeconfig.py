"""Kubeconfig files for kubectl and for operator processes."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from steersman.client.config import ClusterConfig
from steersman.client.credentials import load_pem


def build_kubeconfig(config: ClusterConfig, user: str) -> bytes:
    """Encode ``config`` as a self-contained kubeconfig file.

    The file contains the current credentials. Rotated tokens and tokens of exec plugins expire.

    Args:
        config: cluster and credentials.
        user: name of the user entry.

    Raises:
        CredentialsFailed: if the credentials cannot be loaded.
    """
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "envtest", "cluster": _cluster(config)}],
        "users": [{"name": user, "user": _user(config)}],
        "contexts": [
            {"name": "envtest", "context": {"cluster": "envtest", "user": user, "namespace": config.namespace}}
        ],
        "current-context": "envtest",
    }
    return yaml.safe_dump(document).encode()


def _cluster(config: ClusterConfig) -> dict[str, Any]:
    entry: dict[str, Any] = {"server": config.server}
    if config.ca is not None:
        entry["certificate-authority-data"] = _base64(load_pem(config.ca, "certificate authority"))
    if config.insecure_skip_tls_verify:
        entry["insecure-skip-tls-verify"] = True
    if config.tls_server_name:
        entry["tls-server-name"] = config.tls_server_name
    if config.proxy_url:
        entry["proxy-url"] = config.proxy_url
    return entry


def _user(config: ClusterConfig) -> dict[str, Any]:
    identity, entry = config.credentials.load(), dict[str, Any]()
    if identity.certificate is not None and identity.key is not None:
        entry["client-certificate-data"] = _base64(identity.certificate)
        entry["client-key-data"] = _base64(identity.key)
    scheme, _, value = (identity.authorization or "").partition(" ")
    if scheme == "Bearer":
        entry["token"] = value
    elif scheme == "Basic":
        entry["username"], _, entry["password"] = base64.b64decode(value).decode().partition(":")
    if (impersonation := config.impersonate) is not None:
        entry["as"] = impersonation.user
        if impersonation.groups:
            entry["as-groups"] = list(impersonation.groups)
    return entry


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
