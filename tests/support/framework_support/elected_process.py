"""Operator replica with leader election, run as a process by tests.

Arguments: kubeconfig, namespace, and ``lease_duration,renew_deadline,retry_period`` in seconds. It prints
``standing by`` when its caches are synced and ``leading`` when it is the leader.
"""

from __future__ import annotations

import asyncio
import sys

from steersman.api.core_v1 import ConfigMap
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import LeaderElection, Manager
from steersman.manager.flags import ManagerFlags


class IdleReconciler(RequestReconciler[ConfigMap]):
    """Does nothing. Its cache must be synced."""

    async def reconcile(self, request: Request) -> Result:
        return Result()


def setup(manager: Manager) -> None:
    """Register a controller and runnables that print the state."""
    manager.controller(ConfigMap).complete(IdleReconciler)

    async def ready() -> None:
        print_line("standing by")

    async def leading() -> None:
        print_line("leading")
        await asyncio.Event().wait()

    manager.add(ready, needs_leader_election=False)
    manager.add(leading)


def print_line(words: str) -> None:
    """Print a line and flush."""
    sys.stdout.write(f"{words}\n")
    sys.stdout.flush()


def main() -> None:
    """Run the process."""
    kubeconfig, namespace, times = sys.argv[1:]
    duration, deadline, period = times.split(",")
    election = LeaderElection(
        name="replicas",
        namespace=namespace,
        lease_duration=int(duration),
        renew_deadline=float(deadline),
        retry_period=float(period),
    )
    flags = ManagerFlags(
        kubeconfig=kubeconfig, namespaces=[namespace], metrics_bind_address="0", health_probe_bind_address="0"
    )
    flags.run(setup, name="elected", leader_election=election)


if __name__ == "__main__":
    main()
