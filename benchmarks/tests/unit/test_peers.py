"""Tests of the peers: all receive the same settings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from benchmarks.peers import PEERS, OperatorSettings, Peer
from benchmarks.versions import versions

HERE = Path(__file__).parents[3] / "benchmarks"
PROGRAMS = {
    "controller-runtime": sorted((HERE / "controller_runtime").glob("*.go")),
    "kube-rs": sorted((HERE / "kube_rs" / "src").glob("*.rs")),
    "kopf": sorted((HERE / "kopf_operator").glob("*.py")),
    "steersman": [HERE / "work.py", HERE / "pods.py"],
}


def settings(*, events: bool = False) -> OperatorSettings:
    return OperatorSettings(Path("kubeconfig"), "shop", metrics_port=8080, events=events)


def test_settings_environment_has_benchmark_variables() -> None:
    environment = settings(events=True).environment()
    assert environment["KUBECONFIG"] == "kubeconfig"
    assert environment["BENCHMARK_NAMESPACE"] == "shop"
    assert environment["BENCHMARK_METRICS"] == "127.0.0.1:8080"
    assert (environment["BENCHMARK_EVENTS"], environment["BENCHMARK_TIMED"]) == ("yes", "no")


def test_settings_environment_drops_caller_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com")
    monkeypatch.setenv("GOGC", "400")
    environment = settings().environment()
    assert not {"HTTPS_PROXY", "GOGC"} & environment.keys()


@pytest.mark.parametrize("peer", PROGRAMS)
def test_peer_program_reads_only_provided_settings(peer: str) -> None:
    asked = {name for file in PROGRAMS[peer] for name in re.findall(r"BENCHMARK_[A-Z_]*[A-Z]", file.read_text())}
    assert asked
    assert asked <= settings().environment().keys()


@pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
def test_peer_command_uses_its_toolchain(peer: Peer) -> None:
    assert peer.command({peer.toolchain: Path("/program")}, settings())[0] == "/program"


def test_the_versions_are_those_of_the_manifests() -> None:
    found = versions()
    assert set(found) >= {"controller-runtime", "client-go", "kube-rs", "kopf", "steersman", "python"}
    assert all(re.match(r"\d+\.\d+", version) for version in found.values())
