"""Headless Service of the pods."""

from __future__ import annotations

from steersman.api.apply import core

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.resources.names import PORT, object_metadata, selector_labels


def headless_service(prometheus: Prometheus) -> core.Service:
    """Return the Service that names the pods and serves queries."""
    return core.Service(
        metadata=object_metadata(prometheus),
        spec=core.ServiceSpec(
            cluster_ip="None",
            selector=selector_labels(prometheus),
            ports=[core.ServicePort(name="web", port=PORT, target_port="web", protocol="TCP")],
        ),
    )
