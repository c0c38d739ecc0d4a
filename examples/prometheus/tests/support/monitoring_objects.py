"""Builders of monitors, rules and Prometheuses for tests."""

from __future__ import annotations

from typing import Any

from steersman.meta import decode_builtins

from monitoring_operator.api.v1.podmonitor import PodMonitor
from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.api.v1.prometheusrule import PrometheusRule
from monitoring_operator.api.v1.servicemonitor import ServiceMonitor

NAMESPACE = "default"
LABELS = {"team": "frontend"}

# The manifest of the article, word for word.
ARTICLE = """\
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata:
  name: prometheus
spec:
  serviceAccountName: prometheus
  serviceMonitorSelector:
    matchLabels:
      team: frontend
  resources:
    requests:
      memory: 400Mi
"""


def prometheus(name: str = "prometheus", namespace: str = NAMESPACE, **spec: Any) -> Prometheus:
    """Return a Prometheus that selects all monitors and rules of its namespace."""
    selectors: dict[str, Any] = {"serviceMonitorSelector": {}, "podMonitorSelector": {}, "ruleSelector": {}}
    return decode_builtins({"metadata": _metadata(name, namespace), "spec": selectors | spec}, Prometheus)


def service_monitor(
    name: str = "orders", *endpoints: dict[str, Any], namespace: str = NAMESPACE, **spec: Any
) -> ServiceMonitor:
    """Return a ServiceMonitor of the Services with the label ``app``. Defaults to the port ``web``."""
    content = {"selector": {"matchLabels": {"app": name}}, "endpoints": list(endpoints) or [{"port": "web"}]} | spec
    return decode_builtins({"metadata": _metadata(name, namespace), "spec": content}, ServiceMonitor)


def pod_monitor(
    name: str = "workers", *endpoints: dict[str, Any], namespace: str = NAMESPACE, **spec: Any
) -> PodMonitor:
    """Return a PodMonitor of the pods with the label ``app``. Defaults to the port ``web``."""
    content = {
        "selector": {"matchLabels": {"app": name}},
        "podMetricsEndpoints": list(endpoints) or [{"port": "web"}],
    } | spec
    return decode_builtins({"metadata": _metadata(name, namespace), "spec": content}, PodMonitor)


def rule(name: str = "alerts", expr: str = "up == 0", *, namespace: str = NAMESPACE) -> PrometheusRule:
    """Return a PrometheusRule with one alert."""
    alert = {"alert": "Down", "expr": expr, "for": "5m", "labels": {"severity": "page"}}
    spec = {"groups": [{"name": "availability", "rules": [alert]}]}
    return decode_builtins({"metadata": _metadata(name, namespace), "spec": spec}, PrometheusRule)


def _metadata(name: str, namespace: str) -> dict[str, Any]:
    return {"name": name, "namespace": namespace, "labels": LABELS, "uid": f"uid-of-{namespace}-{name}"}
