# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Metrics of the operator, in addition to those of the framework."""

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
"""Counter of reconciles; one per process, like the registry."""

RESULTS = ("success", "error")


def record_reconcile(request: Request, outcome: ReconcileOutcome) -> None:
    """Count a reconcile of an existing object."""
    RECONCILES.labels(request.namespace, request.name, RESULTS[outcome.error is not None]).inc()


def remove_metrics(request: Request) -> None:
    """Remove the series of a deleted object."""
    RECONCILES.remove_by_labels({"namespace": request.namespace, "name": request.name})
