"""API types of ServiceMonitor in monitoring.coreos.com/v1."""

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
class Endpoint(ScrapeEndpoint):
    """Scrape of one port of a Service."""

    port: str | None = None
    """Name of the port in the Service."""
    target_port: int | str | None = None
    """Number or name of the port in the container. ``port`` takes precedence."""


@schema(preserve_unknown=True)
class ServiceMonitorSpec(IgnoredMonitorFields):
    """Desired state of a ServiceMonitor."""

    selector: LabelSelector
    """Labels of the Services. An empty selector selects all."""
    endpoints: tuple[Endpoint, ...]
    namespace_selector: NamespaceSelector = NamespaceSelector()
    job_label: str | None = None
    """Label of the Service whose value becomes the label job. Defaults to the name of the Service."""
    target_labels: tuple[str, ...] = ()
    """Labels of the Service that are copied to the samples."""
    pod_target_labels: tuple[str, ...] = ()
    """Labels of the pods that are copied to the samples."""


@resource(
    group="monitoring.coreos.com",
    version="v1",
    short_names=["smon"],
    labels=CRD_LABELS,
)
class ServiceMonitor(Resource[ServiceMonitorSpec, ConfigurationResourceStatus]):
    """A ServiceMonitor selects Services whose endpoints Prometheus scrapes."""
