"""Fixtures of end-to-end tests on the devcluster or the current cluster."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from devcluster import layout
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import Target, select_target


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Restrict connections to loopback and the devcluster's API server.

    The machine has no route to pods and Services. Packets to their addresses would use the default route.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _loopback_guard(getattr(socket.socket, name)))
        yield


def _loopback_guard(connect: Any) -> Any:
    def guarded(self: socket.socket, address: Any) -> Any:
        # Connecting a datagram socket sends no packet.
        to_network = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_STREAM
        if to_network and not _is_local(address[0]):
            raise AssertionError(
                f"{address[0]} is not on this machine: use kubectl port-forward, or send the request from a pod"
            )
        return connect(self, address)

    return guarded


def _is_local(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or any(address in link for link in layout.LINK_CANDIDATES)


@pytest.fixture(scope="session")
def bare_cluster() -> Target:
    """A running cluster."""
    return select_target(Progress())


@pytest.fixture(scope="session")
def cluster(bare_cluster: Target) -> Target:
    """A running cluster with the database operator of this checkout."""
    install(bare_cluster, Progress())
    return bare_cluster


@pytest.fixture
def namespace(bare_cluster: Target, request: pytest.FixtureRequest) -> Iterator[str]:
    """Namespace of the test, deleted with its objects afterwards."""
    test = cast("pytest.Item", request.node)  # pyright: ignore[reportUnknownMemberType]
    words = re.sub(r"[^a-z0-9]+", "-", test.name.lower()).strip("-")
    name = f"e2e-{words}"[:60].rstrip("-")
    bare_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", name)
    yield name
    bare_cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


@pytest.fixture(scope="module")
def ours(bare_cluster: Target) -> Target:
    """The devcluster. Other clusters are not supported."""
    if not bare_cluster.is_devcluster:
        pytest.fail("these tests need the devcluster: run them without CLUSTER=current")
    return bare_cluster


@contextmanager
def own_namespace(target: Target, name: str) -> Generator[str]:
    """A new namespace during the block."""
    target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=60s", seconds=70)
    target.kubectl("create", "namespace", name)
    yield name
    target.kubectl("delete", "namespace", name, "--timeout=60s", seconds=70)


def toolbox(target: Target, namespace: str, pod: str, *arguments: str) -> str:
    """Output of the toolbox in a pod. Raises CommandFailed."""
    return target.kubectl("exec", f"--namespace={namespace}", pod, "--", "toolbox", *arguments).strip()
