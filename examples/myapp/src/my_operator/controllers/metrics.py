# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""What the operator measures beside what every operator of Steersman does."""

from __future__ import annotations

from prometheus_client import Counter
from steersman import ReconcileOutcome, Request
from steersman.observability import metrics

RECONCILES = Counter(
    "myapp_reconcile_total",
    "Reconciles of each MyApp, by how they ended: success or error.",
    ("namespace", "name", "result"),
    registry=metrics.registry,
)
"""Made once a process, as the registry is."""

RESULTS = ("success", "error")


def record_reconcile(request: Request, outcome: ReconcileOutcome) -> None:
    """Counts one reconcile of an object that is there."""
    RECONCILES.labels(request.namespace, request.name, RESULTS[outcome.error is not None]).inc()


def remove_metrics(request: Request) -> None:
    """Shows nothing of an object that is gone: names come and go, and each would be kept for ever."""
    RECONCILES.remove_by_labels({"namespace": request.namespace, "name": request.name})
