"""What a fault test measured, one line of JSON a test, in the file that ``FAULTS_FIGURES`` names."""

from __future__ import annotations

import json
import os
from pathlib import Path

from framework_support.churn import Churn
from framework_support.operator_process import OperatorProcess

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
    """Writes down ``figures``, and what the operator counted."""
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
