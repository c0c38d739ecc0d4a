"""Where the API server is and who we are: kubeconfig files and the in-cluster service account.

Source: "Organizing Cluster Access Using kubeconfig Files" and "Accessing the Kubernetes API from a Pod".
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from steersman.errors import ConfigurationError

# To pass over one of these in silence would be to act as somebody else, or by another way, than the user asked for.
_UNSUPPORTED_CLUSTER = ("proxy-url",)
_UNSUPPORTED_USER = ("exec", "auth-provider", "username", "as", "as-uid", "as-groups", "as-user-extra")

T = TypeVar("T")

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
    """One named entry of a kubeconfig, which knows where it stands so that errors can name it."""

    file: Path
    where: str
    values: dict[str, Any] = field(repr=False)

    def get(self, name: str, kind: type[T]) -> T | None:
        value = self.values.get(name)
        return None if value is None else _expect(kind, value, f"{self.where}: {name}")

    def pem(self, name: str) -> bytes | None:
        """PEM from ``<name>-data`` (base64), or else from the file that ``<name>`` points to."""
        inline, location = self.get(f"{name}-data", str), self.get(name, str)
        if inline:
            where = f"{self.where}: {name}-data"
            try:
                data = base64.b64decode("".join(inline.split()), validate=True)
            except ValueError as error:
                raise ConfigurationError(f"{where} is not base64") from error
        elif location:
            where = f"{self.where}: {name}"
            data = _read(self.file.parent / location, where)
        else:
            return None
        if b"-----BEGIN " not in data:
            raise ConfigurationError(f"{where} holds no PEM")
        return data

    def refuse(self, *names: str) -> None:
        for name in names:
            if self.values.get(name):
                raise ConfigurationError(f"{self.where}: {name} is not supported")


def _expect(kind: type[T], value: Any, where: str) -> T:
    if not isinstance(value, kind):
        raise ConfigurationError(f"{where}: expected {kind.__name__}, not {type(value).__name__}")
    return value


def _entries(files: list[Path], section: str, singular: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for file in files:
        for item in cast("list[Any]", _expect(list, _parse(file).get(section) or [], f"{file}: {section}")):
            entry = cast("dict[str, Any]", _expect(dict, item, f"{file}: {section}"))
            where = f"{file}: {singular} {str(entry.get('name', ''))!r}"
            values = cast("dict[str, Any]", _expect(dict, entry.get(singular) or {}, where))
            found.setdefault(str(entry.get("name", "")), _Entry(file, where, values))
    return found


def _parse(file: Path) -> dict[str, Any]:
    try:
        document: Any = yaml.safe_load(_read(file, "kubeconfig"))
    except yaml.MarkedYAMLError as error:
        # Not the whole message: it quotes the line, which may hold a token.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigurationError(f"{file}{line}: not YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{file}: not YAML") from None
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
    selected = _pick(_entries(existing, "contexts", "context"), chosen, f"{existing[0]}: context")
    cluster_name, user_name = selected.get("cluster", str), selected.get("user", str)
    if not cluster_name:
        raise ConfigurationError(f"{selected.where}: cluster is not set")
    cluster = _pick(_entries(existing, "clusters", "cluster"), cluster_name, f"{selected.where}: cluster")
    anonymous = _Entry(selected.file, selected.where, {})
    users = _entries(existing, "users", "user")
    user = _pick(users, user_name, f"{selected.where}: user") if user_name else anonymous
    return _combine(selected, cluster, user)


def _pick(entries: dict[str, _Entry], name: str, where: str) -> _Entry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigurationError(f"{where}: {name!r} is not defined (defined: {known})")
    return entries[name]


def _combine(context: _Entry, cluster: _Entry, user: _Entry) -> ClusterConfig:
    cluster.refuse(*_UNSUPPORTED_CLUSTER)
    user.refuse(*_UNSUPPORTED_USER)
    server = cluster.get("server", str) or ""
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{cluster.where}: server must be a URL such as https://10.0.0.1:6443")
    token_file = user.get("tokenFile", str)
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if (certificate is None) != (key is None):
        raise ConfigurationError(f"{user.where}: client-certificate and client-key go together; one is missing")
    return ClusterConfig(
        server=server.rstrip("/"),
        namespace=context.get("namespace", str) or "default",
        ca=cluster.pem("certificate-authority"),
        client_certificate=certificate,
        client_key=key,
        token=user.get("token", str),
        token_file=user.file.parent / token_file if token_file else None,
        tls_server_name=cluster.get("tls-server-name", str),
        insecure_skip_tls_verify=cluster.get("insecure-skip-tls-verify", bool) or False,
    )
