"""The model of a group keeps the contract of groups: simulations of agents and operator stand on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from database_support.contracts.mysql_group import TestGroup
from database_support.simulation.fake_mysqld import SimulatedMySQLServer
from database_support.simulation.mysql_group import SimulatedMysqld, SimulatedServers
from steersman_agent.server.process import MySQLServer, ServerPaths
from steersman_instance.gtids import GtidSet

__all__ = ["TestGroup"]

# One test goes on where the one before it ended.
pytestmark = pytest.mark.xdist_group("group-model")


class Models:
    """Three servers, and their time."""

    def __init__(self, directory: Path) -> None:
        self._now = 0.0
        self._model = SimulatedServers(lambda: self._now)
        self._mysqlds = [SimulatedMysqld(f"server-{n}") for n in range(3)]
        self.servers: Sequence[MySQLServer] = [
            SimulatedMySQLServer(
                ServerPaths(volume=directory, host=f"10.0.0.{n}", instance=n), self._model, one, self._pass
            )
            for n, one in enumerate(self._mysqlds)
        ]
        for one in self._mysqlds:
            self._model.all[one.name] = one
        self.servers[0].initialise()

    def _pass(self, _: str, seconds: float) -> None:
        self._now += seconds

    def _of(self, server: MySQLServer) -> SimulatedMysqld:
        return self._mysqlds[server.paths.instance]

    def kill(self, server: MySQLServer) -> None:
        self._model.kill(self._of(server))

    def write(self, server: MySQLServer) -> bool:
        return self._model.write(self._of(server))

    def add_errant_transaction(self, server: MySQLServer) -> None:
        one = self._of(server)
        one.durable |= GtidSet.parse(f"{one.uuid}:1")

    def until(self, what: str, holds: Callable[[], object], seconds: float = 120) -> None:
        end = self._now + seconds
        while not holds():
            assert self._now < end, what
            self._now += 0.5


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("group"))
