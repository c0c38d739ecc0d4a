"""The process of the sidecar: connection, server and signals."""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime

from steersman.client import HttpTransport, load_config
from steersman.manager.leader_election import suspend_aware_clock
from steersman.manager.serving import HttpServer
from steersman.observability.logging import configure_logging
from steersman.observability.runtime import Runtime

from leader_operator.sidecar.health import http_health_check
from leader_operator.sidecar.leader_server import leader_handler
from leader_operator.sidecar.processes import ContainerOf, PodProcesses
from leader_operator.sidecar.settings import SidecarSettings
from leader_operator.sidecar.sidecar import Sidecar


class SuspendAwareClock:
    """The clock of the machine, including suspended time."""

    def monotonic(self) -> float:
        """Seconds since boot."""
        return suspend_aware_clock()

    def now(self) -> datetime:
        """Current wall-clock time in UTC, for people only."""
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        """Suspend the calling task for ``seconds``."""
        await asyncio.sleep(seconds)


async def run_sidecar(settings: SidecarSettings, container_of: ContainerOf | None = None) -> None:
    """Run the sidecar until SIGTERM.

    Args:
        settings: see the README.
        container_of: identifies the processes of the application. Defaults to control groups.
    """
    configure_logging()
    runtime = Runtime(clock=SuspendAwareClock())
    transport = HttpTransport(load_config())
    application = PodProcesses(suspend_aware_clock, container_of=container_of)
    sidecar = Sidecar(settings, transport, application, http_health_check(settings.health_url), runtime)
    server = HttpServer("127.0.0.1", settings.port, leader_handler(sidecar.report))
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, sidecar.stop)
    # The startup probe waits for the server, and Kubernetes starts the application after it.
    await server.start()
    try:
        await sidecar.run()
    finally:
        await server.stop()
        await transport.close()
