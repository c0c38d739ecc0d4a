"""The cluster for end-to-end tests: the devcluster, or the user's own with CLUSTER=current."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import Target, target


@pytest.fixture(scope="session")
def bare_cluster() -> Target:
    """A running cluster."""
    return target(Progress())


@pytest.fixture(scope="session")
def cluster(bare_cluster: Target) -> Target:
    """A running cluster with the database operator of this checkout."""
    install(bare_cluster, Progress())
    return bare_cluster


@pytest.fixture
def namespace(bare_cluster: Target, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own, deleted with all that is in it."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    name = f"e2e-{words}"[:60].rstrip("-")
    bare_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", name)
    yield name
    bare_cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)
