"""Types of the specs and statuses of all clusters."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from steersman.api.core_v1 import (
    Affinity,
    LocalObjectReference,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from steersman.meta import (
    Duration,
    Field,
    FrozenDict,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Rule,
    Spec,
    Status,
    schema,
)
from steersman_databases.api.autopilot.automation import AutogrowSettings, AutomationStatus, VerticalScalingSettings
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, PendingDisruption
from steersman_databases.api.autopilot.sizing import SizingStatus
from steersman_databases.api.autopilot.tuning import TuningStatus
from steersman_databases.api.backups.backup_common import BackupSettings, ClusterBackupStatus
from steersman_databases.api.group import NAME_PATTERN, DeletionPolicy
from steersman_databases.api.names import SUBDOMAIN, HostName, Name, Namespaces
from steersman_databases.api.references import KeySelector
from steersman_databases.api.volume_sizes import StorageStatus

ServiceRole = Literal["rw", "ro", "r"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
MemberRole = Literal["Primary", "Replica"]
ClusterPhase = Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed", "Hibernated", "Deleting"]

VolumeSize = Annotated[
    Quantity,
    Field(
        rules=(
            Rule(
                rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                message="the size must be greater than 0, such as 1Gi",
            ),
        )
    ),
]
LabelValue = Annotated[str, Field(max_length=63)]
LabelMap = Annotated[FrozenDict[str, LabelValue], Field(max_properties=64)]
AnnotationMap = Annotated[FrozenDict[str, str], Field(max_properties=64)]
_GROUP_PREFIX = "databases.steersman.dev/"
_RESERVED_LABELS = Rule(
    rule="!has(self.labels) || self.labels.all(k, "
    f"!k.startsWith('{_GROUP_PREFIX}') && !k.startsWith('app.kubernetes.io/'))",
    message="the prefixes databases.steersman.dev/ and app.kubernetes.io/ are reserved for the operator: remove "
    "these labels",
    field_path=".labels",
)
_RESERVED_ANNOTATIONS = Rule(
    rule=f"!has(self.annotations) || self.annotations.all(k, !k.startsWith('{_GROUP_PREFIX}'))",
    message="the prefix databases.steersman.dev/ is reserved for the operator: remove these annotations",
    field_path=".annotations",
)


@schema(
    rules=[
        Rule(
            rule="!has(self.autogrow)"
            " || quantity(string(self.autogrow.maxSize)).compareTo(quantity(string(self.size))) >= 0",
            message="maxSize must be at least size: volumes never shrink",
            field_path=".autogrow.maxSize",
        ),
    ]
)
class VolumeSettings(FrozenStruct):
    """Volume of each instance."""

    size: VolumeSize = Quantity("1Gi")
    """Size. It can grow if the StorageClass allows volume expansion. It can be lowered only to a size that no volume
    exceeds, as in ``status.storage``."""
    storage_class: Annotated[str | None, Field(min_length=1, max_length=253, pattern=SUBDOMAIN, immutable=True)] = (
        None
    )
    """StorageClass of the volume. Defaults to the default StorageClass of the Kubernetes cluster. Immutable."""
    autogrow: AutogrowSettings | None = None
    """Automatic growth of the volume. Needs a StorageClass that allows volume expansion. Defaults to none."""


@schema(rules=[_RESERVED_LABELS, _RESERVED_ANNOTATIONS])
class PodMetadata(FrozenStruct):
    """Labels and annotations of instance pods, besides the operator's own."""

    labels: LabelMap = FrozenDict()
    """Labels."""
    annotations: AnnotationMap = FrozenDict()
    """Annotations."""


class DisruptionBudgetSettings(FrozenStruct):
    """PodDisruptionBudget of the instances."""

    enabled: Annotated[bool, Field(default=True)] = True
    """Create a PodDisruptionBudget for clusters with two or more instances."""
    max_unavailable: Annotated[int, Field(ge=1, le=9)] = 1
    """Maximum number of unavailable instances."""


@schema(rules=[_RESERVED_LABELS, _RESERVED_ANNOTATIONS])
class ServiceSettings(FrozenStruct):
    """Settings of a Service. The operator sets selector and ports."""

    enabled: Annotated[bool, Field(default=True)] = True
    """Create the Service."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """Type of the Service."""
    labels: LabelMap = FrozenDict()
    """Labels, in addition to the operator's own."""
    annotations: AnnotationMap = FrozenDict()
    """Annotations, in addition to the operator's own."""
    node_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port on the nodes. Defaults to a port that Kubernetes chooses."""
    load_balancer_class: Annotated[str, Field(max_length=253)] | None = None
    """loadBalancerClass of the Service."""
    load_balancer_source_ranges: Annotated[tuple[str, ...], Field(max_items=64)] = ()
    """CIDR ranges that the load balancer accepts, such as 10.0.0.0/8."""
    external_traffic_policy: Literal["Cluster", "Local"] | None = None
    """Cluster routes external traffic to all nodes. Local keeps it on the node that receives it."""
    ip_family_policy: Literal["SingleStack", "PreferDualStack", "RequireDualStack"] | None = None
    """Use of IPv4 and IPv6."""
    ip_families: Annotated[tuple[Literal["IPv4", "IPv6"], ...], Field(max_items=2)] = ()
    """IP families, in order of preference."""


class AdditionalService(ServiceSettings):
    """An additional Service."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    """Name of the Service."""
    role: ServiceRole
    """Endpoints: rw (the primary), ro (replicas) or r (all instances)."""
    enabled: Annotated[bool, Field(default=None)] = True
    """Create the Service. Defaults to true."""
    type: Annotated[Literal["ClusterIP", "NodePort", "LoadBalancer"], Field(default=None)] = "ClusterIP"
    """Type of the Service. Defaults to ClusterIP."""


class ServicesSettings(FrozenStruct):
    """Services of a cluster."""

    rw: Annotated[
        ServiceSettings,
        Field(
            rules=(
                Rule(
                    rule="self.enabled",
                    message="the Service rw cannot be disabled: the operator and applications need it",
                    field_path=".enabled",
                ),
            )
        ),
    ] = ServiceSettings()
    """Service of the primary."""
    ro: ServiceSettings = ServiceSettings()
    """Service of the replicas."""
    r: ServiceSettings = ServiceSettings()
    """Service of all instances."""
    additional: Annotated[tuple[AdditionalService, ...], Field(list_map_keys=("name",), max_items=10)] = ()
    """Additional Services, such as one of type LoadBalancer."""


class SecretReference(FrozenStruct):
    """A Secret in the namespace of this object."""

    name: Name
    """Name of the Secret."""


class SqlReferences(FrozenStruct):
    """SQL in Secrets and ConfigMaps of the cluster's namespace.

    Secrets come first, then ConfigMaps, each in the order of its list.
    """

    secret_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of Secrets."""
    config_map_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of ConfigMaps."""


class ClusterTls(FrozenStruct):
    """TLS of client connections."""

    required: Annotated[bool, Field(default=True)] = True
    """Reject logins without TLS."""
    server_secret: SecretReference | None = None
    """Server certificate: a Secret of type kubernetes.io/tls with ca.crt. Defaults to a certificate that the
    operator issues and rotates."""
    additional_names: Annotated[tuple[HostName, ...], Field(max_items=32, list_type="set")] = ()
    """Additional DNS names and IP addresses of the cluster. Clients use them besides the names of its Services, such
    as the name of a load balancer. The operator's certificate contains them, and a custom certificate must. ``*.``
    matches one label."""


_POOLER_SWITCHES = ("application_name_add_host", "log_connections", "log_disconnections", "log_pooler_errors")
_POOLER_NUMBERS = (
    *("default_pool_size", "min_pool_size", "reserve_pool_size", "reserve_pool_timeout", "max_client_conn"),
    *("max_db_connections", "max_user_connections", "max_prepared_statements", "server_idle_timeout"),
    *("server_lifetime", "query_timeout", "query_wait_timeout", "client_idle_timeout", "idle_transaction_timeout"),
    "tcp_user_timeout",
)
POOLER_VALUES = (
    (_POOLER_NUMBERS, "^[0-9]{1,9}$", "a whole number, such as 20"),
    (_POOLER_SWITCHES, "^[01]$", "0 or 1"),
    (
        ("ignore_startup_parameters",),
        "^[A-Za-z_][A-Za-z0-9_.]*( ?, ?[A-Za-z_][A-Za-z0-9_.]*)*$",
        "names separated by commas",
    ),
)
"""Parameters of PgBouncer, the pattern of their values, and its description.

PgBouncer exits on a value that it cannot parse, and a line break would add a setting.
"""
_POOLER_NAMES = [name for names, _, _ in POOLER_VALUES for name in names]
_POOLER_RULES = tuple(
    Rule(
        rule=f"self.all(k, !(k in {[*names]}) || self[k].matches('{pattern}'))",
        message=f"must be {words}: {', '.join(names)}",
    )
    for names, pattern, words in POOLER_VALUES
)


class PoolerSettings(FrozenStruct):
    """Connection poolers in front of the cluster."""

    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """Pods of each pooler."""
    mode: Literal["transaction", "session"] = "transaction"
    """Release of a server connection to the next client.

    transaction releases it after each transaction, session when the client's session ends.
    """
    read_only: Annotated[bool, Field(default=True)] = True
    """Create a pooler for replicas, too. It needs the Service ro."""
    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=256)]],
        Field(
            max_properties=32,
            rules=(
                Rule(
                    rule=f"self.all(k, k in {_POOLER_NAMES})",
                    message="the operator does not support this parameter of PgBouncer: the supported ones are in "
                    "the "
                    "reference of this kind",
                ),
                *_POOLER_RULES,
            ),
        ),
    ] = FrozenDict()
    """Parameters of PgBouncer."""
    resources: ResourceRequirements | None = None
    """Resource requirements of each pod."""


_SLOW_STATEMENT = Rule(
    rule="duration(self) >= duration('1ms') && duration(self) <= duration('1h')", message="must be from 1ms to 1h"
)


class PodMonitorSettings(FrozenStruct):
    """A PodMonitor of the Prometheus operator."""

    enabled: bool = False
    """Create a PodMonitor with the name of the cluster. It needs the CRD of the Prometheus operator."""
    labels: LabelMap = FrozenDict()
    """Labels by which a Prometheus selects the PodMonitor."""
    interval: Annotated[str, Field(pattern="^([0-9]{1,4}(ms|s|m|h))+$", max_length=16)] = "30s"
    """Scrape interval, such as 30s."""


class MonitoringSettings(FrozenStruct):
    """Monitoring of the cluster.

    Instances always serve metrics over TLS on port 9187.
    """

    pod_monitor: PodMonitorSettings = PodMonitorSettings()
    """A PodMonitor of the Prometheus operator."""
    disabled_alerts: Annotated[
        tuple[Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9]{0,62}$")], ...],
        Field(max_items=64, list_type="set"),
    ] = ()
    """Alerts that are disabled for this cluster, such as PostgreSQLReplicationLag."""
    queries: Annotated[tuple[KeySelector, ...], Field(max_items=8, list_type="atomic")] = ()
    """Keys of ConfigMaps with queries whose results the instances export. Their format is that of the custom queries
    of postgres_exporter and CloudNativePG."""
    slow_statement_threshold: Annotated[Duration, Field(max_length=32, rules=(_SLOW_STATEMENT,))] | None = None
    """Servers log a statement that takes longer, with its text. Defaults to none."""


class ClusterMember(FrozenStruct):
    """Observed state of an instance."""

    name: str
    """Name of the instance."""
    role: MemberRole | None = None
    """Primary or Replica. Absent if the role is unknown."""
    state: str | None = None
    """State of the server.

    Starting, Cloning, Running, Streaming, Offline (in no group), Isolated (no quorum), Stopped, Crashed, StartFailed
    or Unknown.
    """
    node: str | None = None
    """Node of the pod."""
    ready: bool | None = None
    """The instance accepts connections."""
    pending_restart: bool | None = None
    """Parameters take effect after a restart."""
    fenced: bool | None = None
    """The instance is fenced."""


class ClusterSecrets(FrozenStruct):
    """Names of the Secrets of a cluster."""

    administrator: str | None = None
    """Secret of the superuser."""
    application: str | None = None
    """Secret of the owner of the bootstrap database."""
    ca: str | None = None
    """Secret or ConfigMap with the CA certificates that verify servers."""


class LastSwitchover(FrozenStruct):
    """The last requested switchover."""

    time: datetime | None = None
    """Time of the request, or of its end."""
    former: str | None = None
    """The previous primary."""
    to: str | None = None
    """The new primary, or the requested one if the switchover failed."""
    outcome: str | None = None
    """Requested, Succeeded, or the cause of the failure."""
    declared: str | None = None
    """Generation and restart request that the switchover belongs to. The operator does not repeat a switchover for
    them."""
    refused: Annotated[tuple[str, ...], Field(max_items=32, list_type="set")] = ()
    """Instances that rejected this switchover before."""
    store_version: str | None = None
    """resourceVersion of the request's ConfigMap before the request.

    While the ConfigMap has it, the request is not written yet.
    """


class ClusterSpec(Spec):
    """Declared state that all clusters have in common."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the servers. Defaults to the operator's image for ``version``. It must contain a server of that
    version."""
    image_pull_policy: PullPolicy = "IfNotPresent"
    """Pull policy of the image."""
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], Field(list_map_keys=("name",), max_items=16)] = ()
    """Secrets with credentials of the image registry."""
    instances: Annotated[int, Field(ge=1, le=9, format="int32")] = 3
    """Number of instances: a primary and its replicas."""
    storage: VolumeSettings = VolumeSettings()
    """Data volume of each instance."""
    resources: ResourceRequirements | None = None
    """Resource requirements of each instance. Defaults to requests of 100m and 384Mi and a memory limit of 768Mi."""
    vertical_scaling: VerticalScalingSettings | None = None
    """CPU and memory by their recorded use. Defaults to none."""
    affinity: Affinity | None = None
    """Affinity of instance pods. Defaults to a preferred podAntiAffinity between instances."""
    node_selector: Annotated[FrozenDict[str, Annotated[str, Field(max_length=63)]], Field(max_properties=64)] = (
        FrozenDict()
    )
    """Node labels that instance pods require."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_items=32, list_type="atomic")] = ()
    """Tolerations of instance pods."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], Field(max_items=16, list_type="atomic")
    ] = ()
    """Topology spread constraints of instance pods. A constraint without a selector selects the pods of this
    cluster."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """PriorityClass of the pods. Setting it requires the permission to create pods."""
    pod_metadata: PodMetadata = PodMetadata()
    """Labels and annotations of instance pods, besides the operator's own. Pods of poolers and Jobs do not get them.
    Setting any requires the permission to create pods."""
    pod_disruption_budget: DisruptionBudgetSettings = DisruptionBudgetSettings()
    """PodDisruptionBudget of the instances."""
    services: ServicesSettings = ServicesSettings()
    """Services of the cluster: -rw, -ro, -r and additional ones."""
    tls: ClusterTls = ClusterTls()
    """TLS of client connections."""
    allowed_namespaces: Annotated[tuple[Namespaces, ...], Field(max_items=256, list_type="set")] = ()
    """Namespaces whose databases and users may use this cluster; "*" allows all."""
    monitoring: MonitoringSettings = MonitoringSettings()
    """PodMonitor and alerts."""
    network_policy: Literal["Managed", "None"] = "Managed"
    """Managed creates a NetworkPolicy for instances and one for poolers. All pods can then reach the ports for SQL,
    metrics and poolers; only members and the operator can reach the others. None creates no NetworkPolicy."""
    maintenance: MaintenanceSettings = MaintenanceSettings()
    """Maintenance windows and minor upgrades."""
    hibernated: bool = False
    """Stop all instances and keep the data."""
    replace_failed_instances: Literal["Automatic", "OnRequest"] = "Automatic"
    """Automatic replaces an instance whose data or volume is lost. OnRequest waits until the annotation
    ``databases.steersman.dev/replace-instance`` names it."""
    deletion_policy: DeletionPolicy = "Retain"
    """Effect of the deletion of this object on its volumes and Secrets. Delete deletes them. Retain keeps them, and
    a new cluster of the same name adopts them."""
    backup: BackupSettings | None = None
    """Archiving, backups and their retention. Defaults to no backups."""


class ClusterStatus(Status):
    """Observed state of a cluster."""

    phase: ClusterPhase | None = None
    """Phase of the cluster.

    Pending, Provisioning, Ready, Degraded (available, but not complete), Failed (needs user action), Hibernated or
    Deleting.
    """
    instances: int | None = None
    """Number of instances."""
    ready_instances: int | None = None
    """Number of instances that accept connections."""
    selector: str | None = None
    """Label selector of the instance pods, for autoscalers."""
    primary: str | None = None
    """The primary."""
    version: str | None = None
    """Full version of the servers."""
    data_identity: str | None = None
    """Identity of the data that were served last.

    It is PostgreSQL's system identifier, or the name of the MySQL group.
    """
    image: str | None = None
    """Image of the servers."""
    available_image: str | None = None
    """Newer image of the operator for this version."""
    members: Annotated[tuple[ClusterMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """Instances of the cluster."""
    secrets: ClusterSecrets | None = None
    """Names of the Secrets of the cluster."""
    last_switchover: LastSwitchover | None = None
    """The last requested switchover."""
    storage: StorageStatus | None = None
    """Observed sizes of the volumes."""
    sizing: SizingStatus | None = None
    """Parameters that follow from the resource limits."""
    next_window: datetime | None = None
    """Start of the next maintenance window."""
    pending_disruptions: Annotated[tuple[PendingDisruption, ...], Field(max_items=64, list_type="atomic")] = ()
    """Disruptions that wait for a maintenance window or for other clusters."""
    automation: Annotated[tuple[AutomationStatus, ...], Field(list_map_keys=("name",), max_items=16)] = ()
    """Decisions of automatic functions."""
    tuning: TuningStatus | None = None
    """Recommendations for parameters, and the trial, with ``spec.tuning``."""
    backup: ClusterBackupStatus | None = None
    """Backups and archive, with ``spec.backup``."""


COLUMNS = [
    PrinterColumn("Instances", ".spec.instances", "integer"),
    PrinterColumn("Ready", ".status.readyInstances", "integer"),
    PrinterColumn("Primary", ".status.primary"),
    PrinterColumn("Version", ".status.version"),
    PrinterColumn("Phase", ".status.phase"),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
]
"""Columns of ``kubectl get`` for clusters."""
NAME_RULE = Rule(
    rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
    message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
    "Services are named after it",
)
"""Rule for names of clusters."""
