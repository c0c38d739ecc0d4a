"""Present use of the server's container, from one container to the other."""

from __future__ import annotations

from pathlib import Path

import pytest

from steersman_instance.metrics.host import HostSession, ServerUse
from steersman_instance.resource_usage.meter import UsageSample
from steersman_instance.resource_usage.present import UsageFile, present_use


def test_present_use_is_since_previous_sample(tmp_path: Path) -> None:
    file = UsageFile(tmp_path / "usage.json")
    file.publish(UsageSample(at=100, cpu_seconds=50, memory=7))
    assert present_use(file.path, 101) == (None, 7)
    file.publish(UsageSample(at=110, cpu_seconds=65, memory=8))
    assert present_use(file.path, 111) == (1.5, 8)
    reading = ServerUse(file.path, clock=lambda: 111).collect(HostSession())
    assert [(one.metric.name, one.value) for one in reading.samples] == [
        ("steersman_server_cpu_cores", 1.5),
        ("steersman_server_memory_bytes", 8),
    ]


def test_present_use_of_stopped_container_is_unknown(tmp_path: Path) -> None:
    file = UsageFile(tmp_path / "usage.json")
    file.publish(UsageSample(at=100, memory=7))
    assert present_use(file.path, 161) == (None, None)


def test_present_use_after_restart_has_no_cores(tmp_path: Path) -> None:
    file = UsageFile(tmp_path / "usage.json")
    file.publish(UsageSample(at=100, cpu_seconds=50))
    file.publish(UsageSample(at=110, cpu_seconds=2))
    assert present_use(file.path, 110) == (None, None)


@pytest.mark.parametrize("content", ["", "[]", '{"at": "x", "cores": "1"}', '{"at": 100, "cores": "1"}'])
def test_present_use_of_invalid_file_is_unknown(tmp_path: Path, content: str) -> None:
    (tmp_path / "usage.json").write_text(content)
    assert present_use(tmp_path / "usage.json", 100) == (None, None)


def test_usage_file_failure_returns_the_sample(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sample = UsageSample(at=100)
    assert UsageFile(tmp_path / "file/usage.json").publish(sample) is sample
