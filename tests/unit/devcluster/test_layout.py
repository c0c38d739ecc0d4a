"""Addresses do not overlap, and unsupported systems get advice."""

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
    ranges = [layout.SERVICE_CIDR, layout.POD_CIDR, layout.NODE_NETWORK, *layout.LINK_CANDIDATES]
    assert not [pair for pair in itertools.combinations(ranges, 2) if pair[0].overlaps(pair[1])]


def test_node_addresses_and_pod_ranges_are_unique() -> None:
    assert not [
        pair for pair in itertools.combinations(layout.NODES, 2) if pair[0].pod_cidr.overlaps(pair[1].pod_cidr)
    ]
    for node in layout.NODES:
        assert node.pod_cidr[0] in layout.POD_CIDR and node.pod_cidr[-1] in layout.POD_CIDR
        assert node.address in layout.NODE_NETWORK
    assert len({layout.CONTROL_PLANE_ADDRESS, *(node.address for node in layout.NODES)}) == len(layout.NODES) + 1


@pytest.mark.parametrize("name", ["two words", "Upper", "a" * 13, "../up"])
def test_invalid_cluster_name_is_rejected(name: str) -> None:
    command = [sys.executable, "-c", "import devcluster.layout"]
    completed = subprocess.run(
        command, env={**os.environ, "DEVCLUSTER": name}, capture_output=True, text=True, check=False
    )
    assert f"DEVCLUSTER={name}: at most 12 small letters and digits" in completed.stderr


def test_cache_directory_follows_xdg_cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert layout.cache_directory() == tmp_path / "steersman"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert layout.cache_directory() == tmp_path / ".cache" / "steersman"


def stub_routes(monkeypatch: pytest.MonkeyPatch, *destinations: str) -> None:
    shown = json.dumps([{"dst": destination} for destination in destinations])

    def run(_: object) -> str:
        return shown

    monkeypatch.setattr(network, "run", run)


def test_find_free_link_skips_used_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_routes(monkeypatch, "default", "192.0.2.0/24", "127.0.0.1")
    assert network.find_free_link() == layout.LINK_CANDIDATES[0]
    stub_routes(monkeypatch, "default", "198.18.0.0/15")
    assert network.find_free_link() == ipaddress.IPv4Network("10.231.255.0/30")


def test_find_free_link_without_free_range_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    stub_routes(monkeypatch, "198.16.0.0/12", "10.0.0.0/8", "172.16.0.0/12")
    with pytest.raises(DevclusterError, match="the host has routes into all of"):
        network.find_free_link()


@pytest.mark.parametrize(("system", "user", "wanted"), [("darwin", 0, "needs Linux"), ("linux", 1000, "needs root")])
def test_up_on_unsupported_host_lists_alternatives(
    monkeypatch: pytest.MonkeyPatch, system: str, user: int, wanted: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    with pytest.raises(Unsupported, match=rf"(?s){wanted}.*integration tests.*CLUSTER=current"):
        cluster.up()


def test_components_have_separate_identities() -> None:
    identities = certificates.identities()
    masters = [name for name, (_, group) in identities.items() if group == "system:masters"]
    assert masters == ["bootstrap"]
    users = [user for name, (user, _) in identities.items() if not name.startswith("kube-proxy")]
    assert len(users) == len(set(users))
    for node in layout.NODES:
        assert identities[f"kubelet-{node.name}"] == (f"system:node:{node.name}", "system:nodes")
