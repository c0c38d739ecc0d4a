"""``steersman testing serve`` as a process."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from framework_support.widget import Widget
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, connect, load_config
from steersman.meta import ObjectKey
from steersman_cli import app
from steersman_cli.local_api_server import write_kubeconfig
from steersman_manifests.crd import definition

FOREIGN_KUBECONFIG = "apiVersion: v1\nkind: Config\ncurrent-context: production\n"
CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def steersman(*arguments: str) -> Result:
    return CliRunner().invoke(app, ("testing", *arguments), prog_name="steersman")


@asynccontextmanager
async def running_server(home: Path, *options: str) -> AsyncGenerator[Process]:
    """Run the command and wait until it listens."""
    command = "from steersman_cli import main; main()"
    arguments = ("testing", "serve", "--kubeconfig", str(home / "kubeconfig"), *options)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-c", command, *arguments), stdout=PIPE, stderr=STDOUT
    )
    assert process.stdout is not None
    try:
        line = await asyncio.wait_for(process.stdout.readline(), 60)
        assert line.startswith(b"Listening at http"), line.decode()
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("tls", [(), ("--tls",)])
async def test_serve_runs_until_signal(tls: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "crds").mkdir()
    (tmp_path / "crds" / "widgets.yaml").write_text(yaml.safe_dump(definition(Widget)))
    (tmp_path / "crds" / "notes.md").write_text("no manifest")
    items = [yaml.safe_load(CONFIG_MAP)]
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    (tmp_path / "objects.yaml").write_text(f"---\n---\n{listed}")
    arguments = ("--crd", str(tmp_path / "crds"), "--load", str(tmp_path / "objects.yaml"))
    async with running_server(tmp_path, *arguments, *tls) as process:
        async with connect(load_config(tmp_path / "kubeconfig")) as transport:
            client = Client(transport)
            assert (await client.get(ConfigMap, ObjectKey("default", "a"))).metadata.uid
            assert (await client.list(Widget)).items == ()
        process.send_signal(signal.SIGTERM)
        output, _ = await asyncio.wait_for(process.communicate(), 30)
    assert process.returncode == 0
    assert f"export KUBECONFIG={tmp_path / 'kubeconfig'}" in output.decode()
    assert output.decode().endswith("Stopped.\n")


async def test_serve_rewrites_its_own_kubeconfig(tmp_path: Path) -> None:
    for _ in range(2):
        async with running_server(tmp_path) as process:
            process.send_signal(signal.SIGINT)
            await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (FOREIGN_KUBECONFIG, "was not written by this command"),
        ("- a", "was not written by this command"),
        ("{", "cannot be read"),
    ],
)
def test_serve_does_not_overwrite_foreign_kubeconfig(found: str, message: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(found)
    result = steersman("serve", "--kubeconfig", str(kubeconfig))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "choose another --kubeconfig" in result.stderr
    assert kubeconfig.read_text() == found


def test_write_kubeconfig_restricts_mode_of_existing_file(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.touch(mode=0o644)
    write_kubeconfig(kubeconfig, "a: b")
    assert (kubeconfig.stat().st_mode & 0o777, kubeconfig.read_text()) == (0o600, "a: b")


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--crd", CONFIG_MAP, "manifest.yaml has no CustomResourceDefinition"),
        ("--load", "{", "cannot read"),
        ("--load", "- a", "not a Kubernetes manifest"),
        ("--load", "a: b", "not a Kubernetes manifest"),
        ("--load", "apiVersion: a/v1\nkind: Whale\nmetadata: {name: a}", "a/v1 Whale is not served"),
        ("--load", CONFIG_MAP.replace("name: a", "name: A"), "RFC 1123"),
    ],
)
def test_serve_unreadable_manifest_is_reported(option: str, content: str, message: str, tmp_path: Path) -> None:
    manifest = tmp_path / "manifest.yaml"
    manifest.write_text(content)
    result = steersman("serve", "--kubeconfig", str(tmp_path / "kubeconfig"), option, str(manifest))
    assert result.exit_code == 1
    assert message in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "kubeconfig").exists()


def test_serve_directory_without_crds_is_reported(tmp_path: Path) -> None:
    result = steersman("serve", "--kubeconfig", str(tmp_path / "kubeconfig"), "--crd", str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path} has no CustomResourceDefinition" in result.stderr


def test_help_has_examples() -> None:
    result = steersman("serve", "--help")
    assert result.exit_code == 0
    assert "Example: steersman testing serve --crd crds.yaml" in result.output
    assert "serve" in steersman("--help").output
