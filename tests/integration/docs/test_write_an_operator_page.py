"""Run "Write an operator" with a real API server and database."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

from database_support.servers.postgresql import RealPostgreSQLServer, start_postgresql
from framework_support.projects import prepare_directory
from framework_support.tutorial_runner import TutorialRunner, blocks_of
from steersman_testing.envtest import Envtest
from steersman_testing.envtest.binaries import find_binaries

PAGE = "tutorials/write-an-operator.md"
NO_ENDPOINT_FLAGS = "--metrics-bind-address 0 --health-probe-bind-address 0 --debug-bind-address 0"


pytestmark = pytest.mark.timeout(400)  # it installs a project and runs its tests


@pytest.fixture
def postgresql() -> Generator[RealPostgreSQLServer]:
    yield from start_postgresql()


@pytest.fixture
def api_server() -> Generator[Envtest]:
    """Start an API server without the other kind named `dbu`."""
    with Envtest.start() as environment:
        yield environment


def test_write_an_operator_page_steps_pass(
    api_server: Envtest, postgresql: RealPostgreSQLServer, tmp_path: Path
) -> None:
    root = tmp_path / "databaseuser"
    root.mkdir()
    server, known = postgresql.endpoint, prepare_directory(tmp_path / "bin", root.name)
    environment = {
        **known,
        "PATH": f"{known['PATH']}{os.pathsep}{find_binaries()}",
        "KUBECONFIG": str(api_server.kubeconfig),
        # One API server is enough for this.
        "USE_EXISTING_CLUSTER": "true",
        "PGHOST": server.host,
        "PGPORT": str(server.port),
        "PGDATABASE": "postgres",
        "PGUSER": postgresql.administrator.username,
        "PGPASSWORD": postgresql.administrator.password,
    }
    blocks = blocks_of(PAGE)
    for block in blocks:
        # The default ports may be in use on this machine.
        block.text = block.text.replace('make run ARGS="', f'make run ARGS="{NO_ENDPOINT_FLAGS} ')
    TutorialRunner(root, environment, ("make run", "cache synced")).run_blocks(blocks)
