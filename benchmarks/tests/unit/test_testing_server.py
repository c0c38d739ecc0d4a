"""Tests of the in-memory API server's benchmark."""

from __future__ import annotations

import pytest
from benchmarks import testing_server
from benchmarks.measurement import Measurement
from benchmarks.testing_server import CONFIG_MAPS, CREATES, HTTP, MEMORY, START, WORKS, evaluate_targets
from benchmarks.work import Work

from steersman.api.core_v1 import ConfigMap
from steersman_testing import InMemoryApiServer


@pytest.mark.parametrize("kind", [CONFIG_MAPS, WORKS])
async def test_many_at_once_creates_the_counted_objects(kind: str) -> None:
    server = InMemoryApiServer()
    server.register(Work)
    assert await testing_server.create_in_parallel(server, kind, 50) > 0
    assert len(server.read_all(Work if kind == WORKS else ConfigMap)) == 50
    with pytest.raises(RuntimeError, match="HTTP 409"):
        await testing_server.create(server, kind, next(testing_server.bodies(kind, 1)))


async def test_serve_command_is_measured_over_a_socket() -> None:
    async with testing_server.serve_command() as kubeconfig, testing_server.open_transport(kubeconfig) as transport:
        assert await testing_server.create_in_parallel(transport, WORKS, 10) > 0


@pytest.mark.parametrize(
    ("scenario", "door", "metric", "value", "met"),
    [
        (START, MEMORY, "ready after", 9.0, [True]),
        (START, HTTP, "ready after", 11.0, [False]),
        (CREATES, MEMORY, CONFIG_MAPS, 5000.0, [True]),
        (CREATES, MEMORY, WORKS, 4999.0, [False]),
        (CREATES, HTTP, WORKS, 100.0, []),
    ],
)
def test_targets(scenario: str, door: str, metric: str, value: float, met: list[bool]) -> None:
    assert [v.met for v in evaluate_targets([Measurement(scenario, door, metric, value, "")])] == met
