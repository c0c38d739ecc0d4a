"""Options and output of ``steersman dev``."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from framework_support.projects import write_project
from steersman.client import SyncClient
from steersman.errors import ConfigurationError
from steersman.meta import ApiResource, unstructured
from steersman_cli import app
from steersman_cli.dev.session import DevSession
from steersman_cli.local_api_server import start_api_server
from steersman_cli.local_operator import debug_address, loopback_address
from steersman_cli.project import Project

INIT = ("init", "--domain", "example.com", "--project-name", "shop")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project.load(write_project(tmp_path / "shop", INIT))


class FakeEnvironment:
    """Environment that records what is installed."""

    server = "http://127.0.0.1:1"
    webhooks = Mock(host="127.0.0.1", port=1)

    def __init__(self, error: Exception | None = None) -> None:
        self.installed: list[str] = []
        self.installed_webhooks: set[str] = set()
        self._error = error

    def install_crds(self, *crds: dict[str, Any]) -> None:
        if self._error is not None:
            raise self._error
        self.installed += [crd["metadata"]["name"] for crd in crds]

    def install_webhooks(self, *configurations: dict[str, Any]) -> None:
        self.installed_webhooks |= {each["metadata"]["name"] for each in configurations}

    def uninstall_webhooks(self, *configurations: dict[str, Any]) -> None:
        self.installed_webhooks -= {each["metadata"]["name"] for each in configurations}


def session(project: Project, environment: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> DevSession:
    monkeypatch.setattr("steersman_cli.dev.session.generate_in_subprocess", Mock())
    kubeconfig = project.root / "kubeconfig"
    return DevSession(project, cast("Any", environment), kubeconfig, "127.0.0.1:8082", ("--log-level", "debug"))


def write_crd(project: Project, plural: str) -> None:
    directory = project.root / "config/crd/bases"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f"{plural}.yaml").write_text(
        f"apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {{name: {plural}.shop}}\n"
        f"spec: {{group: shop, names: {{plural: {plural}}}}}\n"
    )


def write_webhooks(project: Project, *prefixes: str) -> None:
    text = "".join(
        f"---\napiVersion: admissionregistration.k8s.io/v1\nkind: {prefix}WebhookConfiguration\n"
        f"metadata: {{name: {prefix.lower()}}}\n"
        for prefix in prefixes
    )
    (project.root / "config/webhook/manifests.yaml").write_text(text)


def test_prepare_installs_only_changed_crds(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = FakeEnvironment()
    under_test = session(project, environment, monkeypatch)
    write_crd(project, "carts")
    under_test.prepare()
    under_test.prepare()
    assert environment.installed == ["carts.shop"]
    write_crd(project, "tills")
    under_test.prepare()
    assert environment.installed == ["carts.shop", "carts.shop", "tills.shop"]


def test_prepare_uninstalls_removed_webhooks(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = FakeEnvironment()
    under_test = session(project, environment, monkeypatch)
    write_webhooks(project, "Mutating", "Validating")
    under_test.prepare()
    assert environment.installed_webhooks == {"mutating", "validating"}
    write_webhooks(project, "Validating")
    under_test.prepare()
    assert environment.installed_webhooks == {"validating"}
    write_webhooks(project)
    assert "--no-webhooks" in under_test.prepare()
    assert environment.installed_webhooks == set()


def test_prepare_without_webhooks_switches_them_off(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    options = session(project, FakeEnvironment(), monkeypatch).prepare()
    assert "--no-webhooks" in options
    assert options[:2] == ["--kubeconfig", str(project.root / "kubeconfig")]
    # Options of the user come last, so that they win.
    assert options[-2:] == ["--log-level", "debug"]


def test_prepare_rejected_crd_still_starts_operator(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_crd(project, "carts")
    environment = FakeEnvironment(ConfigurationError("carts.shop is invalid"))
    assert session(project, environment, monkeypatch).prepare()
    assert "manifests not installed: carts.shop is invalid" in capsys.readouterr().err


def test_new_stored_version_is_served_before_its_webhook() -> None:
    webhook = {"clientConfig": {"url": "https://127.0.0.1:1/convert"}, "conversionReviewVersions": ["v1"]}
    versions: list[dict[str, Any]] = [
        {"name": name, "served": True, "storage": name == "v2", "schema": {"openAPIV3Schema": {"type": "object"}}}
        for name in ("v1", "v2")
    ]
    before = {"conversion": {"strategy": "None"}, "versions": [{**versions[0], "storage": True}]}
    after = {"conversion": {"strategy": "Webhook", "webhook": webhook}, "versions": versions}
    cart = unstructured(ApiResource("shop.example.com", "v1", "Cart", "carts"))
    with start_api_server(envtest=False, port=0) as environment:
        environment.install_crds(carts_crd(before))
        with SyncClient(environment.config) as client:
            client.create(cart.of({"metadata": {"name": "a", "namespace": "default"}}))
        # The operator serves the conversion, and starts after the CRD.
        environment.install_crds(carts_crd(after))


def carts_crd(spec: dict[str, Any]) -> dict[str, Any]:
    names = {"plural": "carts", "singular": "cart", "kind": "Cart", "listKind": "CartList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "carts.shop.example.com"},
        "spec": {"group": "shop.example.com", "scope": "Namespaced", "names": names, **spec},
    }


def test_dev_keeps_foreign_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = write_project(tmp_path / "shop", INIT)
    (root / "kubeconfig").write_text("kind: Config\ncurrent-context: production\n")
    monkeypatch.chdir(root)
    result = CliRunner().invoke(app, ["dev"])
    assert result.exit_code == 2
    assert "was not written by this command: choose another --kubeconfig" in result.output


def test_start_api_server_port_in_use_is_reported() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot listen on port {port}"):
            start_api_server(envtest=False, port=port).__enter__()


def test_loopback_address_falls_back_to_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        address = loopback_address(port)
    assert address != f"127.0.0.1:{port}"
    assert address.startswith("127.0.0.1:")
    assert loopback_address(port) == f"127.0.0.1:{port}"


def test_dev_prints_free_ports_instead_of_ports_in_use(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as metrics, socket.create_server(("127.0.0.1", 0)) as probes:
        taken = {server.getsockname()[1] for server in (metrics, probes)}
        monkeypatch.setattr("steersman_cli.dev.session._METRICS_PORT", metrics.getsockname()[1])
        monkeypatch.setattr("steersman_cli.dev.session._PROBE_PORT", probes.getsockname()[1])
        options = session(project, FakeEnvironment(), monkeypatch).prepare()
    output = capsys.readouterr().out
    for option, path in (("--metrics-bind-address", "metrics"), ("--health-probe-bind-address", "readyz")):
        address = options[options.index(option) + 1]
        assert int(address.rpartition(":")[2]) not in taken
        assert f"http://{address}/{path}" in output


def test_debug_address_in_use_prints_url(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        monkeypatch.setattr("steersman_cli.local_operator.DEBUG_PORT", other.getsockname()[1])
        address = debug_address()
    assert f"--url http://{address}" in capsys.readouterr().err
