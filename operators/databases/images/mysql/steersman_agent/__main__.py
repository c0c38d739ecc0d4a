"""steersman-agent [fenced]: process 1 of a member's container. Its environment says of which pod."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from steersman_pod.leading import this_pod
from steersman_pod.volumes import Taken, take_volume

from .agent import Agent, Cluster
from .kubernetes import ApiServer
from .log import Log
from .server import Place, Server


def run(environment: Mapping[str, str], place: Callable[[str, int], Place], *, fenced: bool = False) -> None:
    """Until it is told to end.

    Args:
        place: given the pod's address and the instance's number.
    """
    # Process 1 is deaf to what it does not handle, and whoever waits for the volume may be told to end.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, leave)
    os.umask(0o077)
    pod = this_pod(environment)
    # Whoever copies a member takes no IPv6 address of it (MySQL 9.7 Reference Manual, "Cloning Remote Data").
    address = next((one for one in pod.addresses if ":" not in one), pod.addresses[0])
    here = place(address, int(environment["INSTANCE"]))
    take_volume(here.volume)
    if fenced:
        return keep()
    agent = Agent(Cluster(pod=pod, name=environment["CLUSTER_NAME"]), Server(here), ApiServer)

    def stop(_signal: int, _frame: object) -> None:
        agent.stop()

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, stop)
    return agent.run()


def leave(_signal: int, _frame: object) -> NoReturn:
    """Ends as asked."""
    sys.exit(0)


def keep() -> NoReturn:
    """Does nothing until the pod is deleted: its data can be looked at, and nobody serves them."""
    Log().say("decision", "fenced; MySQL is not started")
    while True:
        signal.pause()


def main(arguments: Sequence[str]) -> None:
    """`fenced` or nothing."""
    if list(arguments) not in ([], ["fenced"]):
        sys.exit("usage: steersman-agent [fenced]")
    try:
        run(os.environ, lambda host, instance: Place(host=host, instance=instance), fenced=bool(arguments))
    except Taken as error:
        sys.exit(f"steersman-agent: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
