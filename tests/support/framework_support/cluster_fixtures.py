"""Fixtures of end-to-end tests: the cluster: the devcluster, or the user's own with CLUSTER=current."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from devcluster import layout
from devcluster.operator import install
from devcluster.progress import Progress
from devcluster.target import Target, select_target


@pytest.fixture(scope="session", autouse=True)
def only_loopback() -> Iterator[None]:
    """Tests reach nothing but loopback themselves, and the devcluster's API server, which answers on a link to it.

    No route of the machine leads to pods and Services. What is sent to their addresses would leave it by the default
    route.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("connect", "connect_ex"):
            patch.setattr(socket.socket, name, _loopback_guard(getattr(socket.socket, name)))
        yield


def _loopback_guard(connect: Any) -> Any:
    def guarded(self: socket.socket, address: Any) -> Any:
        # Connecting a datagram socket sends nothing.
        to_network = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_STREAM
        if to_network and not _is_local(address[0]):
            raise AssertionError(f"{address[0]} is not on this machine: use kubectl port-forward, or ask from a pod")
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
    """A namespace of the test's own, deleted with all that is in it."""
    test = cast("pytest.Item", request.node)  # pyright: ignore[reportUnknownMemberType]
    words = re.sub(r"[^a-z0-9]+", "-", test.name.lower()).strip("-")
    name = f"e2e-{words}"[:60].rstrip("-")
    bare_cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", name)
    yield name
    bare_cluster.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)
