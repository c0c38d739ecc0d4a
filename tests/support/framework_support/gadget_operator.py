"""The operator of ``gadget`` as a program: ``python gadget_operator.py --kubeconfig FILE --namespace NAME``."""

from __future__ import annotations

import argparse
import asyncio

from framework_support.gadget import setup
from steersman.client import connect, load_config
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.observability.logging import configure_logging


async def run(arguments: argparse.Namespace) -> None:
    """The operator, until SIGTERM."""
    lease: float = arguments.lease
    async with connect(load_config(arguments.kubeconfig)) as transport:
        options = ManagerOptions(
            name="gadgets",
            instance=arguments.instance,
            namespaces=(arguments.namespace,),
            leader_election=_election(lease, arguments.namespace) if lease else None,
            metrics_bind_address="127.0.0.1:0",
        )
        manager = Manager(transport, options)
        setup(manager)
        await manager.run_until_signalled()


def _election(lease: float, namespace: str) -> LeaderElection:
    """In the proportions of the defaults: 15, 10 and 2 seconds."""
    return LeaderElection(
        name="gadgets",
        namespace=namespace,
        lease_duration=round(lease),
        renew_deadline=lease * 2 / 3,
        retry_period=lease * 2 / 15,
    )


def main() -> None:
    """Reads the arguments and runs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--instance", default="gadgets-0")
    parser.add_argument("--lease", type=float, default=0.0, help="seconds; with it, replicas elect a leader")
    configure_logging("info")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
