"""The command `history`: recorded load of the instances."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Literal

import typer

from steersman.client import Client
from steersman.meta import ObjectKey
from steersman_databases.engines.server_pod import AGENT_CONTAINER
from steersman_databases.kubectl.command import (
    CommandContext,
    OperationRejected,
    on_cluster,
    print_note,
    qualified_name,
    usage_error,
)
from steersman_databases.kubectl.insight.history import InstanceHistory, RecordedHistory
from steersman_databases.kubectl.insight.history_view import render
from steersman_databases.kubectl.insight.instance import decode, execute, failure_of
from steersman_databases.kubectl.logs import pods_of_cluster
from steersman_databases.kubectl.tables import print_table, printable

_RESOLUTIONS = {"1h": "10s", "24h": "5m"}
"""Argument of the program in the pod, by time span."""


@on_cluster
def history_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    since: Annotated[Literal["1h", "24h"], typer.Option(help="Time to show.")] = "1h",
    instance: Annotated[str, typer.Option("--instance", help="Only this instance.")] = "",
) -> None:
    """Show the load of the last hour or day by instance.

    Instances keep it in memory, so it begins with the last start of their agent. One hour has a value each 10 s, and
    24 hours have the average of each 5 minutes.

    Example: kubectl steersman history shop

    Example: kubectl steersman history shop --since 24h --instance shop-1

    Example: kubectl steersman history shop -o json
    """

    async def work(client: Client, namespace: str) -> Sequence[InstanceHistory]:
        return await load_histories(place, client, ObjectKey(namespace, cluster), instance, _RESOLUTIONS[since])

    found = place.run(work)

    def print_tables() -> None:
        for number, one in enumerate(found):
            if number:
                typer.echo()
            for part in render(one):
                print_table(part)

    place.print_output(found, print_tables)


async def load_histories(
    place: CommandContext, client: Client, key: ObjectKey, instance: str, resolution: str
) -> Sequence[InstanceHistory]:
    """Return the history of each instance, or of one. A note names those that do not respond.

    Raises:
        NotFound: there is no such cluster.
        ConfigurationError: it has no such instance.
        OperationRejected: no instance responds.
    """
    pods = [pod.metadata.name for pod in await pods_of_cluster(client, key)]
    names = [name for name in pods if instance in ("", name.removesuffix("-0"))]
    if not names:
        raise usage_error(f"cluster {qualified_name(key)} has no instance {instance}")
    loaded = await asyncio.gather(*(_load(place, key.namespace, name, resolution) for name in names))
    found = [one for one in loaded if one is not None]
    if not found:
        raise OperationRejected(f"no history of cluster {qualified_name(key)} is available")
    return found


async def _load(place: CommandContext, namespace: str, pod: str, resolution: str) -> InstanceHistory | None:
    instance = pod.removesuffix("-0")
    command = ["steersman-instance", "history", resolution]
    try:
        done = await execute(place, namespace, pod, command, container=AGENT_CONTAINER)
        if done.returncode:
            raise OperationRejected(_message(failure_of(done)))
        return InstanceHistory(instance=instance, history=decode(done.stdout, RecordedHistory))
    except OperationRejected as error:
        print_note(f"{instance}: {printable(str(error))}")
        return None


def _message(failure: str) -> str:
    if failure.startswith("usage: steersman-instance"):
        return "the image of the instance does not record a history. Update the image"
    return failure
