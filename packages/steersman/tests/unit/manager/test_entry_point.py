"""``steersman.run``: options of the setup function, and signals during imports."""

from __future__ import annotations

import signal
import subprocess
import sys
import types
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

import steersman
from steersman import Manager
from steersman.manager.flags import ManagerFlags
from steersman.webhook import WebhookServerOptions

WEBHOOKS = WebhookServerOptions(service="shop-webhook", namespace="shop")


def ignore_signal(number: int, handler: object) -> None:
    """Keep the signal handlers of the test process."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The calls of ``ManagerFlags.run``."""
    calls: list[dict[str, Any]] = []

    def record(flags: ManagerFlags, setup: Any, **options: Any) -> None:
        calls.append({"flags": flags, "setup": setup, **options})

    monkeypatch.setattr(ManagerFlags, "run", record)
    monkeypatch.setattr(signal, "signal", ignore_signal)
    return calls


def run(monkeypatch: pytest.MonkeyPatch, setup: Any, *arguments: str, **options: Any) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["shop", *arguments])
    with pytest.raises(SystemExit) as ended:
        steersman.run(setup, name="shop", **options)
    return ended.value.code


def setup_shop(manager: Manager, target: Annotated[str, typer.Option(help="Label.")] = "all") -> None:
    assert isinstance(manager, str)
    setup_shop.__dict__["target"] = target


def test_run_passes_flags_and_options(started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, setup_shop, "--leader-elect", "--target", "orders", tracing=True) == 0
    (call,) = started
    assert (call["name"], call["webhooks"], call["tracing"]) == ("shop", None, True)
    assert call["flags"] == ManagerFlags(leader_elect=True)
    call["setup"]("manager")
    assert setup_shop.__dict__["target"] == "orders"


@pytest.mark.parametrize(("arguments", "expected"), [((), WEBHOOKS), (("--no-webhooks",), None)])
def test_run_serves_webhooks_unless_disabled(
    started: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    expected: WebhookServerOptions | None,
) -> None:
    module: Any = types.ModuleType("shop_main")
    module.setup, module.WEBHOOKS = setup_shop, WEBHOOKS
    monkeypatch.setitem(sys.modules, "shop_main", module)
    assert run(monkeypatch, "shop_main:setup", *arguments, webhooks="shop_main:WEBHOOKS") == 0
    assert started[0]["webhooks"] == expected


def test_run_without_webhooks_has_no_such_flag(
    started: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(monkeypatch, lambda manager: None, "--no-webhooks") == 2  # pyright: ignore[reportUnknownLambdaType]
    assert started == []


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("steersman", "shop: 'steersman' is not an import path: use the form package.module:function"),
        ("steersman:begin", "shop: module steersman has no 'begin': define it, or correct 'steersman:begin'"),
    ],
)
def test_run_with_wrong_place_says_what_to_do(
    place: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(signal, "signal", ignore_signal)
    assert run(monkeypatch, place) == 1
    assert capsys.readouterr().err.strip() == message


def test_sigterm_during_imports_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("print('importing', flush=True)\ninput()\n")
    program = "from steersman import run; run('slow:setup', name='shop')"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"importing\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 128 + signal.SIGTERM
