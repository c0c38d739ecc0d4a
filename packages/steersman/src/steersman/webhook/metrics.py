"""Metrics of webhooks, with the names that controller-runtime uses."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from steersman.observability.metrics import LATENCY_BUCKETS, framework_registry

latency = Histogram(
    "controller_runtime_webhook_latency_seconds",
    "Duration of a webhook request.",
    ["webhook"],
    buckets=LATENCY_BUCKETS,
    registry=framework_registry,
)
requests = Counter(
    "controller_runtime_webhook_requests",
    "Webhook requests by HTTP status code.",
    ["webhook", "code"],
    registry=framework_registry,
)
in_flight = Gauge(
    "controller_runtime_webhook_requests_in_flight",
    "Webhook requests in progress.",
    ["webhook"],
    registry=framework_registry,
)
panics = Counter(
    "controller_runtime_webhook_panics",
    "Admission handlers that raised an exception.",
    registry=framework_registry,
)
conversion_panics = Counter(
    "controller_runtime_conversion_webhook_panics",
    "Conversion functions that raised an exception.",
    registry=framework_registry,
)
