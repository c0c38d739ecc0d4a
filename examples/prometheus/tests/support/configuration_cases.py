"""Inputs whose configuration promtool must accept."""

from __future__ import annotations

from typing import Any

from monitoring_objects import NAMESPACE, pod_monitor, prometheus, rule, service_monitor
from monitoring_operator.configuration import Contents, Inputs, SourceObject

CREDENTIALS: Contents = {
    SourceObject("Secret", NAMESPACE, "login"): {"user": b"scraper", "password": b"not-in-the-text"},
    SourceObject("Secret", NAMESPACE, "token"): {"token": b"token-not-in-the-text"},
    SourceObject("ConfigMap", NAMESPACE, "authority"): {"ca.crt": b"certificate"},
}

BASIC_AUTH = {"username": {"name": "login", "key": "user"}, "password": {"name": "login", "key": "password"}}

RELABELINGS: list[dict[str, Any]] = [
    {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "host", "action": "Replace"},
    {"targetLabel": "removed", "replacement": ""},
    {"regex": "__meta_kubernetes_pod_label_(.+)", "action": "labelmap", "replacement": "pod_$1"},
    {"regex": "pod_secret_.*", "action": "labeldrop"},
    {"sourceLabels": ["__address__"], "modulus": 4, "targetLabel": "shard", "action": "HashMod"},
    {"sourceLabels": ["namespace"], "targetLabel": "upper", "action": "uppercase"},
    {"sourceLabels": ["namespace"], "regex": "kube-(?P<part>.+)", "action": "drop"},
]

SELECTOR: dict[str, Any] = {
    "matchLabels": {"app.kubernetes.io/name": "orders", "version": "1.2"},
    "matchExpressions": [
        {"key": "tier", "operator": "In", "values": ["web", "api"]},
        {"key": "stage", "operator": "NotIn", "values": ["test"]},
        {"key": "owner", "operator": "Exists"},
        {"key": "deprecated", "operator": "DoesNotExist"},
    ],
}

CASES: dict[str, Inputs] = {
    "empty": Inputs(prometheus=prometheus(), contents={}),
    "external-labels": Inputs(prometheus=prometheus(externalLabels={"cost": "5$", "cluster": "eu"}), contents={}),
    "ports": Inputs(
        prometheus=prometheus(),
        service_monitors=[service_monitor("s", {"port": "web"}, {"targetPort": 8080}, {"targetPort": "http"}, {})],
        pod_monitors=[pod_monitor("p", {"port": "web"}, {"portNumber": 8080}, {"targetPort": 8081}, {})],
        contents={},
    ),
    "scrape-options": Inputs(
        prometheus=prometheus(scrapeInterval="1m"),
        service_monitors=[
            service_monitor(
                "s",
                {
                    "port": "web",
                    "path": "/probe",
                    "scheme": "HTTPS",
                    "params": {"module": ["http", "icmp"]},
                    "interval": "1m30s",
                    "scrapeTimeout": "1m",
                    "honorLabels": True,
                    "honorTimestamps": False,
                    "filterRunning": False,
                },
            )
        ],
        contents={},
    ),
    "empty-texts": Inputs(
        prometheus=prometheus(scrapeInterval=""),
        service_monitors=[service_monitor("s", {"port": "web", "interval": "", "scrapeTimeout": "", "path": ""})],
        contents={},
    ),
    "labels": Inputs(
        prometheus=prometheus(),
        service_monitors=[service_monitor(jobLabel="app.kubernetes.io/name", targetLabels=["team"])],
        pod_monitors=[pod_monitor(jobLabel="app", podTargetLabels=["pod-template-hash"])],
        contents={},
    ),
    "selectors": Inputs(
        prometheus=prometheus(),
        service_monitors=[service_monitor(selector=SELECTOR, namespaceSelector={"any": True})],
        pod_monitors=[pod_monitor(selector=SELECTOR, namespaceSelector={"matchNames": ["shop", "bank"]})],
        contents={},
    ),
    "relabelings": Inputs(
        prometheus=prometheus(),
        service_monitors=[
            service_monitor("s", {"port": "web", "relabelings": RELABELINGS, "metricRelabelings": RELABELINGS[:4]})
        ],
        contents={},
    ),
    "credentials": Inputs(
        prometheus=prometheus(),
        service_monitors=[
            service_monitor(
                "s",
                {"port": "web", "basicAuth": BASIC_AUTH},
                {"port": "web", "authorization": {"credentials": {"name": "token", "key": "token"}}},
                {"port": "web", "tlsConfig": {"insecureSkipVerify": True, "serverName": "orders"}},
            )
        ],
        contents=CREDENTIALS,
    ),
    "rules": Inputs(prometheus=prometheus(), rules=[rule("one"), rule("two", "vector(1) > 0")], contents={}),
}
