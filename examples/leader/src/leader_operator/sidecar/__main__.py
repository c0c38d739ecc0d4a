"""Entry point of the sidecar: ``python -m leader_operator.sidecar``."""

from __future__ import annotations

import asyncio
import os
import sys
import time

from leader_operator.sidecar.processes import PodProcesses


def main() -> None:
    """Run the sidecar."""
    asyncio.run(PodProcesses(time.monotonic).kill())
    # The imports take a second on a busy machine, and an unfenced application must not run so long.
    from steersman.errors import ConfigurationError

    from leader_operator.sidecar.runner import run_sidecar
    from leader_operator.sidecar.settings import SidecarSettings

    try:
        asyncio.run(run_sidecar(SidecarSettings.from_environment(os.environ)))
    except ConfigurationError as error:
        sys.exit(f"leader sidecar: {error}")


if __name__ == "__main__":
    main()
