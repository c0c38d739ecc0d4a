"""Contract cases on real Redis servers. The model passes the same cases."""

from __future__ import annotations

import itertools
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from steersman import FrozenDict

from redis_contract import PASSWORD, ContractCluster, run_all_cases
from redis_operator.api.v1.rediscluster import RedisCluster, RedisClusterSpec
from redis_operator.nodes import Address
from redis_operator.nodes.client import RedisPyClient
from redis_operator.resources import redis_conf
from redis_processes import RedisProcesses

SPEC = RedisClusterSpec(version="7.0", config=FrozenDict({"cluster-node-timeout": "1000"}))
CONFIGURATION = redis_conf(RedisCluster(spec=SPEC))


@pytest.fixture
async def processes(tmp_path: Path) -> AsyncGenerator[RedisProcesses]:
    found = RedisProcesses(tmp_path)
    yield found
    await found.stop_all()


async def test_redis(processes: RedisProcesses) -> None:
    numbers = itertools.count(1)

    async def start(volume: int) -> Address:
        await processes.stop(str(volume))
        ip = processes.ip(next(numbers))
        assert await processes.run(str(volume), str(volume), ip, CONFIGURATION, PASSWORD)
        return Address(ip)

    await run_all_cases(ContractCluster(RedisPyClient(), [await start(number) for number in range(4)], start))
