"""Why a Job has no pod, from what its controller tells."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Event, ObjectReference
from steersman.client import Client
from steersman.meta import ObjectMeta
from steersman_databases.cluster.status.pod_rejections import PodRejection, find_pod_rejection
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

JOB = Job(metadata=ObjectMeta(name="shop-upgrade", namespace="default", uid="u1"))
BEGUN = datetime(2026, 1, 1, tzinfo=UTC)


def told(reason: str, message: str, first: int, last: int) -> Event:
    """What was told from one second to another."""
    return Event(
        metadata=ObjectMeta(name=f"e{first}-{reason.lower()}", namespace="default"),
        involved_object=ObjectReference(kind="Job", name="shop-upgrade", namespace="default", uid="u1"),
        reason=reason,
        message=message,
        first_timestamp=BEGUN + timedelta(seconds=first),
        last_timestamp=BEGUN + timedelta(seconds=last),
    )


async def found(*events: Event) -> PodRejection | None:
    client = Client(InMemoryApiServer(virtual_runtime()), field_manager="test")
    for event in events:
        await client.create(event)
    return await find_pod_rejection(client, JOB)


def quota(pod: str) -> str:
    return f'Error creating: pods "shop-upgrade-{pod}" is forbidden: exceeded quota'


@virtual_time
async def test_repeated_rejection_keeps_first_time() -> None:
    refusal = await found(
        told("FailedCreate", quota("abcde"), 1, 1),
        told("FailedCreate", quota("fghij"), 30, 30),
        told("FailedCreate", f"(combined from similar events): {quota('klmno')}", 90, 300),
    )
    assert refusal is not None and refusal.since == BEGUN + timedelta(seconds=1)
    expected = "pod creation for shop-upgrade was rejected: it is forbidden: exceeded quota"
    assert refusal.problem.message == expected


@virtual_time
async def test_rejection_before_created_pod_is_ignored() -> None:
    again = "Error creating: Internal error occurred: failed calling webhook"
    pod = told("SuccessfulCreate", "Created pod: shop-upgrade-abcde", 40, 40)
    refusal = await found(told("FailedCreate", again, 1, 900), pod)
    assert refusal is not None and refusal.since == BEGUN + timedelta(seconds=40)


@virtual_time
async def test_created_pod_clears_rejection() -> None:
    pod = told("SuccessfulCreate", "Created pod: shop-upgrade-abcde", 40, 40)
    assert await found(told("FailedCreate", quota("fghij"), 1, 30), pod) is None
