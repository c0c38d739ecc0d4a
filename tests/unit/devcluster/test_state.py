"""The state of a cluster survives its creator and expires on reboot."""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

import pytest

from devcluster import layout, state
from devcluster.machine import Machine
from devcluster.process import Process
from devcluster.state import State


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """Return a cluster whose components all refer to this process."""
    monkeypatch.setattr(state, "FILE", tmp_path / "state.json")
    this = Process.of(os.getpid())
    assert this is not None
    link = ipaddress.IPv4Network("198.18.231.0/30")
    found = State("v", link, binaries=tmp_path, nodes=list(layout.NODES[:2]), complete=True)
    for name in (layout.CONTROL_PLANE, *(node.name for node in found.nodes)):
        found.machines[name] = Machine(name, this, {"component": this})
    return found


def test_state_saved_is_loaded(made: State) -> None:
    assert State.load() is None
    made.save()
    assert State.load() == made


def test_cluster_liveness_follows_control_plane(made: State) -> None:
    for name, alive in ((layout.NODES[0].name, True), (layout.CONTROL_PLANE, False)):
        machine = made.machines[name]
        machine.init = Process(machine.init.pid, machine.init.start_time - 1)
        assert made.alive() is alive
        assert made.repairable()


def test_incomplete_cluster_is_not_alive(made: State) -> None:
    made.complete = False
    assert not made.alive()
    assert not made.repairable()
    made.complete = True
    del made.machines[layout.CONTROL_PLANE]
    assert not made.alive()


def test_state_of_other_boot_is_invalid(made: State) -> None:
    made.boot_id = "another"
    made.save()
    loaded = State.load()
    assert loaded is not None
    assert not loaded.is_current_boot()
    assert not loaded.alive()
