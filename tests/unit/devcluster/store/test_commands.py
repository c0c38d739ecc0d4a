"""Each command of `devcluster store` has an example and names the next step."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from devcluster.__main__ import app
from devcluster.errors import DevclusterError, NotRunning
from devcluster.store import commands

COMMANDS = sorted(
    command.name or command.callback.__name__.replace("_", "-")
    for command in commands.app.registered_commands
    if command.callback is not None
)
NEED_A_STORE = [
    ["stop"],
    ["info"],
    ["status"],
    ["blackhole"],
    ["throttle", "--latency=1"],
    ["fill"],
    ["end-faults"],
    ["list-objects"],
    ["corrupt", "key"],
    ["delete-object", "key"],
    ["rotate-credentials"],
]


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate the test from the local store of the user."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_each_command_has_an_example(command: str) -> None:
    result = CliRunner().invoke(app, ["store", command, "--help"])
    assert result.exit_code == 0
    assert re.search(rf"Example: devcluster store {command}", result.output), result.output


@pytest.mark.parametrize("arguments", NEED_A_STORE, ids=lambda arguments: arguments[0])
def test_command_without_store_names_start(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, ["store", *arguments, "--local"])
    assert isinstance(result.exception, NotRunning)
    assert str(result.exception).endswith("Start it with: devcluster store start --local")


def test_throttle_without_option_names_both() -> None:
    result = CliRunner().invoke(app, ["store", "throttle", "--local"])
    assert isinstance(result.exception, DevclusterError)
    assert str(result.exception) == "throttle needs --bytes-per-second, --latency, or both"


def test_remove_without_store_succeeds() -> None:
    assert "There was no object store." in CliRunner().invoke(app, ["store", "remove", "--local"]).output


def test_too_small_volume_of_the_cluster_is_refused() -> None:
    result = CliRunner().invoke(app, ["store", "start", "--volume-size=64"])
    assert str(result.exception) == "A volume of 64 MiB is too small: use 300 or more"
