"""Headless Service of the pods."""

from __future__ import annotations

from steersman.api.apply.core_v1 import ServiceApply, ServicePortApply, ServiceSpecApply

from monitoring_operator.api.v1.prometheus import Prometheus
from monitoring_operator.resources.names import PORT, object_metadata, selector_labels


def headless_service(prometheus: Prometheus) -> ServiceApply:
    """Return the Service that names the pods and serves queries."""
    return ServiceApply(
        metadata=object_metadata(prometheus),
        spec=ServiceSpecApply(
            cluster_ip="None",
            selector=selector_labels(prometheus),
            ports=[ServicePortApply(name="web", port=PORT, target_port="web", protocol="TCP")],
        ),
    )
