"""How large the faults are: short ones for ``make test``, whole ones for ``make faults``."""

from __future__ import annotations

import os
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from framework_support.operator_process import OperatorProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
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
    hour: int
    patience: float


SHORT = Scale(objects=40, rate=30, kills=2, outage=3, lease=8, hour=600, patience=90)
WHOLE = Scale(objects=1000, rate=100, kills=10, outage=30, lease=15, hour=36_000, patience=300)


def chosen_scale() -> Scale:
    """``WHOLE`` with ``FAULTS=whole`` in the environment."""
    return WHOLE if os.environ.get("FAULTS") == "whole" else SHORT


class StartOperator(Protocol):
    """Starts the operator, and waits until it listens; it ends with the block."""

    def __call__(
        self, kubeconfig: Path, *arguments: str, name: str = "a"
    ) -> AbstractAsyncContextManager[OperatorProcess]: ...
