"""What measures the API server in memory does what it says."""

from __future__ import annotations

import pytest
from benchmarks import testing_server
from benchmarks.measurement import Measurement
from benchmarks.testing_server import CONFIG_MAPS, CREATES, HTTP, MEMORY, START, WORKS, judged
from benchmarks.work import Work

from steersman.api.core_v1 import ConfigMap
from steersman_testing import InMemoryApiServer


@pytest.mark.parametrize("kind", [CONFIG_MAPS, WORKS])
async def test_what_is_counted_was_created(kind: str) -> None:
    server = InMemoryApiServer()
    server.register(Work)
    assert await testing_server.many_at_once(server, kind, 50) > 0
    assert len(server.read_all(Work if kind == WORKS else ConfigMap)) == 50
    with pytest.raises(RuntimeError, match="refused with 409"):
        await testing_server.create(server, kind, next(testing_server.bodies(kind, 1)))


async def test_the_command_is_asked_by_a_socket() -> None:
    async with testing_server.served() as kubeconfig, testing_server.dialled(kubeconfig) as transport:
        assert await testing_server.many_at_once(transport, WORKS, 10) > 0


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
    assert [v.met for v in judged([Measurement(scenario, door, metric, value, "")])] == met
