"""Addresses do not overlap, and systems without a cluster are told what they can do."""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from devcluster import certificates, cluster, layout, network
from devcluster.errors import DevclusterError, Unsupported


def test_no_two_ranges_overlap() -> None:
    ranges = [layout.SERVICES, layout.PODS, layout.FABRIC, *layout.LINK_CANDIDATES]
    assert not [pair for pair in itertools.combinations(ranges, 2) if pair[0].overlaps(pair[1])]


def test_each_node_has_pods_and_an_address_of_its_own() -> None:
    assert not [pair for pair in itertools.combinations(layout.NODES, 2) if pair[0].pods.overlaps(pair[1].pods)]
    for node in layout.NODES:
        assert node.pods[0] in layout.PODS and node.pods[-1] in layout.PODS
        assert node.address in layout.FABRIC
    assert len({layout.CONTROL_PLANE_ADDRESS, *(node.address for node in layout.NODES)}) == len(layout.NODES) + 1


@pytest.mark.parametrize("name", ["two words", "Upper", "a" * 13, "../up"])
def test_a_name_that_cannot_be_an_interfaces_is_refused(name: str) -> None:
    command = [sys.executable, "-c", "import devcluster.layout"]
    done = subprocess.run(
        command, env={**os.environ, "DEVCLUSTER": name}, capture_output=True, text=True, check=False
    )
    assert f"DEVCLUSTER={name}: at most 12 small letters and digits" in done.stderr


def test_the_cache_is_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert layout.cache() == tmp_path / "steersman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert layout.cache() == tmp_path / ".cache" / "steersman"


def routes(monkeypatch: pytest.MonkeyPatch, *destinations: str) -> None:
    shown = json.dumps([{"dst": destination} for destination in destinations])

    def run(_: object) -> str:
        return shown

    monkeypatch.setattr(network, "run", run)


def test_the_link_takes_a_range_that_the_host_does_not_use(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, "default", "192.0.2.0/24", "127.0.0.1")
    assert network.free_link() == layout.LINK_CANDIDATES[0]
    routes(monkeypatch, "default", "198.18.0.0/15")
    assert network.free_link() == ipaddress.IPv4Network("10.231.255.0/30")


def test_a_host_that_uses_every_range_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    routes(monkeypatch, "198.16.0.0/12", "10.0.0.0/8", "172.16.0.0/12")
    with pytest.raises(DevclusterError, match="the host has routes into all of"):
        network.free_link()


@pytest.mark.parametrize(("system", "user", "wanted"), [("darwin", 0, "needs Linux"), ("linux", 1000, "needs root")])
def test_a_system_without_a_cluster_hears_what_still_works(
    monkeypatch: pytest.MonkeyPatch, system: str, user: int, wanted: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(Unsupported, match=rf"(?s){wanted}.*integration tests.*CLUSTER=current"):
        cluster.up()


def test_components_have_identities_of_their_own() -> None:
    identities = certificates.identities()
    masters = [name for name, (_, group) in identities.items() if group == "system:masters"]
    assert masters == ["bootstrap"]
    users = [user for name, (user, _) in identities.items() if not name.startswith("kube-proxy")]
    assert len(users) == len(set(users))
    for node in layout.NODES:
        assert identities[f"kubelet-{node.name}"] == (f"system:node:{node.name}", "system:nodes")
