"""Random monitors, and the Services and pods that they select."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

APPS, TIERS = ("orders", "carts", "billing"), ("web", "api")
RELABELINGS: list[dict[str, Any]] = [
    {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "host"},
    {"sourceLabels": ["namespace", "pod"], "separator": "/", "targetLabel": "where"},
    {"sourceLabels": ["__address__"], "regex": "(.+):(\\d+)", "replacement": "$2", "targetLabel": "number"},
    {"action": "labelmap", "regex": "__meta_kubernetes_pod_label_(.+)", "replacement": "pod_$1"},
    {"action": "drop", "sourceLabels": ["__meta_kubernetes_pod_label_tier"], "regex": "api"},
    {"action": "labeldrop", "regex": "node|container"},
    {"action": "hashmod", "sourceLabels": ["__address__"], "modulus": 3, "targetLabel": "shard"},
    {"action": "Uppercase", "sourceLabels": ["job"], "targetLabel": "loud"},
    {"targetLabel": "endpoint", "replacement": ""},
]


def generated_pods() -> Iterator[dict[str, Any]]:
    """Yield manifests of pods. The third of each application has ended."""
    for number, app in enumerate(APPS):
        for ordinal in range(3):
            ports = [{"name": "web", "containerPort": 8080}, {"name": "metrics", "containerPort": 9100 + number}]
            labels = {"app": app, "tier": TIERS[ordinal % 2], "app.kubernetes.io/version": f"1.{ordinal}"}
            container = {"name": "main", "image": "main", "ports": ports[: ordinal + 1]}
            sidecar = {"name": "sidecar", "image": "sidecar"}
            yield {
                "metadata": {"name": f"{app}-{ordinal}", "labels": labels},
                "spec": {"containers": [container, sidecar], "nodeName": f"node-{ordinal}"},
                "status": {
                    "phase": "Succeeded" if ordinal == 2 else "Running",
                    "podIP": f"10.{number}.0.{ordinal + 1}",
                    "podIPs": [{"ip": f"10.{number}.0.{ordinal + 1}"}],
                },
            }


def generated_monitors(seed: int, count: int, other_namespace: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield kinds and manifests of monitors.

    Args:
        seed: the seed of all choices.
        count: number of monitors.
        other_namespace: a namespace besides that of the monitors.
    """
    source = random.Random(seed)
    for number in range(count):
        is_service = source.random() < 0.6
        spec: dict[str, Any] = {"selector": _selector(source)}
        if source.random() < 0.4:
            spec["namespaceSelector"] = source.choice([{"any": True}, {"matchNames": [other_namespace]}, {}])
        if source.random() < 0.3:
            spec["jobLabel"] = source.choice(["app", "tier", "app.kubernetes.io/version", "absent"])
        if source.random() < 0.4:
            spec["podTargetLabels"] = source.sample(["app", "tier", "app.kubernetes.io/version", "absent"], 2)
        if is_service and source.random() < 0.4:
            spec["targetLabels"] = source.sample(["app", "tier", "absent"], 2)
        endpoints = [_endpoint(source, is_service) for _ in range(source.randint(1, 2))]
        spec["endpoints" if is_service else "podMetricsEndpoints"] = endpoints
        kind = "ServiceMonitor" if is_service else "PodMonitor"
        yield kind, {"metadata": {"name": f"monitor-{number}"}, "spec": spec}


def _selector(source: random.Random) -> dict[str, Any]:
    selector: dict[str, Any] = {}
    if source.random() < 0.6:
        selector["matchLabels"] = {"app": source.choice(APPS)}
    terms: list[dict[str, Any]] = [
        {"key": "tier", "operator": "In", "values": ["web", "absent"]},
        {"key": "tier", "operator": "NotIn", "values": ["api"]},
        {"key": "app", "operator": "Exists"},
        {"key": "app.kubernetes.io/version", "operator": "DoesNotExist"},
    ]
    if source.random() < 0.4:
        selector["matchExpressions"] = source.sample(terms, source.randint(1, 2))
    return selector


def _endpoint(source: random.Random, is_service: bool) -> dict[str, Any]:
    ports: list[dict[str, Any]] = [{"port": "web"}, {"port": "metrics"}, {"port": "absent"}]
    ports += [{"targetPort": 8080}, {"targetPort": "web"}] if is_service else [{"portNumber": 8080}]
    endpoint: dict[str, Any] = dict(source.choice(ports))
    options: dict[str, Any] = {
        "path": "/probe",
        "scheme": "https",
        "interval": "45s",
        "scrapeTimeout": "20s",
        "honorLabels": True,
        "filterRunning": False,
        "params": {"module": ["http"]},
        "relabelings": source.sample(RELABELINGS, source.randint(1, 3)),
        # Not valid together with the interval above, or with the default of 30s.
        "metricRelabelings": source.choice(
            [[{"action": "keep", "regex": "("}], [{"action": "drop", "regex": "go_.*"}]]
        ),
    }
    return endpoint | {name: value for name, value in options.items() if source.random() < 0.25}
