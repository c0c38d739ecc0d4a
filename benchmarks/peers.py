"""Who is measured, and how each is told what to do.

All peers take their settings from the same environment variables:

| variable | what |
| --- | --- |
| ``KUBECONFIG`` | how to reach the API server |
| ``BENCHMARK_OPERATOR`` | ``work``: reconcile Work; ``pods``: cache pods and report pauses |
| ``BENCHMARK_NAMESPACE`` | the only namespace to watch |
| ``BENCHMARK_WORKERS`` | how many objects are reconciled at once |
| ``BENCHMARK_METRICS`` | ``host:port`` of the metrics endpoint |
| ``BENCHMARK_EVENTS`` | ``yes``: one Event each |
| ``BENCHMARK_TIMED`` | ``yes``: note in the status when the reconcile began |
| ``BENCHMARK_LEADER_ELECTION`` | ``yes``: hold a Lease, where the framework can |
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Operator = Literal["work", "pods"]
Toolchain = Literal["go", "cargo", "python", "kopf"]

WORKERS = 32
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class OperatorSettings:
    """What one operator process is asked to do."""

    kubeconfig: Path
    namespace: str
    operator: Operator = "work"
    events: bool = False
    timed: bool = False
    leader_election: bool = False
    metrics_port: int = 0

    def environment(self) -> dict[str, str]:
        """The variables of the process, those of the caller included but for its proxies and clusters."""
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "PYTHONPATH") if name in os.environ}
        return {
            **inherited,
            "KUBECONFIG": str(self.kubeconfig),
            "BENCHMARK_OPERATOR": self.operator,
            "BENCHMARK_NAMESPACE": self.namespace,
            "BENCHMARK_WORKERS": str(WORKERS),
            "BENCHMARK_METRICS": f"127.0.0.1:{self.metrics_port}",
            "BENCHMARK_EVENTS": "yes" if self.events else "no",
            "BENCHMARK_TIMED": "yes" if self.timed else "no",
            "BENCHMARK_LEADER_ELECTION": "yes" if self.leader_election else "no",
        }


@dataclass(frozen=True, slots=True)
class Peer:
    """One of those that are compared.

    Attributes:
        name: as on the command line and in the results.
        toolchain: what builds it; peers of the same toolchain share what is built.
        package: for Python, the module whose import is timed.
        loop: for Steersman, the event loop.
        leader_election: whether the framework has any.
    """

    name: str
    toolchain: Toolchain
    package: str = ""
    loop: str = ""
    leader_election: bool = False

    def command(self, built: Mapping[Toolchain, Path], settings: OperatorSettings) -> list[str]:
        """What to run; ``built`` has the program or interpreter of each toolchain."""
        program = str(built[self.toolchain])
        if self.toolchain == "python":
            return [program, "-m", f"benchmarks.{settings.operator}", self.loop]
        if self.toolchain == "kopf":
            module = _HERE / "kopf_operator" / f"{settings.operator}.py"
            arguments = ["--standalone", "--quiet", "--namespace", settings.namespace, str(module)]
            return [program, "-m", "kopf", "run", *arguments]
        return [program]


FRAMEWORK = "steersman.client, steersman.controller, steersman.manager, steersman.meta"

PEERS = (
    Peer("controller-runtime", "go", leader_election=True),
    Peer("kube-rs", "cargo"),
    Peer("kopf", "kopf", package="kopf"),
    Peer("steersman", "python", package=FRAMEWORK, loop="asyncio", leader_election=True),
    Peer("steersman-uvloop", "python", package=FRAMEWORK, loop="uvloop", leader_election=True),
)
BASELINE = PEERS[0]


def interpreter() -> Path:
    """The Python that runs this, which Steersman's operators run on as well."""
    return Path(sys.executable)
