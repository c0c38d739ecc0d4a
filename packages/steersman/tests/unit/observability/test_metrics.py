"""Metrics under the names that existing dashboards know."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.exposition import generate_latest

from steersman.controller import WorkQueue
from steersman.observability import metrics
from steersman.observability.request_metrics import RequestMetrics
from steersman_testing import virtual_runtime, virtual_time


def sample(metric: str, /, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(metric, labels)


@pytest.mark.requirement("overview/observability")
def test_metric_names_match_controller_runtime() -> None:
    text = generate_latest(metrics.registry).decode()
    declared = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert declared >= {
        "controller_runtime_active_workers",
        "controller_runtime_max_concurrent_reconciles",
        "controller_runtime_reconcile_errors_total",
        "controller_runtime_reconcile_time_seconds",
        "controller_runtime_reconcile_total",
        "controller_runtime_terminal_reconcile_errors_total",
        "rest_client_request_size_bytes",
        "rest_client_requests_total",
        "rest_client_response_size_bytes",
        "workqueue_adds_total",
        "workqueue_depth",
        "workqueue_queue_duration_seconds",
        "workqueue_retries_total",
        "workqueue_work_duration_seconds",
    }


def test_request_metrics_add_up_threads() -> None:
    labels = {"code": "200", "method": "GET", "host": "shop.example.com"}
    before = sample("rest_client_requests_total", **labels) or 0.0
    measured = RequestMetrics("shop.example.com")
    measured.observe("GET", 200, 0.2, 3, 1000)
    measured.count("GET", 200)
    elsewhere = threading.Thread(target=RequestMetrics("shop.example.com").observe, args=("GET", 200, 0.1, 4, 500))
    elsewhere.start()
    elsewhere.join()
    assert sample("rest_client_requests_total", **labels) == before + 3
    where = {"verb": "GET", "host": "shop.example.com"}
    assert sample("rest_client_request_duration_seconds_count", **where) == 2
    assert sample("rest_client_request_duration_seconds_bucket", le="0.1", **where) == 1
    assert sample("rest_client_request_size_bytes_sum", **where) == 7
    assert sample("rest_client_response_size_bytes_sum", **where) == 1500


@virtual_time
async def test_queue_metrics_follow_queue() -> None:
    queue: WorkQueue[str] = WorkQueue("metered", runtime=virtual_runtime())
    labels = {"name": "metered", "controller": "metered"}
    queue.add("a")
    queue.add("a")
    queue.add("b")
    assert sample("workqueue_depth", priority="0", **labels) == 2
    assert sample("workqueue_adds_total", **labels) == 2
    await queue.get()
    queue.add_rate_limited("a")
    assert sample("workqueue_depth", priority="0", **labels) == 1
    assert sample("workqueue_retries_total", **labels) == 1
    assert sample("workqueue_queue_duration_seconds_count", **labels) == 1
    queue.shut_down()
    assert sample("workqueue_depth", priority="0", **labels) == 0


def test_registry_has_no_created_series() -> None:
    metrics.certificate_reads.inc()
    assert "_created" not in generate_latest(metrics.registry).decode()
