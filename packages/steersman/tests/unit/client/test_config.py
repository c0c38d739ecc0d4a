"""Kubeconfig and in-cluster configuration.

Errors name the file and the field, and contain no secret.
"""

from __future__ import annotations

import base64
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from steersman.client import ClusterConfig, load_config
from steersman.client.config import Impersonation
from steersman.client.config_loader import in_cluster_config
from steersman.client.credentials import (
    Anonymous,
    BasicAuth,
    ClientCertificate,
    CredentialChain,
    Identity,
    StaticToken,
    TokenFile,
)
from steersman.client.exec_plugin import ExecPlugin, ExecPluginCredentials
from steersman.client.transport.tls import create_ssl_context
from steersman.errors import ConfigurationError

CERTIFICATE = b"-----BEGIN CERTIFICATE-----\nnot really\n-----END CERTIFICATE-----\n"
KEY = b"-----BEGIN PRIVATE KEY-----\nnot really\n-----END PRIVATE KEY-----\n"


@pytest.fixture(autouse=True)
def no_cluster_configured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(**changes: Any) -> dict[str, Any]:
    """Return a complete kubeconfig.

    ``cluster``, ``user`` and ``context`` add or replace fields. None removes a field.
    """

    def merged(section: str, fields: dict[str, Any]) -> dict[str, Any]:
        return {k: v for k, v in {**fields, **changes.get(section, {})}.items() if v is not None}

    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": merged("context", {"cluster": "c", "user": "u"})}],
        "clusters": [{"name": "c", "cluster": merged("cluster", {"server": "https://10.0.0.1:6443/"})}],
        "users": [{"name": "u", "user": merged("user", {"token": "s3cret"})}],
    }


CONFLICTING_TLS_OPTIONS = {
    "insecure-skip-tls-verify": True,
    "certificate-authority-data": base64.b64encode(CERTIFICATE).decode(),
}
EXEC_PLUGIN: dict[str, Any] = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "login",
    "interactiveMode": "Never",
}


def write(path: Path, document: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document))
    return path


def test_config_reads_server_and_token(tmp_path: Path) -> None:
    found = load_config(write(tmp_path / "config", kubeconfig(context={"namespace": "shop"})))
    assert found == ClusterConfig(server="https://10.0.0.1:6443", namespace="shop", credentials=StaticToken("s3cret"))


def test_secrets_stay_out_of_repr(tmp_path: Path) -> None:
    inline = {"client-certificate-data": base64_encode(CERTIFICATE), "client-key-data": base64_encode(KEY)}
    config = kubeconfig(
        user={**inline, "exec": {**EXEC_PLUGIN, "args": ["s3cret"], "env": [{"name": "A", "value": "s3cret"}]}}
    )
    config["clusters"][0]["cluster"]["proxy-url"] = "http://me:s3cret@proxy:3128"
    found = load_config(write(tmp_path / "config", config))
    assert isinstance(found.credentials, CredentialChain)
    assert ClientCertificate(CERTIFICATE, KEY) in found.credentials.providers
    assert found.proxy_url == "http://me:s3cret@proxy:3128"
    basic = load_config(
        write(tmp_path / "config", kubeconfig(user={"token": None, "username": "u", "password": "s3cret"}))
    )
    identity = Identity("Bearer s3cret", CERTIFICATE, KEY)
    for shown in (repr(found), repr(basic), repr(identity)):
        assert "s3cret" not in shown
        assert "PRIVATE" not in shown


def base64_encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.requirement("user/kubeconfig")
def test_certificates_inline(tmp_path: Path) -> None:
    wrapped = "\n".join(textwrap.wrap(base64_encode(CERTIFICATE), 20))
    config = kubeconfig(
        cluster={"certificate-authority-data": wrapped},
        user={"client-certificate-data": base64_encode(CERTIFICATE), "client-key-data": base64_encode(KEY)},
    )
    found = load_config(write(tmp_path / "config", config))
    assert found.ca == CERTIFICATE
    assert found.credentials.load() == Identity("Bearer s3cret", CERTIFICATE, KEY)


@pytest.mark.requirement("user/kubeconfig")
def test_config_resolves_files_relative_to_kubeconfig(tmp_path: Path) -> None:
    for name, data in (("ca.crt", CERTIFICATE), ("me.crt", CERTIFICATE), ("me.key", KEY)):
        (tmp_path / name).write_bytes(data)
    config = kubeconfig(
        cluster={"certificate-authority": "ca.crt", "tls-server-name": "kubernetes"},
        user={"client-certificate": "me.crt", "client-key": str(tmp_path / "me.key"), "tokenFile": "token"},
    )
    found = load_config(write(tmp_path / "config", config))
    assert found.ca == tmp_path / "ca.crt"
    assert found.tls_server_name == "kubernetes"
    (tmp_path / "token").write_text("rotated\n")
    assert found.credentials.load() == Identity("Bearer rotated", CERTIFICATE, KEY)


def test_config_supports_basic_auth(tmp_path: Path) -> None:
    found = load_config(
        write(tmp_path / "config", kubeconfig(user={"token": None, "username": "jane", "password": "p"}))
    )
    assert found.credentials == BasicAuth("jane", "p")
    assert found.credentials.load() == Identity("Basic amFuZTpw")


def test_config_reads_impersonation(tmp_path: Path) -> None:
    fields = {"as": "jane", "as-uid": "7", "as-groups": ["a", "b"], "as-user-extra": {"scopes": ["view", "edit"]}}
    found = load_config(write(tmp_path / "config", kubeconfig(user=fields)))
    assert found.impersonate == Impersonation(
        user="jane", uid="7", groups=("a", "b"), extra={"scopes": ("view", "edit")}
    )


def test_config_reads_exec_plugin(tmp_path: Path) -> None:
    fields = EXEC_PLUGIN | {
        "command": "./bin/login",
        "args": ["--quiet"],
        "env": [{"name": "REGION", "value": "north"}, {"name": "EMPTY"}],
        "installHint": "brew install login",
        "provideClusterInfo": True,
    }
    cluster = {
        "certificate-authority-data": base64_encode(CERTIFICATE),
        "tls-server-name": "kubernetes",
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}},
            {"name": "another", "extension": {"y": 1}},
        ],
    }
    found = load_config(write(tmp_path / "config", kubeconfig(user={"token": None, "exec": fields}, cluster=cluster)))
    assert isinstance(found.credentials, ExecPluginCredentials)
    assert found.credentials.plugin == ExecPlugin(
        command=str(tmp_path / "bin/login"),
        arguments=("--quiet",),
        environment={"REGION": "north", "EMPTY": ""},
        interactive_mode="Never",
        install_hint="brew install login",
        source=f"{tmp_path / 'config'}: user 'u': exec",
        cluster={
            "server": "https://10.0.0.1:6443/",
            "tls-server-name": "kubernetes",
            "certificate-authority-data": base64_encode(CERTIFICATE),
            "config": {"audience": "x"},
        },
    )


def test_config_exec_v1beta1_mode_defaults_to_if_available(tmp_path: Path) -> None:
    fields = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "login"}
    found = load_config(write(tmp_path / "config", kubeconfig(user={"token": None, "exec": fields})))
    assert isinstance(found.credentials, ExecPluginCredentials)
    plugin = found.credentials.plugin
    assert (plugin.command, plugin.interactive_mode, plugin.cluster) == ("login", "IfAvailable", None)


def test_config_context_without_user_is_anonymous(tmp_path: Path) -> None:
    config = kubeconfig()
    config["contexts"].append({"name": "there", "context": {"cluster": "c"}})
    found = load_config(write(tmp_path / "config", config), context="there")
    assert found.credentials == Anonymous()


@pytest.mark.requirement("user/kubeconfig")
def test_config_kubeconfig_files_are_merged_first_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = write(tmp_path / "one", {"clusters": kubeconfig(cluster={"server": "https://one:1"})["clusters"]})
    two = write(tmp_path / "two", kubeconfig(cluster={"server": "https://two:2"}))
    empty = write(tmp_path / "empty", "# nothing yet\n")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'missing'}:{empty}:{one}:{two}")
    found = load_config()
    assert (found.server, found.credentials) == ("https://one:1", StaticToken("s3cret"))


def test_config_in_cluster_precedes_home_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "home/.kube/config", kubeconfig())
    assert load_config().server == "https://10.0.0.1:6443"
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    with pytest.raises(ConfigurationError, match="automountServiceAccountToken"):
        load_config()


def test_config_missing_everywhere_raises_with_remedy() -> None:
    with pytest.raises(ConfigurationError, match="set KUBECONFIG"):
        load_config()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cluster": {"server": None}}, "cluster 'c': server must be a URL"),
        ({"cluster": {"server": "10.0.0.1:6443"}}, "cluster 'c': server must be a URL"),
        ({"cluster": {"server": 6443}}, "cluster 'c': server: expected str, not int"),
        ({"cluster": {"certificate-authority": "nowhere.crt"}}, "cluster 'c': certificate-authority: cannot read "),
        ({"cluster": {"certificate-authority-data": "%%%"}}, "certificate-authority-data is not base64"),
        ({"cluster": {"certificate-authority-data": "é"}}, "certificate-authority-data is not base64"),
        ({"cluster": {"certificate-authority-data": "aGVsbG8="}}, "certificate-authority-data contains no PEM"),
        ({"cluster": {"insecure-skip-tls-verify": "false"}}, "insecure-skip-tls-verify: expected bool, not str"),
        ({"cluster": {"proxy-url": "proxy:3128"}}, "cluster 'c': proxy-url is not a URL"),
        ({"cluster": {"proxy-url": "socks5://proxy:1"}}, "cluster 'c': proxy-url: socks5 is not supported: use"),
        (
            {"cluster": {"insecure-skip-tls-verify": True, "certificate-authority-data": base64_encode(CERTIFICATE)}},
            "mutually exclusive",
        ),
        ({"cluster": {"server": "https://me:s3cret@10.0.0.1"}}, "cluster 'c': server must not contain credentials"),
        ({"user": {"token": 7}}, "user 'u': token: expected str, not int"),
        (
            {"user": {"exec": {"command": "x"}}},
            "user 'u': exec: apiVersion must be client.authentication.k8s.io",
        ),
        ({"user": {"exec": EXEC_PLUGIN | {"command": ""}}}, "user 'u': exec: command is not set"),
        ({"user": {"exec": EXEC_PLUGIN | {"args": "x"}}}, "user 'u': exec: args: expected list, not str"),
        ({"user": {"exec": EXEC_PLUGIN | {"env": [{"value": "x"}]}}}, "user 'u': exec: env: name: expected str"),
        (
            {"user": {"exec": EXEC_PLUGIN | {"interactiveMode": None}}},
            "exec: interactiveMode must be one of Never, ",
        ),
        (
            {"user": {"exec": EXEC_PLUGIN | {"interactiveMode": "Now"}}},
            "exec: interactiveMode must be one of Never, ",
        ),
        ({"user": {"auth-provider": {"name": "gcp"}}}, "user 'u': auth-provider was removed .* use exec"),
        ({"user": {"username": "jane", "password": "p"}}, "user 'u': token and username are mutually exclusive"),
        ({"user": {"as-groups": ["a"]}}, "user 'u': as-uid, as-groups and as-user-extra require as"),
        ({"user": {"as": "a", "as-user-extra": {"scopes": "x"}}}, "as-user-extra: scopes: expected list, not str"),
        (
            {"user": {"client-key-data": base64_encode(KEY)}},
            "user 'u': client-certificate and client-key must be set together",
        ),
        ({"user": {"client-certificate": "."}}, "user 'u': client-certificate: cannot read "),
        ({"context": {"cluster": None}}, "context 'here': cluster is not set"),
        ({"context": {"cluster": "d"}}, r"context 'here': cluster: 'd' is not defined \(defined: c\)"),
        ({"context": {"user": "v"}}, r"context 'here': user: 'v' is not defined \(defined: u\)"),
    ],
)
def test_failures_name_file_and_field(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "config", kubeconfig(**changes))
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("broken", ["certificate-authority", "client-certificate"])
def test_config_invalid_certificate_names_its_user_or_cluster(tmp_path: Path, broken: str) -> None:
    user = {"client-certificate-data": base64_encode(CERTIFICATE), "client-key-data": base64_encode(KEY)}
    cluster = {"certificate-authority-data": base64_encode(CERTIFICATE)}
    entries = {"cluster": cluster} if broken == "certificate-authority" else {"user": user}
    path = write(tmp_path / "config", kubeconfig(**entries))
    config = load_config(path)
    with pytest.raises(ConfigurationError, match=f"{path}: (cluster 'c'|user 'u'): {broken}"):
        create_ssl_context(config, config.credentials.load())


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("[1, 2]", "not a kubeconfig"),
        ("", "current-context is not set"),
        ("contexts: {a: b}\ncurrent-context: x", "contexts: expected list, not dict"),
        ("contexts: [here]\ncurrent-context: here", "contexts: expected dict, not str"),
        ("contexts: [{name: here, context: c}]\ncurrent-context: here", "context 'here': expected dict, not str"),
        ("contexts: []", "current-context is not set"),
        ("contexts: []\ncurrent-context: gone", r"context: 'gone' is not defined \(defined: none\)"),
    ],
)
def test_malformed_files(tmp_path: Path, document: str, message: str) -> None:
    path = write(tmp_path / "config", document)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_config(path)
    assert str(caught.value).startswith(str(path))


def test_config_invalid_yaml_error_hides_content(tmp_path: Path) -> None:
    path = write(tmp_path / "config", "users:\n- name: u\n  user: {token: s3cret]\n")
    with pytest.raises(ConfigurationError, match=r"config, line 3: invalid YAML") as caught:
        load_config(path)
    assert "s3cret" not in str(caught.value)
    assert caught.value.__suppress_context__
    (tmp_path / "binary").write_bytes(b"\x00\xff")
    with pytest.raises(ConfigurationError, match="invalid YAML"):
        load_config(tmp_path / "binary")


def test_config_missing_file_error_names_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=f"kubeconfig not found: {tmp_path / 'gone'}"):
        load_config(tmp_path / "gone")


def service_account(directory: Path) -> Path:
    for name, data in (("token", b"t\n"), ("ca.crt", CERTIFICATE), ("namespace", b"shop\n")):
        (directory / name).write_bytes(data)
    return directory


@pytest.mark.parametrize(
    ("host", "server"), [("10.96.0.1", "https://10.96.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
def test_in_cluster_config_reads_service_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    found = in_cluster_config(service_account(tmp_path))
    assert (found.server, found.namespace, found.ca) == (server, "shop", tmp_path / "ca.crt")
    assert found.credentials == TokenFile(tmp_path / "token")
    assert found.credentials.load() == Identity("Bearer t")


def test_in_cluster_config_error_names_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="KUBERNETES_SERVICE_HOST is not set"):
        in_cluster_config(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
    service_account(tmp_path)
    (tmp_path / "namespace").unlink()
    assert in_cluster_config(tmp_path).namespace == "default"
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(ConfigurationError, match=r"certificate authority: cannot read .*ca\.crt"):
        in_cluster_config(tmp_path)
