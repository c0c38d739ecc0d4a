"""Real servers start with the values that small limits result in, and run with them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from database_support.servers.matrix import postgresqls
from database_support.servers.mysql import start_mysql
from database_support.servers.postgresql import start_postgresql
from devcluster import database_servers
from steersman_databases.engines.cluster_engine import InstanceResources, SizedParameter
from steersman_databases.engines.mysql.config import sizing as mysql_sizing
from steersman_databases.engines.postgresql.config import sizing as postgresql_sizing

_MIB = 1 << 20
MEMORY = (256, 512, 768, 2048)  # MiB
POSTGRESQL: dict[str, Path] = {
    name: start.args[0] for name, start in postgresqls(whole=True).items() if isinstance(start, partial)
}


def sized_postgresql(memory: int, version: str) -> Sequence[SizedParameter]:
    resources = InstanceResources(memory=memory * _MIB, smallest_memory=memory * _MIB, cpus=16)
    return list(postgresql_sizing.sized_parameters(resources, {}, int(version)))


def sized_mysql(memory: int) -> Sequence[SizedParameter]:
    resources = InstanceResources(memory=memory * _MIB, smallest_memory=memory * _MIB)
    return list(mysql_sizing.sized_parameters(resources, {}, 64 << 30))


@pytest.mark.requirement("overview/level-4-tuning")
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("name", POSTGRESQL)
def test_postgresql_starts_with_sized_parameters(name: str, memory: int) -> None:
    expected = sized_postgresql(memory, name.removeprefix("postgresql-"))
    with contextmanager(start_postgresql)(POSTGRESQL[name], {one.name: one.value for one in expected}) as server:
        for one in expected:
            [(matches,)] = server.administer(
                "SELECT pg_size_bytes(current_setting(name)) = pg_size_bytes('"
                f"{one.value}') FROM pg_settings WHERE name = '{one.name}'"
                if one.value.endswith("MB")
                else f"SELECT setting = '{one.value}' FROM pg_settings WHERE name = '{one.name}'"
            )
            assert matches, one


@pytest.mark.requirement("overview/level-4-tuning")
@pytest.mark.parametrize("memory", MEMORY)
async def test_mysql_starts_with_sized_parameters(memory: int) -> None:
    root = database_servers.root(database_servers.SID)
    if root is None:
        pytest.skip(f"{database_servers.SID.title} cannot be had: python -m devcluster servers says why")
    group = "group_replication_message_cache_size"
    expected = sized_mysql(memory)
    # The data are created without plugins.
    options = [f"--{one.name.replace('_', '-')}={one.value}" for one in expected if one.name != group]
    with contextmanager(start_mysql)(root, *options) as server:
        await server.execute_unprepared("INSTALL PLUGIN group_replication SONAME 'group_replication.so'")
        for one in expected:
            number = int(one.value.removesuffix("M")) * (_MIB if one.value.endswith("M") else 1)
            if one.name == group:
                await server.execute_unprepared(f"SET GLOBAL {group} = {number}")
            assert await server.execute(f"SELECT @@GLOBAL.{one.name}") == [(number,)], one
        smaller = {one.name: one.value for one in sized_mysql(256)}
        pool = int(smaller["innodb_buffer_pool_size"].removesuffix("M")) * _MIB
        await server.execute_unprepared(f"SET GLOBAL innodb_buffer_pool_size = {pool}")
