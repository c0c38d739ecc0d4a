"""A primary that accepts no writes is not Available, whatever its role; in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.group_harness import GroupHarness
from steersman.api.core_v1 import Pod
from steersman.client import MergePatch
from steersman.meta import ObjectKey
from steersman_testing import virtual_time

ERROR = "cannot execute INSERT in a read-only transaction"


async def annotate_pod(world: ClusterHarness, error: str | None) -> None:
    """Report as steersman-watch does."""
    body = {"metadata": {"annotations": {"databases.steersman.dev/write-error": error}}}
    await world.client.patch(Pod, ObjectKey("default", "orders-0-0"), MergePatch(body))


async def report_member(world: ClusterHarness, error: str | None) -> None:
    """Report as the agent of a MySQL member does."""
    assert isinstance(world, GroupHarness)
    world.fake_group.write_errors = {} if error is None else {"orders-0-0": error}


@pytest.mark.parametrize(
    ("make", "report"), [(ClusterHarness, annotate_pod), (GroupHarness, report_member)], ids=["postgresql", "mysql"]
)
@virtual_time
async def test_rejected_writes_are_reported_until_accepted(
    make: type[ClusterHarness], report: Callable[[ClusterHarness, str | None], Awaitable[None]]
) -> None:
    world = make()
    async with world.operator():
        await world.create_ready()
        await report(world, ERROR)
        await world.until("reported", lambda: world.condition("Available") == "False/WritesRejected", 15)
        assert f"primary orders-0 accepts no writes: {ERROR}" in world.message("Available")
        await world.until("not ready", lambda: world.condition("Ready") == "False/Degraded", 15)
        assert world.status.phase == "Degraded" and ERROR in world.message("Ready")
        await world.until("an Event", lambda: bool(world.warnings("WritesRejected")), 15)
        await report(world, None)
        await world.until("accepted", lambda: world.condition("Available") == "True/PrimaryAvailable", 15)
        await world.ready()


@virtual_time
async def test_previous_primary_does_not_count() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        await annotate_pod(world, ERROR)
        await world.until("reported", lambda: world.condition("Available") == "False/WritesRejected", 15)
        await world.annotate(switchover="orders-1")
        await world.until("switched", lambda: world.status.primary == "orders-1")
        await world.until("accepted", lambda: world.condition("Available") == "True/PrimaryAvailable", 30)
