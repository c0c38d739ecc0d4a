"""Contract cases on the model."""

from __future__ import annotations

import itertools

from steersman_testing import virtual_time

from redis_contract import PASSWORD, ContractCluster, run_all_cases
from redis_model import ModelRedis
from redis_operator.nodes import Address


@virtual_time
async def test_model() -> None:
    redis = ModelRedis()
    numbers = itertools.count(1)

    async def start(volume: int) -> Address:
        address = Address(f"10.0.0.{next(numbers)}")
        redis.start(str(volume), address, PASSWORD)
        return address

    await run_all_cases(ContractCluster(redis, [await start(number) for number in range(4)], start))
