"""Each example is deployed on the cluster and passes its own tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster import projects
from devcluster.images import load
from devcluster.progress import Progress
from devcluster.target import Target
from framework_support.projects import EXAMPLES, ours

SECONDS = 900


@pytest.fixture(params=EXAMPLES, ids=lambda root: root.name)
def example(request: pytest.FixtureRequest, cluster: Target) -> Iterator[Path]:
    """Deploy each example. The database operator is available for those that need it."""
    root: Path = request.param
    image = f"steersman.dev/example-{root.name}:e2e"
    if cluster.is_devcluster:
        for built in projects.ensure(root, image, Progress()):
            load(built)
    image = os.environ.get(f"STEERSMAN_EXAMPLE_{root.name.upper()}_IMAGE", image)
    # Remove leftovers of an earlier run, which could hide errors of the deployment.
    run(cluster, root, "-m", "steersman_cli", "undeploy", "--force")
    run(cluster, root, "-m", "steersman_cli", "install")
    run(cluster, root, "-m", "steersman_cli", "deploy", "--image", image)
    yield root
    run(cluster, root, "-m", "steersman_cli", "undeploy", "--force")


def run(cluster: Target, root: Path, *arguments: str) -> None:
    """Run Python in ``root`` with the kubeconfig of the cluster. It must succeed."""
    output = command(cluster, root, sys.executable, *arguments)
    if arguments[:2] == ("-m", "pytest"):
        assert "skipped" not in output, output


def command(cluster: Target, root: Path, *arguments: str) -> str:
    """Run a command in ``root`` like ``run``, and return its output."""
    surroundings = {k: v for k, v in ours().items() if not k.startswith("PYTEST")}
    surroundings["PATH"] = f"{Path(cluster.kubectl_path).parent}{os.pathsep}{surroundings['PATH']}"
    if cluster.kubeconfig is not None:
        surroundings["KUBECONFIG"] = str(cluster.kubeconfig)
    ended = subprocess.run(
        arguments, cwd=root, env=surroundings, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert ended.returncode == 0, f"{' '.join(arguments)}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout


def test_its_own_end_to_end_tests_pass(cluster: Target, example: Path) -> None:
    run(cluster, example, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "tests/e2e")
