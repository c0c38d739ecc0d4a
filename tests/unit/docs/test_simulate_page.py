"""The page on simulated faults does what it says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman_testing import SimulationFailed, simulate

PAGE = "how-to/simulate-faults.md"


def test_simulate_page_test_passes(pages: Pages) -> None:
    pages(PAGE)("test_disks").test_a_disk_comes_through()


def test_simulation_report_matches_page(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    disks, scenario = load("disks"), load("test_disks")
    finalize = disks.add_finalizer

    async def too_late(client: Any, disk: Any, finalizer: str) -> Any:
        await cloud[-1].ensure(disk.metadata.name, disk.spec.size_gib)
        return await finalize(client, disk, finalizer)

    cloud: list[Any] = []
    monkeypatch.setattr(disks, "add_finalizer", too_late)
    with pytest.raises(SimulationFailed) as failed:
        simulate(
            disks.setup,
            scenario.life,
            kinds=[disks.Disk],
            outside=lambda: cloud.append(disks.Cloud()) or cloud[-1],
            observe=lambda made: made.disks,
        )
    expected = re.search(r'```text title="story"\n(.*?)```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert expected is not None
    assert str(failed.value) == expected[1].rstrip("\n")
