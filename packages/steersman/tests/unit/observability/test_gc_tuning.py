"""GCTuner freezes survivors of long collections and restores settings."""

# pyright: reportPrivateUsage=false
from __future__ import annotations

import gc
from collections.abc import Generator

import pytest

from steersman.observability import gc_tuning
from steersman.observability.gc_tuning import GCTuner
from steersman.observability.metrics import registry


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> Generator[GCTuner]:
    previous = gc.get_threshold()
    tuner = GCTuner()
    tuner.start()
    yield tuner
    tuner.stop()
    assert gc.get_threshold() == previous
    assert gc.get_freeze_count() == 0
    assert tuner._on_gc_event not in gc.callbacks


def pauses() -> float:
    return registry.get_sample_value("steersman_gc_pause_seconds_count") or 0.0


def test_gc_freezes_objects_at_start(tuner: GCTuner) -> None:
    assert gc.get_freeze_count() > 1000
    before = pauses()
    gc.collect()
    assert pauses() == before + 1


def test_gc_long_collection_freezes_survivors(tuner: GCTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_tuning, "_LONG_PAUSE_SECONDS", 0.0)
    held: list[list[object]] = [[] for _ in range(1000)]
    frozen = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() >= frozen + len(held)
    assert len(gc.get_objects()) < 1000


def test_gc_short_collection_freezes_nothing(tuner: GCTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_tuning, "_LONG_PAUSE_SECONDS", 1e9)
    frozen = gc.get_freeze_count()
    gc.collect()
    assert gc.get_freeze_count() <= frozen


def test_gc_frozen_cycles_are_collected_eventually(tuner: GCTuner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc_tuning, "_LONG_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(gc_tuning, "_FREEZES_BEFORE_THAW", 3)

    freed: list[int] = []

    class Cycle:
        """Refers to itself, so that only a collection can free it."""

        itself: object = None

        def __del__(self) -> None:
            freed.append(1)

    cycle = Cycle()
    cycle.itself = cycle
    gc.collect()
    del cycle
    gc.collect()
    assert not freed, "frozen"
    for _ in range(4):
        gc.collect()
    assert freed
