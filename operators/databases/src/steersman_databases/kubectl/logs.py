"""The command `logs`: each line of all instances with its instance."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from steersman.api.core_v1 import Pod
from steersman.client import Client
from steersman.errors import BadRequest, NotFound, SteersmanError
from steersman.meta import ObjectKey
from steersman_databases.engines.naming import CLUSTER_LABEL
from steersman_databases.kubectl.command import OperationRejected, qualified_name
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.shell import CONTAINER
from steersman_databases.kubectl.slow_log import MySQLSlowLog, PostgreSQLSlowLog, SlowLog


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Selection of lines, as kubectl's own options.

    Attributes:
        slow_only: only slow statements, each as one line.
    """

    follow: bool = False
    previous: bool = False
    tail_lines: int | None = None
    since_seconds: int | None = None
    container: str = CONTAINER
    slow_only: bool = False


async def pods_of_cluster(client: Client, key: ObjectKey) -> list[Pod]:
    """Return the pods of a cluster by name.

    Raises:
        NotFound: there is no such cluster.
        OperationRejected: it has no pod.
    """
    await find_cluster(client, key)
    found = await client.list(Pod, namespace=key.namespace, label_selector=f"{CLUSTER_LABEL}={key.name}")
    if not found.items:
        raise OperationRejected(f"cluster {qualified_name(key)} has no pod. See kubectl steersman status {key.name}")
    return sorted(found.items, key=lambda pod: pod.metadata.name)


def slow_log_of(pod: Pod) -> SlowLog:
    """Return a parser for the logs of a server."""
    is_mysql = pod.metadata.labels.get("app.kubernetes.io/name") == "mysql"
    return MySQLSlowLog() if is_mysql else PostgreSQLSlowLog()


async def print_logs(
    client: Client,
    key: ObjectKey,
    options: LogOptions,
    line: Callable[[str], None],
    report_failure: Callable[[str, SteersmanError], None],
) -> None:
    """Call `line` with each line of each instance.

    Instances come one after the other, or, with `follow`, in the order of their output.

    Args:
        report_failure: called with an instance whose logs are missing or incomplete, and the reason.

    Raises:
        NotFound: there is no such cluster.
        OperationRejected: it has no pod, or all instances failed.
    """
    reading = (read_pod_log(client, pod, options, line, report_failure) for pod in await pods_of_cluster(client, key))
    # Not a TaskGroup: callers expect errors such as a closed pipe themselves, and not in a group.
    printed = await asyncio.gather(*reading) if options.follow else [await each for each in reading]
    if not any(printed):
        raise OperationRejected(f"no logs of cluster {qualified_name(key)} are available")


async def read_pod_log(
    client: Client,
    pod: Pod,
    options: LogOptions,
    line: Callable[[str], None],
    report_failure: Callable[[str, SteersmanError], None],
) -> bool:
    """Call `line` with each line of a pod.

    Return True if the logs are complete.

    After an error it calls `report_failure`.
    """
    instance = pod.metadata.name.removesuffix("-0")
    slow = slow_log_of(pod) if options.slow_only else None
    try:
        async for text in client.logs(
            pod.key,
            container=options.container,
            follow=options.follow,
            previous=options.previous,
            tail_lines=options.tail_lines,
            since_seconds=options.since_seconds,
        ):
            for shown in [text] if slow is None else slow.feed(text):
                line(f"{instance}  {shown}")
        for shown in () if slow is None else slow.finish():
            line(f"{instance}  {shown}")
    except (BadRequest, NotFound) as error:  # its container has not started, or the pod is gone
        line(f"{instance}  ({error})")
    except SteersmanError as error:  # for example, the kubelet of a lost node does not respond to the API server
        report_failure(instance, error)
        return False
    return True
