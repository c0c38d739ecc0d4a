"""How large the faults are: short ones for ``make test``, whole ones for ``make faults``."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from framework_support.operator_process import OperatorProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultScale:
    """The size of the faults.

    Attributes:
        objects: how many change.
        rate: changes a second.
        kills: how often the API server is killed.
        outage: seconds that whatever else is broken stays so.
        lease: seconds that a Lease lasts.
        hour: changes in an hour.
        patience: seconds at most until all is well again.
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
    """``WHOLE`` with ``FAULTS=whole`` in the environment."""
    return FULL if os.environ.get("FAULTS") == "whole" else SHORT


class StartOperator(Protocol):
    """Starts the operator, and waits until it listens; it ends with the block."""

    def __call__(
        self, kubeconfig: Path, *arguments: str, name: str = "a"
    ) -> AbstractAsyncContextManager[OperatorProcess]: ...
