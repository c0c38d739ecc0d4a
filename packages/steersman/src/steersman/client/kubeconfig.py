"""Parsing of kubeconfig files. Error messages name file and field, and never quote secrets.

Source: "Organizing Cluster Access Using kubeconfig Files", and ``client-go/tools/clientcmd/api/v1`` for the fields.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

import yaml

from steersman.client.config import ClusterConfig, Impersonation
from steersman.client.credentials import (
    Anonymous,
    BasicAuth,
    ClientCertificate,
    CredentialChain,
    Credentials,
    StaticToken,
    TokenFile,
    load_pem,
)
from steersman.client.exec_plugin import API_VERSIONS, ExecPlugin, ExecPluginCredentials, InteractiveMode
from steersman.client.transport.proxy import parse_proxy
from steersman.errors import ConfigurationError

T = TypeVar("T")

_EXEC_EXTENSION = "client.authentication.k8s.io/exec"


def read_kubeconfig(files: list[Path], context: str | None) -> ClusterConfig:
    """Merge kubeconfig files and return the configuration of a context.

    Args:
        files: kubeconfig files. If several files define an entry, the first one takes precedence.
        context: name of a context. Defaults to the current context.

    Raises:
        ConfigurationError: none of the files exists, or a field is missing or malformed.
    """
    existing = [f for f in files if f.exists()]
    if not existing:
        raise ConfigurationError(f"kubeconfig not found: {', '.join(map(str, files))}")
    documents = {file: _parse(file) for file in existing}
    names = [str(n) for document in documents.values() if (n := document.get("current-context"))]
    context_name = context or next(iter(names), None)
    if not context_name:
        raise ConfigurationError(
            f"{existing[0]}: current-context is not set: set it with `kubectl config use-context`"
        )
    selected = _pick(_entries(documents, "contexts", "context"), context_name, f"{existing[0]}: context")
    cluster_name, user_name = selected.get("cluster", str), selected.get("user", str)
    if not cluster_name:
        raise ConfigurationError(f"{selected.source}: cluster is not set")
    cluster = _pick(_entries(documents, "clusters", "cluster"), cluster_name, f"{selected.source}: cluster")
    anonymous = _Entry(selected.file, selected.source, {})
    users = _entries(documents, "users", "user")
    user = _pick(users, user_name, f"{selected.source}: user") if user_name else anonymous
    return _combine(selected, cluster, user)


@dataclass(frozen=True, slots=True)
class _Entry:
    """A named entry of a kubeconfig. ``source`` locates it in error messages."""

    file: Path
    source: str
    values: dict[str, Any] = field(repr=False)

    def get(self, name: str, kind: type[T]) -> T | None:
        value = self.values.get(name)
        return None if value is None else _expect(kind, value, f"{self.source}: {name}")

    def strings(self, name: str) -> tuple[str, ...]:
        values = cast("list[Any]", self.get(name, list) or [])
        return tuple(_expect(str, value, f"{self.source}: {name}") for value in values)

    def pem(self, name: str) -> bytes | Path | None:
        """Return PEM from ``<name>-data`` (base64), or the path in ``<name>``."""
        inline, location = self.get(f"{name}-data", str), self.get(name, str)
        if inline:
            source = f"{self.source}: {name}-data"
            try:
                data = base64.b64decode("".join(inline.split()), validate=True)
            except ValueError:
                raise ConfigurationError(f"{source} is not base64") from None
            if b"-----BEGIN " not in data:
                raise ConfigurationError(f"{source} contains no PEM")
            return data
        if location:
            path = self.file.parent / location
            # Report an unreadable file now instead of at the first connection.
            load_pem(path, f"{self.source}: {name}")
            return path
        return None


def _expect(kind: type[T], value: Any, source: str) -> T:
    if not isinstance(value, kind):
        raise ConfigurationError(f"{source}: expected {kind.__name__}, not {type(value).__name__}")
    return value


def _entries(documents: dict[Path, dict[str, Any]], section: str, singular: str) -> dict[str, _Entry]:
    found: dict[str, _Entry] = {}
    for file, document in documents.items():
        for item in cast("list[Any]", _expect(list, document.get(section) or [], f"{file}: {section}")):
            entry = cast("dict[str, Any]", _expect(dict, item, f"{file}: {section}"))
            source = f"{file}: {singular} {str(entry.get('name', ''))!r}"
            values = cast("dict[str, Any]", _expect(dict, entry.get(singular) or {}, source))
            found.setdefault(str(entry.get("name", "")), _Entry(file, source, values))
    return found


def _parse(file: Path) -> dict[str, Any]:
    try:
        document: Any = yaml.safe_load(file.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"kubeconfig: cannot read {file}: {error.strerror}") from None
    except yaml.MarkedYAMLError as error:
        # The complete message quotes the line, which may contain a token.
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigurationError(f"{file}{line}: invalid YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise ConfigurationError(f"{file}: invalid YAML") from None
    if document is None:
        # kubectl accepts an empty file as well.
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{file} is not a kubeconfig: it must be a mapping with kind Config")
    return cast("dict[str, Any]", document)


def _pick(entries: dict[str, _Entry], name: str, source: str) -> _Entry:
    if name not in entries:
        known = ", ".join(sorted(entries)) or "none"
        raise ConfigurationError(f"{source}: {name!r} is not defined (defined: {known})")
    return entries[name]


def _combine(context: _Entry, cluster: _Entry, user: _Entry) -> ClusterConfig:
    server = cluster.get("server", str) or ""
    if not server.startswith(("https://", "http://")):
        raise ConfigurationError(f"{cluster.source}: server must be a URL such as https://10.0.0.1:6443")
    if "@" in server:
        raise ConfigurationError(f"{cluster.source}: server must not contain credentials: set them in the user entry")
    ca, insecure = cluster.pem("certificate-authority"), cluster.get("insecure-skip-tls-verify", bool) or False
    if ca and insecure:
        raise ConfigurationError(
            f"{cluster.source}: certificate-authority and insecure-skip-tls-verify are mutually exclusive: remove one"
        )
    proxy_url = cluster.get("proxy-url", str) or None
    if proxy_url:
        parse_proxy(proxy_url, f"{cluster.source}: proxy-url")
    return ClusterConfig(
        server=server.rstrip("/"),
        namespace=context.get("namespace", str) or "default",
        ca=ca,
        credentials=_credentials(user, cluster),
        impersonate=_impersonation(user),
        proxy_url=proxy_url,
        tls_server_name=cluster.get("tls-server-name", str) or None,
        insecure_skip_tls_verify=insecure,
        disable_compression=cluster.get("disable-compression", bool),
        source=cluster.source,
    )


def _credentials(user: _Entry, cluster: _Entry) -> Credentials:
    if user.values.get("auth-provider"):
        raise ConfigurationError(
            f"{user.source}: auth-provider was removed in Kubernetes 1.26: use exec with a plugin such as "
            "gke-gcloud-auth-plugin, kubelogin (Azure) or kubectl-oidc_login"
        )
    parts = [
        part for part in (_certificate(user), _token(user), _basic_auth(user), _exec_plugin(user, cluster)) if part
    ]
    if user.get("username", str) and (user.get("token", str) or user.get("tokenFile", str)):
        raise ConfigurationError(f"{user.source}: token and username are mutually exclusive: remove one")
    if not parts:
        return Anonymous()
    return parts[0] if len(parts) == 1 else CredentialChain(tuple(parts))


def _certificate(user: _Entry) -> Credentials | None:
    certificate, key = user.pem("client-certificate"), user.pem("client-key")
    if (certificate is None) != (key is None):
        raise ConfigurationError(
            f"{user.source}: client-certificate and client-key must be set together: one is missing"
        )
    source = f"{user.source}: client-certificate and client-key"
    return ClientCertificate(certificate, key, source) if certificate and key else None


def _token(user: _Entry) -> Credentials | None:
    token, file = user.get("token", str), user.get("tokenFile", str)
    if file:
        return TokenFile(user.file.parent / file, token or None)
    return StaticToken(token) if token else None


def _basic_auth(user: _Entry) -> Credentials | None:
    username, password = user.get("username", str), user.get("password", str)
    return BasicAuth(username, password or "") if username else None


def _exec_plugin(user: _Entry, cluster: _Entry) -> Credentials | None:
    values = cast("dict[str, Any]", user.get("exec", dict) or {})
    if not values:
        return None
    entry = _Entry(user.file, f"{user.source}: exec", values)
    command, version = entry.get("command", str), entry.get("apiVersion", str)
    if not command:
        raise ConfigurationError(f"{entry.source}: command is not set")
    if version not in API_VERSIONS:
        raise ConfigurationError(f"{entry.source}: apiVersion must be {' or '.join(API_VERSIONS)}")
    if os.sep in command:
        command = str(entry.file.parent.absolute() / command)
    return ExecPluginCredentials(
        ExecPlugin(
            command=command,
            arguments=entry.strings("args"),
            environment=_environment(entry),
            api_version=version,
            interactive_mode=_interactive_mode(entry, version),
            install_hint=entry.get("installHint", str) or "",
            cluster=_cluster_info(cluster) if entry.get("provideClusterInfo", bool) else None,
            source=entry.source,
        )
    )


def _environment(entry: _Entry) -> dict[str, str]:
    variables: dict[str, str] = {}
    for item in cast("list[Any]", entry.get("env", list) or []):
        source = f"{entry.source}: env"
        variable = cast("dict[str, Any]", _expect(dict, item, source))
        variables[_expect(str, variable.get("name"), f"{source}: name")] = _expect(
            str, variable.get("value") or "", f"{source}: value"
        )
    return variables


def _interactive_mode(entry: _Entry, version: str) -> InteractiveMode:
    mode, modes = entry.get("interactiveMode", str), get_args(InteractiveMode)
    if mode is None and version != API_VERSIONS[0]:
        return "IfAvailable"
    if mode not in modes:
        raise ConfigurationError(f"{entry.source}: interactiveMode must be one of {', '.join(modes)}")
    return cast("InteractiveMode", mode)


def _cluster_info(cluster: _Entry) -> dict[str, Any]:
    """Return ``spec.cluster`` of an ExecCredential, including the plugin's configuration."""
    copied_fields = ("server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url", "disable-compression")
    info = {name: cluster.values[name] for name in copied_fields if cluster.values.get(name)}
    ca = cluster.pem("certificate-authority")
    if ca:
        data = load_pem(ca, f"{cluster.source}: certificate-authority")
        info["certificate-authority-data"] = base64.b64encode(data).decode()
    for item in cast("list[Any]", cluster.get("extensions", list) or []):
        extension = cast("dict[str, Any]", _expect(dict, item, f"{cluster.source}: extensions"))
        if extension.get("name") == _EXEC_EXTENSION:
            info["config"] = extension.get("extension")
    return info


def _impersonation(user: _Entry) -> Impersonation | None:
    name, uid, groups = user.get("as", str), user.get("as-uid", str), user.strings("as-groups")
    extra = cast("dict[str, Any]", user.get("as-user-extra", dict) or {})
    if not name:
        if uid or groups or extra:
            raise ConfigurationError(
                f"{user.source}: as-uid, as-groups and as-user-extra require as: set the user to impersonate"
            )
        return None
    entry = _Entry(user.file, f"{user.source}: as-user-extra", extra)
    return Impersonation(user=name, uid=uid or "", groups=groups, extra={key: entry.strings(key) for key in extra})
