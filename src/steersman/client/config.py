"""Where the API server is and who we are: kubeconfig files and the in-cluster service account.

Source: "Organizing Cluster Access Using kubeconfig Files" and "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import base64
import binascii
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml

from steersman.errors import ConfigurationError

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """One API server and one identity. Certificates and keys are PEM; secrets stay out of ``repr``.

    Attributes:
        server: base URL, such as ``https://10.0.0.1:6443``.
        namespace: default namespace of the context.
        token_file: read again as the kubelet rotates it; takes precedence over ``token``.
        tls_server_name: name to verify in the server's certificate, where it differs from the URL's host.
    """

    server: str
    namespace: str = "default"
    ca: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool = False


def load_config(path: str | Path | None = None, *, context: str | None = None) -> ClusterConfig:
    """Finds the cluster as kubectl does, or as a pod does when there is no kubeconfig.

    Args:
        path: a kubeconfig file. Without it: the files of ``$KUBECONFIG`` (merged, first wins), then the
            service account of the pod that we run in, then ``~/.kube/config``.
        context: a context's name; the file's current one unless told.

    Raises:
        ConfigurationError: nothing was found, or a field is missing or malformed.
    """
    if path is not None:
        return _from_kubeconfig([Path(path)], context)
    named = [Path(p) for p in os.environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if named:
        return _from_kubeconfig(named, context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster_config()
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return _from_kubeconfig([default], context)
    raise ConfigurationError(
        "no cluster is configured: set KUBECONFIG to a kubeconfig file, or run inside a pod with a service account"
    )


def in_cluster_config(directory: Path = SERVICE_ACCOUNT_DIRECTORY) -> ClusterConfig:
    """The identity of the pod's service account.

    Raises:
        ConfigurationError: not in a pod, or the service account's token is not mounted.
    """
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ConfigurationError("KUBERNETES_SERVICE_HOST is not set: this process does not run in a pod")
    token_file = directory / "token"
    if not token_file.exists():
        raise ConfigurationError(f"{token_file} is missing: set automountServiceAccountToken on the pod to true")
    namespace_file = directory / "namespace"
    return ClusterConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        namespace=namespace_file.read_text().strip() if namespace_file.exists() else "default",
        ca=_read(directory / "ca.crt", "certificate authority"),
        token_file=token_file,
    )


def _read(path: Path, what: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{what}: cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class _Entry:
    """One named entry of a kubeconfig, which knows its file so that errors can name it."""

    file: Path
    title: str
    values: dict[str, Any]

    def text(self, name: str) -> str | None:
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise ConfigurationError(f"{self.file}: {self.title}: {name} must be a string")
        return value

    def data(self, name: str) -> bytes | None:
        """PEM from ``<name>-data`` (base64), or else from the file that ``<name>`` points to."""
        inline = self.text(f"{name}-data")
        if inline:
            try:
                return base64.b64decode(inline, validate=True)
            except binascii.Error as error:
                raise ConfigurationError(f"{self.file}: {self.title}: {name}-data is not base64") from error
        location = self.text(name)
        return _read(self.file.parent / location, f"{self.file}: {self.title}: {name}") if location else None


def _entries(files: list[Path], section: str, singular: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for file in files:
        items = cast("list[dict[str, Any]]", _parse(file).get(section) or [])
        for item in items:
            name = str(item.get("name", ""))
            found.setdefault(name, _Entry(file, f"{singular} {name!r}", item.get(singular) or {}))
    return found


def _parse(file: Path) -> dict[str, Any]:
    try:
        document: Any = yaml.safe_load(_read(file, "kubeconfig"))
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}: not YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file}: not a kubeconfig (kind: Config)")
    return cast("dict[str, Any]", document)


def _from_kubeconfig(files: list[Path], context: str | None) -> ClusterConfig:
    existing = [f for f in files if f.exists()]
    if not existing:
        raise ConfigurationError(f"kubeconfig not found: {', '.join(map(str, files))}")
    names = [str(n) for f in existing if (n := _parse(f).get("current-context"))]
    chosen = context or next(iter(names), None)
    if not chosen:
        raise ConfigurationError(
            f"{existing[0]}: current-context is not set: choose one with `kubectl config use-context`"
        )
    selected = _pick(_entries(existing, "contexts", "context"), chosen, existing[0], "context")
    cluster = _pick(
        _entries(existing, "clusters", "cluster"), selected.text("cluster") or "", selected.file, "cluster"
    )
    user = _pick(_entries(existing, "users", "user"), selected.text("user") or "", selected.file, "user")
    return _combine(selected, cluster, user)


def _pick(entries: dict[str, _Entry], name: str, file: Path, what: str) -> _Entry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigurationError(f"{file}: {what} {name!r} is not defined (defined: {known})")
    return entries[name]


def _combine(context: _Entry, cluster: _Entry, user: _Entry) -> ClusterConfig:
    server = cluster.text("server")
    if not server:
        raise ConfigurationError(f"{cluster.file}: {cluster.title}: server is not set")
    if "exec" in user.values or "auth-provider" in user.values:
        raise ConfigurationError(
            f"{user.file}: {user.title}: exec and auth-provider are not supported: use a certificate or a token"
        )
    token_file = user.text("tokenFile")
    return ClusterConfig(
        server=server.rstrip("/"),
        namespace=context.text("namespace") or "default",
        ca=cluster.data("certificate-authority"),
        client_certificate=user.data("client-certificate"),
        client_key=user.data("client-key"),
        token=user.text("token"),
        token_file=user.file.parent / token_file if token_file else None,
        tls_server_name=cluster.text("tls-server-name"),
        insecure_skip_tls_verify=bool(cluster.values.get("insecure-skip-tls-verify", False)),
    )
