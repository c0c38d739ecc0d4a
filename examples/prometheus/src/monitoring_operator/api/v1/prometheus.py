"""API types of Prometheus in monitoring.coreos.com/v1."""

from __future__ import annotations

from typing import Annotated

from steersman import Condition, Field, FrozenDict, FrozenStruct, Object, PrinterColumn, Rule, Scale, Spec, resource
from steersman.api.core_v1 import EmptyDirVolumeSource, PersistentVolumeClaimSpec, ResourceRequirements
from steersman.api.meta_v1 import LabelSelector
from steersman.meta import schema

from monitoring_operator.api.v1.scraping import CRD_LABELS, Duration

DEFAULT_INTERVAL = "30s"
"""Interval of scrapes and evaluations. The pattern of durations allows an empty text, which means the same."""

_NAME_LENGTH = Rule(
    rule="size(self.metadata.name) <= 40",
    message="the name must have at most 40 characters, because names and labels of the pods contain it",
    field_path=".metadata.name",
)


class EmbeddedMetadata(FrozenStruct):
    """Metadata of the PVCs."""

    name: str | None = None
    labels: FrozenDict[str, str] = FrozenDict()
    annotations: FrozenDict[str, str] = FrozenDict()


class VolumeClaimTemplate(FrozenStruct):
    """Template of the PVC of each replica."""

    metadata: EmbeddedMetadata = EmbeddedMetadata()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()


@schema(preserve_unknown=True)
class StorageSpec(FrozenStruct):
    """Volume of each replica. Defaults to an emptyDir."""

    empty_dir: EmptyDirVolumeSource | None = None
    volume_claim_template: VolumeClaimTemplate | None = None


@schema(preserve_unknown=True)
class PrometheusSpec(Spec):
    """Desired state of a Prometheus."""

    paused: bool = False
    """Changes nothing but the status. A deletion still deletes the servers."""
    service_account_name: str | None = None
    """ServiceAccount of the pods. It needs permission to list and watch the targets. Defaults to default."""
    service_monitor_selector: LabelSelector | None = None
    """Labels of ServiceMonitors. An empty selector selects all, an absent one none."""
    service_monitor_namespace_selector: LabelSelector | None = None
    """Labels of the namespaces of ServiceMonitors. Defaults to the namespace of the Prometheus."""
    pod_monitor_selector: LabelSelector | None = None
    """Labels of PodMonitors. An empty selector selects all, an absent one none."""
    pod_monitor_namespace_selector: LabelSelector | None = None
    """Labels of the namespaces of PodMonitors. Defaults to the namespace of the Prometheus."""
    rule_selector: LabelSelector | None = None
    """Labels of PrometheusRules. An empty selector selects all, an absent one none."""
    rule_namespace_selector: LabelSelector | None = None
    """Labels of the namespaces of PrometheusRules. Defaults to the namespace of the Prometheus."""
    replicas: Annotated[int, Field(ge=0, le=100, format="int32")] = 1
    """Number of identical servers. Each scrapes all targets."""
    retention: Duration | None = None
    """Age at which samples are deleted. Defaults to 24h if retentionSize is not set."""
    retention_size: Annotated[
        str | None, Field(pattern=r"^(0|([0-9]*[.])?[0-9]+((K|M|G|T|E|P)i?)?B)$", max_length=32)
    ] = None
    """Size of all samples, such as 50GB. The oldest samples above it are deleted."""
    storage: StorageSpec = StorageSpec()
    resources: ResourceRequirements | None = None
    """Resources of each server."""
    scrape_interval: Duration = DEFAULT_INTERVAL
    evaluation_interval: Duration = DEFAULT_INTERVAL
    """Interval between evaluations of rules."""
    external_labels: FrozenDict[str, str] = FrozenDict()
    """Labels of samples and alerts outside of this Prometheus."""
    version: Annotated[str | None, Field(max_length=32)] = None
    """Version of Prometheus. Defaults to the version that the operator is tested with."""
    image: Annotated[str | None, Field(max_length=512)] = None
    """Image of Prometheus, with promtool and a shell. Defaults to quay.io/prometheus/prometheus at the version."""


class PrometheusStatus(FrozenStruct):
    """Observed state of a Prometheus.

    It is not a ``Status``, because the CRD of prometheus-operator has no observedGeneration outside of conditions.
    """

    conditions: Annotated[tuple[Condition, ...], Field(list_map_keys=("type",))] = ()
    """Reconciled: running servers report the declared configuration. Available: all replicas are available."""
    paused: bool | None = None
    """True if spec.paused is."""
    replicas: int | None = None
    """Number of pods."""
    updated_replicas: int | None = None
    """Number of pods with the declared template."""
    available_replicas: int | None = None
    """Number of pods that are available."""
    unavailable_replicas: int | None = None
    """Number of pods that are missing or not available."""
    selector: str | None = None
    """Label selector of the pods, for autoscalers."""


@resource(
    group="monitoring.coreos.com",
    version="v1",
    plural="prometheuses",
    short_names=["prom"],
    labels=CRD_LABELS,
    columns=[
        PrinterColumn("Version", ".spec.version"),
        PrinterColumn("Desired", ".spec.replicas", "integer"),
        PrinterColumn("Available", ".status.availableReplicas", "integer"),
        PrinterColumn("Reconciled", '.status.conditions[?(@.type=="Reconciled")].status'),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Reconciled")].message', priority=1),
    ],
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    rules=[_NAME_LENGTH],
)
class Prometheus(Object):
    """A Prometheus runs servers, configured by monitors and rules that it selects."""

    spec: PrometheusSpec
    status: PrometheusStatus = PrometheusStatus()
