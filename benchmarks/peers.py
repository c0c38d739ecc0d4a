"""Frameworks under comparison and the settings of their operators.

All peers take their settings from the same environment variables:

| variable | meaning |
| --- | --- |
| ``KUBECONFIG`` | path of the kubeconfig |
| ``BENCHMARK_OPERATOR`` | ``work``: reconcile Work; ``pods``: cache pods and report pauses |
| ``BENCHMARK_NAMESPACE`` | the only namespace to watch |
| ``BENCHMARK_WORKERS`` | number of concurrent reconciles |
| ``BENCHMARK_METRICS`` | ``host:port`` of the metrics endpoint |
| ``BENCHMARK_EVENTS`` | ``yes``: record one Event per object |
| ``BENCHMARK_TIMED`` | ``yes``: write the start of the reconcile into the status |
| ``BENCHMARK_LEADER_ELECTION`` | ``yes``: enable leader election if the framework supports it |
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
    """Settings of one operator process."""

    kubeconfig: Path
    namespace: str
    operator: Operator = "work"
    events: bool = False
    timed: bool = False
    leader_election: bool = False
    metrics_port: int = 0

    def environment(self) -> dict[str, str]:
        """Return the process environment without the caller's proxies and clusters."""
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
    """A framework under comparison.

    Attributes:
        name: identifier on the command line and in the results.
        toolchain: build toolchain; its peers share one build.
        package: module whose import is timed (Python only).
        loop: event loop (Steersman only).
        leader_election: True if the framework supports it.
    """

    name: str
    toolchain: Toolchain
    package: str = ""
    loop: str = ""
    leader_election: bool = False

    def command(self, built: Mapping[Toolchain, Path], settings: OperatorSettings) -> list[str]:
        """Return the operator's command line."""
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
    """Return the current Python interpreter, which also runs Steersman's operators."""
    return Path(sys.executable)
