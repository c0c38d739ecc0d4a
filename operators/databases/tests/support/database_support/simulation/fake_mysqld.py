"""What an agent has below it: its own ``Server`` and ``LocalServer``, with a model in the place of mysqld."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from database_support.simulation.mysql_group import PLUGIN, SimulatedMysqld, SimulatedServers, server_error
from steersman_agent.group.group_status import LocalServer, ServerQueryFailed, ServerStatus
from steersman_agent.server.process import MySQLServer, ServerFailed, ServerPaths

RESTART_BOUND = ("innodb_log_buffer_size", "table_open_cache_instances")

Pause = Callable[[str, float], None]
"""Before something that takes so many seconds is done with a server: it may never be."""


class SimulatedLocalServer(LocalServer):
    """The agent's own, which asks a model."""

    def __init__(self, servers: SimulatedServers, mysqld: SimulatedMysqld, pause: Pause) -> None:
        super().__init__("")
        self._servers, self._mysqld, self._pause = servers, mysqld, pause

    def query_status(self) -> ServerStatus:
        """See ``LocalServer.look``."""
        return self._servers.status_of(self._mysqld)

    def close_kept_connection(self) -> None:
        """There is no connection."""

    def execute(self, *statements: str, seconds: float = 0) -> None:
        """See ``LocalServer.do``: those statements that the agent has."""
        for statement in statements:
            self._pause(statement.partition(" USER")[0], 0.05)
            self._require()
            self._execute(statement)

    def set_global(self, name: str, value: int | float | str | None) -> None:
        """See ``LocalServer.set_global``."""
        self._pause(f"SET GLOBAL {name}", 0.02)
        self._require()
        if name in RESTART_BOUND:
            raise server_error(1238, f"Variable '{name}' is a read only variable")
        self._mysqld.variables[name] = "" if value is None else str(value)

    def set_global_kept(self, name: str, value: int | float | str | None) -> None:
        """See ``LocalServer.adjust``."""
        self.set_global(name, value)

    def values_of(self, names: Collection[str]) -> Mapping[str, str]:
        """See ``LocalServer.values_of``."""
        self._require()
        return {name: self._mysqld.variables[name] for name in names if name in self._mysqld.variables}

    def kept_rows(self, statement: str) -> Sequence[Sequence[Any]]:
        """Return healthy accounts, and service variables as an unmodified server has them."""
        self._require()
        if "FROM mysql.user" in statement:
            return [("root@localhost",)]
        if names := re.findall(r"@@GLOBAL\.(\w+)", statement):
            read_only = 0 if self.query_status().is_primary else 1
            defaults = {"offline_mode": 0, "init_connect": "", "super_read_only": read_only, "read_only": read_only}
            return [[defaults[name] for name in names]]
        return [(0,)]

    def applier_error(self) -> int:
        """See ``LocalServer.applier_error``."""
        return 0

    def _require(self) -> None:
        if not self._mysqld.runs:
            raise ServerQueryFailed(OSError(2013, "lost connection"))

    def _execute(self, statement: str) -> None:
        servers, server = self._servers, self._mysqld
        if found := re.fullmatch(r"SET GLOBAL (\w+) = (ON|OFF)", statement):
            server.variables[found[1]] = found[2]
        elif statement.startswith("START GROUP_REPLICATION"):
            self._start()
        elif statement == "STOP GROUP_REPLICATION":
            servers.leave(server)
        elif found := re.fullmatch(r"SELECT group_replication_set_as_primary\('(.+)', 10\)", statement):
            servers.appoint(server, found[1])
        elif statement != "ALTER INSTANCE RELOAD TLS":
            servers.violations.append(f"the model has no {statement}")

    def _start(self) -> None:
        told = self._mysqld.variables
        name = told[f"{PLUGIN}group_name"]
        if self._mysqld.group is not None:
            raise server_error(3093, "it is in a group")
        if told.get(f"{PLUGIN}bootstrap_group") == "ON":
            self._servers.bootstrap(self._mysqld, name)
        else:
            self._servers.join(self._mysqld, name, told.get(f"{PLUGIN}group_seeds", ""))


class SimulatedMySQLServer(MySQLServer):
    """The agent's own, whose mysqld is a model."""

    def __init__(self, paths: ServerPaths, servers: SimulatedServers, mysqld: SimulatedMysqld, pause: Pause) -> None:
        super().__init__(paths)
        self._servers, self._mysqld, self._pause = servers, mysqld, pause
        self._abandoned = False
        self.local = SimulatedLocalServer(servers, mysqld, pause)

    @property
    def is_running(self) -> bool:
        """See ``Server.runs``."""
        return self._mysqld.runs

    @property
    def has_data(self) -> bool:
        """See ``Server.has_data``."""
        return self._mysqld.has_data

    def query_member(self, address: str) -> ServerStatus:
        """See ``Server.ask``."""
        found = self._servers.server_at(address)
        if found is None:
            raise ServerQueryFailed(OSError(2003, f"nobody answers at {address}"))
        return self._servers.status_of(found)

    def initialise(self) -> None:
        """See ``Server.initialise``."""
        self._take_time("initialise", 3.0)
        self._servers.initialised += 1
        self._mysqld.has_data = True

    def clone_from(self, options: Mapping[str, str], host: str, port: int) -> None:
        """See ``Server.copy``."""
        self._take_time("copy", 5.0)
        donor = self._servers.server_at(f"{host}:{port}")
        if donor is None or not donor.runs:
            raise ServerFailed(f"instance at {host} could not be copied")
        self._mysqld.has_data, self._mysqld.durable, self._mysqld.uuid = True, donor.has, ""

    def _take_time(self, what: str, seconds: float) -> None:
        self._abandoned = False
        self._pause(what, seconds)
        if self._abandoned:
            raise ServerFailed(f"{what} was abandoned")

    def abort_initialisation(self) -> None:
        """See ``Server.abandon``."""
        self._abandoned = True

    def image_parameters(self) -> Mapping[str, str]:
        """See ``Server.image_parameters``."""
        return {}

    def rejected_parameters(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> dict[str, str]:
        """See ``Server.refused``."""
        return {}

    def start(self, options: Mapping[str, str], parameters: Mapping[str, str]) -> None:
        """See ``Server.start``."""
        self._pause("start", 0.1)
        told = {name.removeprefix("loose_"): value for name, value in {**parameters, **options}.items()}
        self._mysqld.address = self.paths.address
        self._servers.start(self._mysqld, told)

    def stop(self, seconds: float = 45) -> None:
        """See ``Server.stop``."""
        if self._mysqld.runs:
            self._pause("stop", 0.5)
            self._servers.shut_down(self._mysqld)
