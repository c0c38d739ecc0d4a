"""API types of PodMonitor in monitoring.coreos.com/v1."""

from __future__ import annotations

from steersman import Resource, resource
from steersman.api.meta_v1 import LabelSelector
from steersman.meta import schema

from monitoring_operator.api.v1.scraping import (
    CRD_LABELS,
    ConfigurationResourceStatus,
    IgnoredMonitorFields,
    NamespaceSelector,
    ScrapeEndpoint,
)


@schema(preserve_unknown=True)
class PodMetricsEndpoint(ScrapeEndpoint):
    """Scrape of one port of a pod."""

    port: str | None = None
    """Name of the port in the container."""
    port_number: int | None = None
    """Number of the port in the container. ``port`` takes precedence."""
    target_port: int | str | None = None
    """Number or name of the port in the container. Deprecated: use port or portNumber."""


@schema(preserve_unknown=True)
class PodMonitorSpec(IgnoredMonitorFields):
    """Desired state of a PodMonitor."""

    selector: LabelSelector
    """Labels of the pods. An empty selector selects all."""
    pod_metrics_endpoints: tuple[PodMetricsEndpoint, ...] = ()
    namespace_selector: NamespaceSelector = NamespaceSelector()
    job_label: str | None = None
    """Label of the pod whose value becomes the label job. Defaults to namespace and name of the PodMonitor."""
    pod_target_labels: tuple[str, ...] = ()
    """Labels of the pods that are copied to the samples."""


@resource(
    group="monitoring.coreos.com",
    version="v1",
    short_names=["pmon"],
    labels=CRD_LABELS,
)
class PodMonitor(Resource[PodMonitorSpec, ConfigurationResourceStatus]):
    """A PodMonitor selects pods that Prometheus scrapes."""
