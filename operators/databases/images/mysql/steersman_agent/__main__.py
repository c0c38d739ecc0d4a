"""steersman-agent [fenced]: process 1 of a member's container.

The environment identifies the pod.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from steersman_instance.paths import PATHS
from steersman_instance.resource_usage import report as resource_usage
from steersman_pod.rw_endpoints import this_pod
from steersman_pod.volumes import VolumeInUse, lock_volume

from .agent import Agent, PodCluster
from .kubernetes import KubernetesApi
from .log import DeduplicatedLog
from .server import slow_log
from .server.process import MySQLServer, ServerPaths


def run(
    environment: Mapping[str, str], paths_for: Callable[[str, int], ServerPaths], *, fenced: bool = False
) -> None:
    """Run the agent until it is stopped.

    Args:
        paths_for: called with the pod's address and the instance's number.
    """
    # Process 1 ignores signals without a handler, and it may be stopped while it waits for the volume.
    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, terminate)
    os.umask(0o077)
    pod = this_pod(environment)
    # Clones do not accept IPv6 addresses of members (MySQL 9.7 Reference Manual, "Cloning Remote Data").
    address = next((one for one in pod.addresses if ":" not in one), pod.addresses[0])
    paths = paths_for(address, int(environment["INSTANCE"]))
    lock_volume(paths.volume)
    if fenced:
        return keep_fenced()
    server = MySQLServer(paths)
    server.crashes.record_container_start()
    agent = Agent(PodCluster(pod=pod, name=environment["CLUSTER_NAME"]), server, KubernetesApi)

    def stop(_signal: int, _frame: object) -> None:
        agent.stop()

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, stop)
    return agent.run()


def terminate(_signal: int, _frame: object) -> NoReturn:
    """End as requested."""
    sys.exit(0)


def keep_fenced() -> NoReturn:
    """Wait until the pod is deleted.

    The data can be inspected, and no server serves them.
    """
    DeduplicatedLog().log("decision", "fenced; MySQL is not started")
    while True:
        signal.pause()


def main(arguments: Sequence[str]) -> None:
    """Run with the argument `fenced`, or without arguments."""
    if list(arguments) not in ([], ["fenced"]):
        sys.exit("usage: steersman-agent [fenced]")
    if not arguments:
        resource_usage.start(PATHS.volume, os.environ)
        slow_log.start(ServerPaths().slow_log)
    try:
        run(os.environ, lambda host, instance: ServerPaths(host=host, instance=instance), fenced=bool(arguments))
    except VolumeInUse as error:
        sys.exit(f"steersman-agent: {error}")


if __name__ == "__main__":
    main(sys.argv[1:])
