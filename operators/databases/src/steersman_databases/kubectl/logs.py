"""``logs``: the logs of all instances of a cluster, each line with its instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.errors import BadRequest, NotFound, SteersmanError
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


async def tell(
    client: Client,
    key: ObjectKey,
    wanted: Wanted,
    line: Callable[[str], None],
    failed: Callable[[str, SteersmanError], None],
) -> None:
    """Calls ``line`` with each line of each instance, one instance after the other, or, followed, as they come.

    Args:
        failed: is called with an instance whose log cannot be had, or not to its end, and why.

    Raises:
        NotFound: there is no such cluster.
        Refused: it has no pod, or ``failed`` was called with all instances.
    """
    reading = (read(client, pod, wanted, line, failed) for pod in await members(client, key))
    # Not a TaskGroup: what ends the command, such as a closed pipe, is looked for as it is, and not in a group.
    had = await asyncio.gather(*reading) if wanted.follow else [await each for each in reading]
    if not any(had):
        raise Refused(f"no instance of cluster {named(key)} gives its log")


async def read(
    client: Client,
    pod: Pod,
    wanted: Wanted,
    line: Callable[[str], None],
    failed: Callable[[str, SteersmanError], None],
) -> bool:
    """Calls ``line`` with each line of one pod, or ``failed``; gives whether all was told that there is."""
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
    except SteersmanError as error:  # as of a node that is gone, whose kubelet the API server asks in vain
        failed(instance, error)
        return False
    return True
