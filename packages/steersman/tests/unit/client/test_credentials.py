"""Tokens, certificates and exec plugins: caching, reloads and errors."""

from __future__ import annotations

import json
import math
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from framework_support.certificates import CertificateAuthority
from steersman.client.credentials import (
    Anonymous,
    ClientCertificate,
    CredentialChain,
    Identity,
    StaticToken,
    TokenFile,
)
from steersman.client.exec_plugin import API_VERSIONS, ExecPlugin, ExecPluginCredentials
from steersman.errors import ConfigurationError, CredentialsFailed


def test_anonymous_credentials_are_empty() -> None:
    assert Anonymous().load() == Identity()


def test_token_file_is_reloaded(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("one\n")
    source = TokenFile(file, "old")
    assert source.load() == Identity("Bearer one")
    assert 0 < source.load().valid_for <= 60
    file.write_text("two\n")
    assert source.load() == Identity("Bearer two")


@pytest.mark.parametrize("gone", ["removed", "truncated", "binary"])
def test_unreadable_token_file_keeps_last_token(tmp_path: Path, gone: str) -> None:
    file = tmp_path / "token"
    file.write_text("one")
    source = TokenFile(file)
    source.load()
    if gone == "removed":
        file.unlink()
    else:
        file.write_bytes(b"" if gone == "truncated" else b"\xff\xfe")
    assert source.load() == Identity("Bearer one")


def test_missing_token_file_is_named(tmp_path: Path) -> None:
    assert TokenFile(tmp_path / "token", "first").load() == Identity("Bearer first")
    with pytest.raises(CredentialsFailed, match=rf"cannot read the token file {tmp_path / 'token'}: No such"):
        TokenFile(tmp_path / "token").load()
    (tmp_path / "token").touch()
    with pytest.raises(CredentialsFailed, match=r"the token file .*token is empty"):
        TokenFile(tmp_path / "token").load()


@pytest.mark.parametrize("token", ["s3cret\r\nX-Evil: 1", "s3 cret", "s3crét"])
def test_invalid_token_error_hides_token(token: str) -> None:
    with pytest.raises(CredentialsFailed, match="printable ASCII") as caught:
        StaticToken(token).load()
    assert "s3" not in str(caught.value)


def test_certificate_files_are_read_again(tmp_path: Path) -> None:
    certificate, key = CertificateAuthority().issue("jane")
    source = ClientCertificate(tmp_path / "tls.crt", tmp_path / "tls.key")
    with pytest.raises(ConfigurationError, match=rf"client certificate: cannot read {tmp_path / 'tls.crt'}"):
        source.load()
    (tmp_path / "tls.crt").write_bytes(certificate)
    (tmp_path / "tls.key").write_bytes(b"?")
    with pytest.raises(ConfigurationError, match=rf"client key: {tmp_path / 'tls.key'} contains no PEM"):
        source.load()
    (tmp_path / "tls.key").write_bytes(key)
    assert source.load() == Identity(None, certificate, key)
    assert source.load().valid_for <= 60
    assert ClientCertificate(certificate, key).load().valid_for == math.inf


def test_credential_chain_uses_first_of_each_kind(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("later")
    parts = (ClientCertificate(b"c", b"k"), StaticToken("first"), TokenFile(tmp_path / "token"))
    found = CredentialChain(parts).load()
    assert found == Identity("Bearer first", b"c", b"k")
    assert found.valid_for == 60


class FakeExecPlugin:
    """Exec plugin with a scripted response, which records each run."""

    def __init__(self, directory: Path, **fields: Any) -> None:
        self.now = 1_000_000.0
        self._directory = directory
        script = directory / "login"
        script.write_text(
            f"#!{sys.executable}\n"
            "import json, os, pathlib, sys\n"
            "here = pathlib.Path(__file__).parent\n"
            "told, region = os.environ['KUBERNETES_EXEC_INFO'], os.environ.get('REGION')\n"
            "run = {'args': sys.argv[1:], 'info': told, 'region': region}\n"
            "with (here / 'runs').open('a') as runs: runs.write(json.dumps(run) + '\\n')\n"
            "exec((here / 'answer').read_text())\n"
        )
        script.chmod(stat.S_IRWXU)
        plugin = ExecPlugin(command=str(script), source="config: user 'u': exec", **fields)
        self.credentials = ExecPluginCredentials(plugin, lambda: self.now)

    def set_script(self, code: str) -> None:
        (self._directory / "answer").write_text(code)

    def respond(self, version: str = API_VERSIONS[0], kind: str = "ExecCredential", **status: Any) -> None:
        self.set_script(f"print({json.dumps({'apiVersion': version, 'kind': kind, 'status': status})!r})")

    @property
    def runs(self) -> Sequence[dict[str, Any]]:
        file = self._directory / "runs"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_exec_plugin_receives_cluster_without_shell(tmp_path: Path) -> None:
    cluster = {"server": "https://10.0.0.1", "config": {"audience": "x"}}
    plugin = FakeExecPlugin(tmp_path, arguments=("$HOME", "a b"), environment={"REGION": "north"}, cluster=cluster)
    plugin.respond(token="t")
    assert plugin.credentials.load() == Identity("Bearer t")
    run = plugin.runs[0]
    assert (run["args"], run["region"]) == (["$HOME", "a b"], "north")
    assert json.loads(run["info"]) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False, "cluster": cluster},
    }


def test_exec_plugin_v1beta1_is_supported(tmp_path: Path) -> None:
    plugin = FakeExecPlugin(tmp_path, api_version=API_VERSIONS[1])
    plugin.respond(API_VERSIONS[1], token="t")
    assert plugin.credentials.load() == Identity("Bearer t")
    assert json.loads(plugin.runs[0]["info"])["apiVersion"] == API_VERSIONS[1]
    assert "cluster" not in json.loads(plugin.runs[0]["info"])["spec"]


def test_exec_plugin_token_is_cached_until_expiry(tmp_path: Path) -> None:
    plugin = FakeExecPlugin(tmp_path)
    plugin.now = 1_700_000_000.0  # 2023-11-14T22:13:20Z
    plugin.respond(token="one", expirationTimestamp="2023-11-14T22:23:20Z")
    assert plugin.credentials.load().valid_for == 600
    plugin.now += 599
    plugin.respond(token="two")
    assert plugin.credentials.load() == Identity("Bearer one")
    assert len(plugin.runs) == 1
    plugin.now += 1
    assert plugin.credentials.load() == Identity("Bearer two")
    plugin.now += 1e9
    assert plugin.credentials.load().valid_for == math.inf
    assert len(plugin.runs) == 2


def test_exec_plugin_reruns_after_401_with_minimum_interval(tmp_path: Path) -> None:
    plugin = FakeExecPlugin(tmp_path)
    plugin.respond(token="one")
    refused = plugin.credentials.load()
    plugin.respond(token="two")
    assert plugin.credentials.load(refused) == refused
    plugin.now += 60
    # The rejected identity may contain a certificate from another source.
    assert plugin.credentials.load(Identity(refused.authorization, b"c", b"k")) == Identity("Bearer two")
    plugin.now += 60
    # The plugin has run since this identity was rejected.
    assert plugin.credentials.load(refused) == Identity("Bearer two")
    assert len(plugin.runs) == 2


def test_exec_plugin_returns_client_certificate(tmp_path: Path) -> None:
    certificate, key = CertificateAuthority().issue("jane")
    plugin = FakeExecPlugin(tmp_path)
    plugin.respond(clientCertificateData=certificate.decode(), clientKeyData=key.decode())
    assert plugin.credentials.load() == Identity(None, certificate, key)


JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJqYW5lIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.exit('no session: log in first')", r"exited with code 1: no session: log in first$"),
        (f"sys.exit('refused {JWT} for jane')", r"exited with code 1: refused \[hidden\] for jane$"),
        ("sys.exit('password=hunter22 is wrong')", r"exited with code 1: \[hidden\] is wrong$"),
        ("sys.exit('sent Authorization: Bearer hunter22')", r"exited with code 1: sent Authorization: \[hidden\]$"),
        ("sys.exit('with ' + os.environ['LOGIN'] + ' nobody')", r"exited with code 1: with \[hidden\] nobody$"),
        ("print('hunter22')", r"returned an invalid ExecCredential: JSON is malformed"),
        ("print('[\"hunter22\"]')", r"returned an invalid ExecCredential: Expected `object`"),
        ("os.kill(os.getpid(), 9)", r"exited with code -9$"),
    ],
)
def test_exec_plugin_error_contains_no_secrets(tmp_path: Path, code: str, message: str) -> None:
    plugin = FakeExecPlugin(tmp_path, environment={"LOGIN": "hunter22-and-more"})
    plugin.set_script(code)
    with pytest.raises(CredentialsFailed, match=message) as caught:
        plugin.credentials.load()
    assert str(caught.value).startswith("config: user 'u': exec: ")
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"version": API_VERSIONS[1], "token": "t"}, f"returned {API_VERSIONS[1]} instead of {API_VERSIONS[0]}"),
        ({"kind": "Token", "token": "t"}, "returned"),
        ({}, "returned neither a token nor a client certificate"),
        ({"clientCertificateData": "c"}, "only one of clientCertificateData and clientKeyData"),
        ({"token": "a b"}, "printable ASCII"),
        ({"token": "t", "expirationTimestamp": "tomorrow"}, "returned an invalid ExecCredential"),
    ],
)
def test_exec_plugin_invalid_output_raises(tmp_path: Path, answer: dict[str, Any], message: str) -> None:
    plugin = FakeExecPlugin(tmp_path)
    plugin.respond(**answer)
    with pytest.raises(CredentialsFailed, match=message):
        plugin.credentials.load()


def test_exec_plugin_missing_shows_install_hint() -> None:
    absent = ExecPlugin(command="kubectl-none-such", install_hint="brew install none-such", source="config")
    with pytest.raises(
        CredentialsFailed, match=r"config: kubectl-none-such is not installed.*\nbrew install none-such"
    ):
        ExecPluginCredentials(absent).load()


def test_exec_plugin_timeout_kills_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steersman.client.exec_plugin._TIMEOUT_SECONDS", 1.0)
    plugin = FakeExecPlugin(tmp_path)
    # The child keeps the pipes open. Waiting for their end would wait for the child.
    plugin.set_script(
        "import subprocess, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "(here / 'new').write_text(str(child.pid))\n"
        "(here / 'new').rename(here / 'pid')\n"
        "time.sleep(600)"
    )
    with pytest.raises(CredentialsFailed, match="timed out"):
        plugin.credentials.load()
    # On a busy machine, the script may be killed before it starts the child.
    if (tmp_path / "pid").exists():
        wait_until_ended(int((tmp_path / "pid").read_text()))


def wait_until_ended(pid: int) -> None:
    """Wait until the process has exited. It may remain a zombie."""
    deadline = time.monotonic() + 30
    state = Path(f"/proc/{pid}/stat")
    while time.monotonic() < deadline:
        try:
            if state.read_text().rpartition(")")[2].split()[0] == "Z":
                return
        except (FileNotFoundError, ProcessLookupError):
            return
        time.sleep(0.01)
    raise AssertionError(f"process {pid} still runs")


@pytest.mark.parametrize("absent", [False, True])
def test_exec_plugin_interactive_requires_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, absent: bool
) -> None:
    plugin = FakeExecPlugin(tmp_path, interactive_mode="Always")
    plugin.respond(token="t")
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", None if absent else nothing)
        with pytest.raises(CredentialsFailed, match="standard input is not a terminal"):
            plugin.credentials.load()
    assert plugin.runs == []


def test_exec_plugin_non_interactive_has_no_stdin(tmp_path: Path) -> None:
    plugin = FakeExecPlugin(tmp_path)
    answer = {"apiVersion": API_VERSIONS[0], "kind": "ExecCredential"}
    plugin.set_script(f"print(json.dumps({answer!r} | {{'status': {{'token': 'read:' + sys.stdin.read()}}}}))")
    kept, (readable, writable) = os.dup(0), os.pipe()
    try:
        os.dup2(readable, 0)
        os.write(writable, b"ours")
        os.close(writable)
        assert plugin.credentials.load() == Identity("Bearer read:")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(readable)


def test_exec_plugin_is_interactive_on_a_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    with os.fdopen(theirs, "r") as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        plugin = FakeExecPlugin(tmp_path, interactive_mode="IfAvailable")
        plugin.respond(token="t")
        plugin.credentials.load()
    os.close(ours)
    assert json.loads(plugin.runs[0]["info"])["spec"]["interactive"] is True
