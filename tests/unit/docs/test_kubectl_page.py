"""Check the page on kubectl without a cluster."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from framework_support.documented_code import DOCS, Pages
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ObjectKey
from steersman_cli import testing
from steersman_testing import InMemoryApiServer
from steersman_testing.serving import ApiEndpoint

PAGE = "how-to/use-kubectl-without-a-cluster.md"
PROGRAM = """
import json, os, re, urllib.request
server = re.search("server: (.*)", open(os.environ["KUBECONFIG"]).read())[1]
body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}}
path = "/api/v1/namespaces/default/configmaps"
asked = urllib.request.Request(server + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
raise SystemExit(urllib.request.urlopen(asked).status - 198)
"""


def page_text() -> str:
    return (DOCS / PAGE).read_text()


async def test_kubectl_page_server_serves_other_programs(pages: Pages) -> None:
    server = InMemoryApiServer()
    assert await pages(PAGE)("with_server").run(server, sys.executable, "-c", PROGRAM) == 3
    assert server.read(ConfigMap, ObjectKey("default", "made")) is not None


def test_kubectl_page_manifests_are_accepted() -> None:
    server = InMemoryApiServer()
    manifests = re.findall(r'```yaml title="(\w+)\.yaml"\n(.*?)```', page_text(), re.DOTALL)
    assert [name for name, _ in manifests] == ["lights", "north"]
    server.load(*(yaml.safe_load(content) for _, content in manifests))


def test_kubectl_page_options_exist() -> None:
    group: Any = get_command(testing.group)
    known = {o for p in group.commands["serve"].params for o in p.opts}
    used = {
        o for line in re.findall("^steersman testing serve .*", page_text(), re.MULTILINE) for o in line.split()[3:]
    }
    assert {"--crd", "--load", "--port"} == {o for o in used if o.startswith("-")}
    assert {o for o in used if o.startswith("-")} <= known


def test_kubectl_page_shows_output_of_serve(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell = testing._announce  # pyright: ignore[reportPrivateUsage]
    tell(ApiEndpoint("http://127.0.0.1:41873"), tmp_path / "kubeconfig")
    output = capsys.readouterr().out.replace(str(tmp_path), "/home/jane/lights")
    assert f"```text\n{output}```" in page_text()
