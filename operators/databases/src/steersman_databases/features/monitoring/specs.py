"""The PodMonitor of a cluster.

Source: prometheus-operator, "API reference", PodMonitor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from steersman.meta import ApiResource, unstructured
from steersman_databases.api.cluster_common import PodMonitorSettings
from steersman_databases.engines.naming import CLUSTER_LABEL, ClusterNames

PodMonitor = unstructured(ApiResource("monitoring.coreos.com", "v1", "PodMonitor", "podmonitors"))


def pod_monitor(names: ClusterNames, labels: Mapping[str, str], settings: PodMonitorSettings) -> Mapping[str, Any]:
    """Return the PodMonitor of a cluster. Its series name the cluster by the label dbcluster.

    Args:
        labels: labels of the cluster's objects, which take precedence over those of `settings`.
    """
    key = names.key
    return {
        "metadata": {"name": key.name, "namespace": key.namespace, "labels": {**settings.labels, **labels}},
        "spec": {
            "selector": {"matchLabels": {CLUSTER_LABEL: key.name}},
            "podMetricsEndpoints": [
                {
                    "port": "metrics",
                    "scheme": "https",
                    "interval": settings.interval,
                    # The label is in all series already. The relabeling adds it to `up`.
                    "honorLabels": True,
                    "relabelings": [{"targetLabel": "dbcluster", "replacement": key.name}],
                    "tlsConfig": {
                        "ca": {"secret": {"name": names.server_certificate.name, "key": "ca.crt"}},
                        # All instances have one certificate, which has no addresses.
                        "serverName": f"{names.service('rw').name}.{key.namespace}.svc",
                    },
                }
            ],
        },
    }
