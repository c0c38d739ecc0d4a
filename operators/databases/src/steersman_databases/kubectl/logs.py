"""``logs``: the logs of all instances of a cluster, each line with its instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.errors import BadRequest, NotFound
from steersman.meta import ObjectKey
from steersman_databases.engines.cluster_names import MEMBER_OF_LABEL
from steersman_databases.kubectl.found import find_cluster
from steersman_databases.kubectl.place import Refused, named
from steersman_databases.kubectl.shell import CONTAINER


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which lines: as kubectl's own options say it."""

    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    container: str = CONTAINER


async def members(client: Client, key: ObjectKey) -> list[Pod]:
    """The pods of a cluster, by name. Raises NotFound without such a cluster, Refused if it has no pod."""
    await find_cluster(client, key)
    found = await client.list(Pod, namespace=key.namespace, label_selector=f"{MEMBER_OF_LABEL}={key.name}")
    if not found.items:
        raise Refused(f"cluster {named(key)} has no pod now: see kubectl steersman status {key.name}")
    return sorted(found.items, key=lambda pod: pod.metadata.name)


async def tell(client: Client, key: ObjectKey, wanted: Wanted, line: Callable[[str], None]) -> None:
    """Calls ``line`` with each line of each instance, one instance after the other, or, followed, as they come."""
    pods = await members(client, key)
    if not wanted.follow:
        for pod in pods:
            await _of(client, pod, wanted, line)
        return
    async with asyncio.TaskGroup() as tasks:
        for pod in pods:
            tasks.create_task(_of(client, pod, wanted, line))


async def _of(client: Client, pod: Pod, wanted: Wanted, line: Callable[[str], None]) -> None:
    instance = pod.metadata.name.removesuffix("-0")
    try:
        async for text in client.logs(
            pod.key,
            container=wanted.container,
            follow=wanted.follow,
            previous=wanted.previous,
            tail_lines=wanted.tail_lines,
            since_seconds=wanted.since_seconds,
        ):
            line(f"{instance}  {text}")
    except (BadRequest, NotFound) as error:  # its container has not started, or it went
        line(f"{instance}  ({error})")
