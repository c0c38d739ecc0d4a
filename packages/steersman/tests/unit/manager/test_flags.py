"""Manager flags and their combination with options of a command."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from steersman.errors import ConfigurationError
from steersman.manager.flags import ManagerFlags, with_manager_flags
from steersman.manager.options import ManagerOptions
from steersman.webhook import WebhookServerOptions


def parse(*arguments: str) -> tuple[ManagerFlags, str]:
    """Flags and the option of a command that has its own ``port``."""
    app = typer.Typer()
    seen: list[tuple[ManagerFlags, str]] = []

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags, port: Annotated[str, typer.Option(help="Where to moor.")] = "http") -> None:
        """Sail."""
        seen.append((flags, port))

    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    return seen[0]


def options(*arguments: str) -> ManagerOptions:
    return parse(*arguments)[0].options("shop", default_namespace="orders")


@pytest.mark.requirement("user/bind-addresses")
def test_flags_have_kubebuilder_defaults() -> None:
    flags, port = parse()
    assert flags == ManagerFlags()
    assert port == "http"
    settings = flags.options("shop")
    assert (settings.name, settings.leader_election, settings.namespaces) == ("shop", None, ())
    assert (settings.health_probe_bind_address, settings.metrics_bind_address) == (":8081", ":8080")


def test_command_keeps_its_own_options() -> None:
    assert parse("--port", "Riga", "--leader-elect")[1] == "Riga"


def test_leader_election_flags_set_lease() -> None:
    election = options("--leader-elect").leader_election
    assert election is not None
    assert (election.name, election.namespace) == ("shop", "orders")
    named = options("--leader-elect", "--leader-election-id=x", "--leader-election-namespace=y").leader_election
    assert named is not None
    assert (named.name, named.namespace) == ("x", "y")
    assert options("--leader-elect", "--no-leader-elect").leader_election is None


@pytest.mark.requirement("user/namespaces")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--namespaces", "a,b"), ("a", "b")),
        (("--namespaces=a", "--namespaces=b, c,a"), ("a", "b", "c")),
        (("--namespace", "a"), ("a",)),
        (("--namespace=",), ()),
    ],
)
def test_namespace_flags_are_merged(given: tuple[str, ...], expected: tuple[str, ...]) -> None:
    assert options(*given).namespaces == expected


def test_webhooks_none_switches_them_off() -> None:
    serving = WebhookServerOptions(service="shop", namespace="orders")
    flags = ManagerFlags()
    assert not flags.options("shop", webhooks=None).serve_webhooks
    assert flags.options("shop", webhooks=serving).serve_webhooks
    assert flags.options("shop").serve_webhooks


def test_webhook_host_changes_only_the_host() -> None:
    serving = WebhookServerOptions(service="shop", namespace="orders", bind_address=":9443")
    webhooks = parse("--webhook-host", "127.0.0.1")[0].options("shop", webhooks=serving).webhooks
    assert webhooks is not None
    assert webhooks.bind_address == "127.0.0.1:9443"


def test_webhook_flags_override_serving_options() -> None:
    serving = WebhookServerOptions(service="shop", namespace="orders", bind_address="127.0.0.1:9443")

    def served(*arguments: str) -> WebhookServerOptions:
        webhooks = parse(*arguments)[0].options("shop", webhooks=serving).webhooks
        assert webhooks is not None
        return webhooks

    assert served() == serving
    assert served("--webhook-port=8443").bind_address == "127.0.0.1:8443"
    found = served("--webhook-cert-path=/certs", "--webhook-cert-name=a.crt", "--webhook-cert-key=a.key")
    assert (found.cert_path, found.cert_name, found.cert_key) == ("/certs", "a.crt", "a.key")
    assert options("--webhook-cert-path=/certs").webhooks is None


def test_flags_accept_zap_options() -> None:
    flags, _ = parse("--zap-log-level=debug", "--zap-encoder=console")
    assert (flags.log_level, flags.log_format) == ("debug", "console")


def test_overrides_win_over_flags() -> None:
    assert parse("--namespace=a")[0].options("shop", namespaces=("z",)).namespaces == ("z",)


def test_pod_name_is_event_instance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "shop-0")
    assert options().instance == "shop-0"


def test_configuration_error_prints_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigurationError):
        ManagerFlags(kubeconfig="/nowhere").config()
    with pytest.raises(SystemExit) as ended:
        ManagerFlags(kubeconfig="/nowhere").run(lambda _: None, name="shop")
    assert ended.value.code == 1
    assert capsys.readouterr().err == "shop: kubeconfig not found: /nowhere\n"


def test_manager_import_skips_optional_modules() -> None:
    rare = ("aiohttp", "cryptography", "opentelemetry", "typer")
    code = f"import sys, steersman.manager; print([m for m in {rare} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_debug_endpoint_is_disabled_by_default() -> None:
    assert options().debug_bind_address == "0"
    assert options("--debug-bind-address=127.0.0.1:8082").debug_bind_address == "127.0.0.1:8082"


def test_webhook_flags_set_service_and_certificate_source() -> None:
    options_of_operator = WebhookServerOptions(service="shop-webhook", namespace="shop-system")
    flags, _ = parse("--webhook-service=mail/post-webhook", "--webhook-cert-path=/certs")
    serving = flags.options("shop", webhooks=options_of_operator).webhooks
    assert serving is not None
    assert (serving.namespace, serving.service, serving.cert_path) == ("mail", "post-webhook", "/certs")
    assert (serving.configuration_name, serving.secret_name) == ("post-webhook", "post-webhook-cert")
    assert parse()[0].options("shop", webhooks=options_of_operator).webhooks == options_of_operator
    # Without webhooks there is nothing to say of them.
    assert flags.options("shop").webhooks is None
    with pytest.raises(ConfigurationError, match="'mail' is invalid: use NAMESPACE/NAME"):
        parse("--webhook-service=mail")[0].options("shop", webhooks=options_of_operator)


def test_command_option_overrides_flag() -> None:
    app = typer.Typer()
    seen: list[tuple[ManagerFlags, str]] = []

    @app.command()
    @with_manager_flags
    def run(flags: ManagerFlags, webhook_cert_path: str = "") -> None:
        """Sail."""
        seen.append((flags, webhook_cert_path))

    result = CliRunner().invoke(app, ["--webhook-cert-path", "/own", "--leader-elect"])
    assert result.exit_code == 0, result.output
    assert [(f.webhook_cert_path, f.leader_elect, own) for f, own in seen] == [("", True, "/own")]
