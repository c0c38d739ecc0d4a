"""Retries of read-modify-write cycles after a Conflict, in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch, retry_on_conflict
from steersman.errors import (
    AlreadyExists,
    ApiStatus,
    Conflict,
    NotFound,
    StatusCause,
    StatusDetails,
    SteersmanError,
)
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

KEY = ObjectKey("default", "counter")


class FailingCall:
    """Raises ``error`` for the first ``times`` calls, and records all calls.

    Then it returns the number of calls.
    """

    def __init__(self, error: SteersmanError, times: int) -> None:
        self.error = error
        self.times = times
        self.called_at: list[float] = []

    async def __call__(self) -> int:
        self.called_at.append(asyncio.get_running_loop().time())
        if len(self.called_at) <= self.times:
            raise self.error
        return len(self.called_at)


CONFLICT = Conflict(ApiStatus(code=409, reason="Conflict"))


@pytest.mark.requirement("programming/conflict-retry")
@virtual_time
async def test_retry_on_conflict_concurrent_updates_all_apply() -> None:
    server = InMemoryApiServer(virtual_runtime())
    client = Client(server)
    await client.create(ConfigMap(metadata=ObjectMeta(name=KEY.name, namespace=KEY.namespace), data={"n": "0"}))  # type: ignore[arg-type]

    async def increment() -> None:
        found = await client.get(ConfigMap, KEY)
        version = {"resourceVersion": found.metadata.resource_version}
        await client.patch(
            ConfigMap, KEY, MergePatch({"metadata": version, "data": {"n": str(int(found.data["n"]) + 1)}})
        )

    await asyncio.gather(*(retry_on_conflict(increment, attempts=20, runtime=virtual_runtime(n)) for n in range(5)))
    assert (await client.get(ConfigMap, KEY)).data["n"] == "5"


@virtual_time
async def test_retry_on_conflict_makes_five_attempts_with_jitter() -> None:
    fn = FailingCall(CONFLICT, 4)
    assert await retry_on_conflict(fn, runtime=virtual_runtime()) == 5
    gaps = [b - a for a, b in zip(fn.called_at, fn.called_at[1:], strict=False)]
    assert len(gaps) == 4
    assert all(0.01 <= gap <= 0.011 for gap in gaps)
    assert len({round(gap, 9) for gap in gaps}) > 1


@virtual_time
async def test_retry_on_conflict_raises_after_last_attempt() -> None:
    fn = FailingCall(CONFLICT, 99)
    with pytest.raises(Conflict):
        await retry_on_conflict(fn, runtime=virtual_runtime())
    assert len(fn.called_at) == 5


@virtual_time
async def test_retry_on_conflict_delay_grows_by_factor() -> None:
    fn = FailingCall(CONFLICT, 3)
    await retry_on_conflict(fn, delay=1, factor=2, jitter=0, runtime=virtual_runtime())
    assert fn.called_at == [0, 1, 3, 7]


FIELD_CONFLICT = ApiStatus(
    code=409, reason="Conflict", details=StatusDetails(causes=(StatusCause(reason="FieldManagerConflict"),))
)


@pytest.mark.parametrize(
    "error",
    [
        NotFound(ApiStatus(code=404)),
        AlreadyExists(ApiStatus(code=409, reason="AlreadyExists")),
        Conflict(FIELD_CONFLICT),
    ],
    ids=["not found", "exists", "owned by another manager"],
)
@virtual_time
async def test_retry_on_conflict_other_errors_are_not_retried(error: SteersmanError) -> None:
    fn = FailingCall(error, 1)
    with pytest.raises(type(error)):
        await retry_on_conflict(fn, runtime=virtual_runtime())
    assert len(fn.called_at) == 1
