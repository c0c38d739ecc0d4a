"""Fields that ServiceMonitor and PodMonitor share. Source: API reference of prometheus-operator."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field
from steersman import Condition, Field, FrozenDict, FrozenStruct, Spec, Status
from steersman.api.core_v1 import ConfigMapKeySelector, SecretKeySelector
from steersman.meta import schema

DURATION_PATTERN = r"^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$"
"""Durations of Prometheus, such as ``1m30s``."""

CRD_LABELS = {"app.kubernetes.io/managed-by": "monitoring-operator"}
"""Labels of the CRDs. `make install` never changes a CRD without them."""

Duration = Annotated[str, Field(pattern=DURATION_PATTERN, max_length=64)]


class NamespaceSelector(FrozenStruct):
    """Namespaces in which a monitor finds its targets. Defaults to the namespace of the monitor."""

    any: bool = False
    """Find targets in all namespaces."""
    match_names: tuple[str, ...] = ()
    """Names of the namespaces."""


class SecretOrConfigMap(FrozenStruct):
    """A key of a Secret or ConfigMap in the monitor's namespace."""

    secret: SecretKeySelector | None = None
    config_map: ConfigMapKeySelector | None = None


@schema(preserve_unknown=True)
class IgnoredObject(FrozenStruct):
    """An object without effect."""


class IgnoredMonitorFields(Spec):
    """Fields of prometheus-operator that have no effect here. The operator reports them."""

    attach_metadata: IgnoredObject | None = None
    body_size_limit: str | None = None
    convert_classic_histograms_to_nhcb: bool | None = field(name="convertClassicHistogramsToNHCB", default=None)
    fallback_scrape_protocol: str | None = None
    keep_dropped_targets: int | None = None
    label_limit: int | None = None
    label_name_length_limit: int | None = None
    label_value_length_limit: int | None = None
    native_histogram_bucket_limit: int | None = None
    native_histogram_min_bucket_factor: int | str | None = None
    sample_limit: int | None = None
    scrape_class: str | None = None
    scrape_classic_histograms: bool | None = None
    scrape_native_histograms: bool | None = None
    scrape_protocols: tuple[str, ...] = ()
    target_limit: int | None = None


class IgnoredEndpointFields(FrozenStruct):
    """Fields of endpoints that have no effect here. The operator reports them."""

    bearer_token_file: str | None = None
    bearer_token_secret: SecretKeySelector | None = None
    no_proxy: str | None = None
    oauth2: IgnoredObject | None = None
    proxy_connect_header: IgnoredObject | None = None
    proxy_from_environment: bool | None = None
    proxy_url: str | None = None
    track_timestamps_staleness: bool | None = None


class IgnoredTLSFields(FrozenStruct):
    """Fields of tlsConfig that have no effect here. The operator reports them."""

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    max_version: str | None = None
    min_version: str | None = None


@schema(preserve_unknown=True)
class TLSConfig(IgnoredTLSFields):
    """TLS of the connections to targets."""

    ca: SecretOrConfigMap | None = None
    """Certificate authority of the targets."""
    cert: SecretOrConfigMap | None = None
    """Client certificate. It needs keySecret."""
    key_secret: SecretKeySelector | None = None
    """Private key of the client certificate."""
    server_name: str | None = None
    insecure_skip_verify: bool | None = None


class Authorization(FrozenStruct):
    """The Authorization header of requests to targets."""

    type: str | None = None
    """Type of the credentials. Defaults to Bearer."""
    credentials: SecretKeySelector | None = None


class BasicAuth(FrozenStruct):
    """User name and password of requests to targets."""

    username: SecretKeySelector | None = None
    password: SecretKeySelector | None = None


class Relabeling(FrozenStruct):
    """A rule that changes labels. Source: relabel_config in the documentation of Prometheus."""

    source_labels: tuple[str, ...] = ()
    separator: str | None = None
    target_label: str | None = None
    regex: str | None = None
    modulus: int | None = None
    replacement: str | None = None
    action: str | None = None
    """Action, such as replace or keep. Defaults to replace."""


@schema(preserve_unknown=True)
class ScrapeEndpoint(IgnoredEndpointFields):
    """Scrape of one port of each target."""

    path: str | None = None
    """Path of the metrics. Defaults to /metrics."""
    scheme: Literal["http", "https", "HTTP", "HTTPS"] | None = None
    """Defaults to http."""
    params: FrozenDict[str, tuple[str, ...]] = FrozenDict()
    """Parameters of the URL."""
    interval: Duration | None = None
    """Defaults to the scrapeInterval of the Prometheus."""
    scrape_timeout: Duration | None = None
    """Must not exceed the interval."""
    honor_labels: bool = False
    """Keep labels of the target that conflict with labels of the server."""
    honor_timestamps: bool | None = None
    follow_redirects: bool | None = None
    """Follow redirects of the target. Defaults to true."""
    enable_http2: bool | None = None
    """Use HTTP/2 if the target offers it. Defaults to true."""
    filter_running: bool | None = None
    """Skip pods that have ended. Defaults to true."""
    tls_config: TLSConfig | None = None
    authorization: Authorization | None = None
    basic_auth: BasicAuth | None = None
    relabelings: tuple[Relabeling, ...] = ()
    """Rules for the labels of targets, before the scrape."""
    metric_relabelings: tuple[Relabeling, ...] = ()
    """Rules for the labels of samples, after the scrape."""


class WorkloadBinding(FrozenStruct):
    """Verdict of one Prometheus on the object."""

    group: str
    resource: str
    namespace: str
    name: str
    conditions: Annotated[tuple[Condition, ...], Field(list_map_keys=("type",))] = ()
    """Accepted: False names the field that is invalid, and the remedy."""


class ConfigurationResourceStatus(Status):
    """Observed state of a monitor or of rules, by Prometheus."""

    bindings: Annotated[
        tuple[WorkloadBinding, ...], Field(list_map_keys=("group", "resource", "namespace", "name"))
    ] = ()
    """One binding for each Prometheus that selects the object."""
