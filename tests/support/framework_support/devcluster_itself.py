"""What tests about the devcluster itself share: the cluster, namespaces of a module, and the toolbox in its pods."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import pytest

from devcluster.target import Target


@pytest.fixture(scope="module")
def ours(bare_cluster: Target) -> Target:
    """The cluster, which must be the devcluster: these tests are about it."""
    if not bare_cluster.is_devcluster:
        pytest.fail("these tests are about the devcluster: run them without CLUSTER=current")
    return bare_cluster


@contextmanager
def own_namespace(target: Target, name: str) -> Generator[str]:
    """A new namespace during the block."""
    target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=60s", seconds=70)
    target.kubectl("create", "namespace", name)
    yield name
    target.kubectl("delete", "namespace", name, "--timeout=60s", seconds=70)


def toolbox(target: Target, namespace: str, pod: str, *arguments: str) -> str:
    """What the toolbox in a pod prints. Raises CommandFailed with its words."""
    return target.kubectl("exec", f"--namespace={namespace}", pod, "--", "toolbox", *arguments).strip()
