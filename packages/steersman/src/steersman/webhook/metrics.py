"""What webhooks count, under controller-runtime's names."""

from __future__ import annotations

from steersman.observability.instruments import Counter, Gauge, Histogram
from steersman.observability.metrics import LATENCY_BUCKETS, register_collector

latency = Histogram(
    "controller_runtime_webhook_latency_seconds",
    "How long a webhook takes to answer.",
    ["webhook"],
    buckets=LATENCY_BUCKETS,
)
requests = Counter(
    "controller_runtime_webhook_requests", "Requests to webhooks, by HTTP status code.", ["webhook", "code"]
)
in_flight = Gauge("controller_runtime_webhook_requests_in_flight", "Requests that are being answered.", ["webhook"])
panics = Counter("controller_runtime_webhook_panics", "Admission handlers that failed with an exception.")
conversion_panics = Counter(
    "controller_runtime_conversion_webhook_panics", "Conversion functions that failed with an exception."
)

for _instrument in (
    latency,
    requests,
    in_flight,
    panics,
    conversion_panics,
):
    register_collector(_instrument.collect)
