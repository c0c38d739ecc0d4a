# Copyright 2026
# SPDX-License-Identifier: Apache-2.0

"""Metrics of the operator, in addition to those of the framework."""

from __future__ import annotations

from prometheus_client import Counter
from steersman import ObjectKey, ReconcileOutcome
from steersman.cache import InformerEvent
from steersman.observability import metrics

from my_operator.api.v1.myapp import MyApp

RECONCILES = Counter(
    "myapp_reconcile_total",
    "Reconciles of each MyApp, by how they ended: success or error.",
    ("namespace", "name", "result"),
    registry=metrics.registry,
)
"""Counter of reconciles; one per process, like the registry."""

RESULTS = ("success", "error")


def record_reconcile(key: ObjectKey, outcome: ReconcileOutcome) -> None:
    """Count a reconcile of an existing object."""
    RECONCILES.labels(key.namespace, key.name, RESULTS[outcome.error is not None]).inc()


def remove_metrics(event: InformerEvent[MyApp]) -> None:
    """Remove the series of an object when it is deleted."""
    if event.new is None:
        key = event.object.key
        RECONCILES.remove_by_labels({"namespace": key.namespace, "name": key.name})
