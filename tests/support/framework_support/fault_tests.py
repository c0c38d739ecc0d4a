"""Scale and measurements of the fault tests."""

from __future__ import annotations

import json
import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from framework_support.churn import Churn
from framework_support.operator_process import OperatorProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultScale:
    """Size of the faults.

    Attributes:
        objects: number of changed objects.
        rate: changes per second.
        kills: number of times the API server is killed.
        outage: duration of other faults in seconds.
        lease: lease duration in seconds.
        hourly_changes: number of changes in the test that simulates an hour.
        patience: timeout in seconds until all objects are consistent.
    """

    objects: int
    rate: float
    kills: int
    outage: float
    lease: float
    hourly_changes: int
    patience: float


SHORT = FaultScale(objects=40, rate=30, kills=2, outage=3, lease=8, hourly_changes=600, patience=90)
FULL = FaultScale(objects=1000, rate=100, kills=10, outage=30, lease=15, hourly_changes=36_000, patience=300)


def chosen_scale() -> FaultScale:
    """``FULL`` with ``FAULTS=whole`` in the environment, otherwise ``SHORT``."""
    return FULL if os.environ.get("FAULTS") == "whole" else SHORT


class StartOperator(Protocol):
    """Context manager factory that starts the operator and waits until it listens."""

    def __call__(
        self, kubeconfig: Path, *arguments: str, name: str = "a"
    ) -> AbstractAsyncContextManager[OperatorProcess]: ...


_METRICS = (
    "controller_runtime_reconcile_total",
    "controller_runtime_reconcile_errors_total",
    "steersman_watch_restarts_total",
    "steersman_decode_errors_total",
    "rest_client_requests_total",
    "rest_client_request_retries_total",
)


async def write_measurements(
    fault: str, churn: Churn, process: OperatorProcess, **measurements: float | list[float]
) -> None:
    """Append measurements and metrics of the operator to the file in ``FAULTS_FIGURES``."""
    if file := os.environ.get("FAULTS_FIGURES"):
        counted = await process.metrics()
        line = {
            "fault": fault,
            "objects": len(churn.keys),
            "changes": churn.total,
            "failed changes": dict(churn.failures),
            "rss": process.rss_mib(),
            **measurements,
            **{name: counted[name] for name in _METRICS if name in counted},
        }
        _append(Path(file), json.dumps(line))


def _append(file: Path, line: str) -> None:
    with file.open("a") as output:
        output.write(f"{line}\n")
