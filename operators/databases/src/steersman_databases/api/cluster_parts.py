"""What the clusters of every engine have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import Field, FrozenDict, FrozenStruct, Quantity, Rule, schema
from steersman_databases.api.references import Name

ServiceRole = Literal["rw", "ro", "r"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
MemberRole = Literal["Primary", "Replica"]

SizeField = Annotated[
    Quantity,
    Field(
        rules=(
            Rule(
                rule="quantity(string(self)).isGreaterThan(quantity('0'))",
                message="a size must be more than 0, such as 1Gi",
            ),
            Rule(
                rule="quantity(string(self)).compareTo(quantity(string(oldSelf))) >= 0",
                message="a volume can grow but never shrink",
            ),
        )
    ),
]
LabelValue = Annotated[str, Field(max_length=63)]
LabelMap = Annotated[FrozenDict[str, LabelValue], Field(max_properties=64)]
AnnotationMap = Annotated[FrozenDict[str, str], Field(max_properties=64)]
_OURS = "databases.steersman.dev/"
_RESERVED_LABELS = Rule(
    rule=f"!has(self.labels) || self.labels.all(k, !k.startsWith('{_OURS}') && !k.startsWith('app.kubernetes.io/'))",
    message="labels that begin with databases.steersman.dev/ or app.kubernetes.io/ are the operator's",
    field_path=".labels",
)
_RESERVED_ANNOTATIONS = Rule(
    rule=f"!has(self.annotations) || self.annotations.all(k, !k.startsWith('{_OURS}'))",
    message="annotations that begin with databases.steersman.dev/ are the operator's",
    field_path=".annotations",
)


class Storage(FrozenStruct):
    """A volume for each instance."""

    size: SizeField = Quantity("1Gi")
    """Size. It can grow where the storage class allows it; it never shrinks."""
    storage_class: Annotated[str | None, Field(min_length=1, max_length=253, immutable=True)] = None
    """Storage class; the cluster's default unless given. Immutable."""


@schema(rules=[_RESERVED_LABELS, _RESERVED_ANNOTATIONS])
class PodMetadata(FrozenStruct):
    """Labels and annotations of the pods beside the operator's own."""

    labels: LabelMap = FrozenDict()
    """Labels."""
    annotations: AnnotationMap = FrozenDict()
    """Annotations."""


class PodDisruptionBudget(FrozenStruct):
    """How many instances a drain may take away at once."""

    enabled: Annotated[bool, Field(default=True)] = True
    """Whether there is one, from two instances on."""
    max_unavailable: Annotated[int, Field(ge=1, le=9)] = 1
    """How many instances."""


@schema(rules=[_RESERVED_LABELS, _RESERVED_ANNOTATIONS])
class ServiceTemplate(FrozenStruct):
    """What a Service is like, but for its selector and ports."""

    enabled: Annotated[bool, Field(default=True)] = True
    """Whether there is one."""
    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How it is reached."""
    labels: LabelMap = FrozenDict()
    """Labels beside the operator's own."""
    annotations: AnnotationMap = FrozenDict()
    """Annotations beside the operator's own."""
    node_port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port on the nodes; chosen by Kubernetes unless given."""
    load_balancer_class: Annotated[str, Field(max_length=253)] | None = None
    """Who makes the load balancer."""
    load_balancer_source_ranges: Annotated[tuple[str, ...], Field(max_items=64)] = ()
    """From where the load balancer takes connections, such as 10.0.0.0/8."""
    external_traffic_policy: Literal["Cluster", "Local"] | None = None
    """Whether a node hands connections to other nodes."""
    ip_family_policy: Literal["SingleStack", "PreferDualStack", "RequireDualStack"] | None = None
    """IPv4, IPv6 or both."""
    ip_families: Annotated[tuple[Literal["IPv4", "IPv6"], ...], Field(max_items=2)] = ()
    """Which, in this order."""


class AdditionalService(ServiceTemplate):
    """One more Service."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$")]
    """Its name."""
    role: ServiceRole
    """Whom it leads to: rw (the primary), ro (replicas), r (all instances)."""


class Services(FrozenStruct):
    """The Services of a cluster."""

    rw: Annotated[
        ServiceTemplate,
        Field(
            rules=(
                Rule(
                    rule="self.enabled",
                    message="the Service rw is always there: operator and applications need it",
                    field_path=".enabled",
                ),
            )
        ),
    ] = ServiceTemplate()
    """Leads to the primary."""
    ro: ServiceTemplate = ServiceTemplate()
    """Leads to the replicas."""
    r: ServiceTemplate = ServiceTemplate()
    """Leads to all instances."""
    additional: Annotated[tuple[AdditionalService, ...], Field(list_map_keys=("name",), max_items=10)] = ()
    """More of them, such as one of type LoadBalancer."""


class SecretReference(FrozenStruct):
    """A Secret in the namespace of this object."""

    name: Name
    """Name of the Secret."""


class ClusterTls(FrozenStruct):
    """How connections are encrypted."""

    required: Annotated[bool, Field(default=True)] = True
    """Whether logins in clear text are refused."""
    server_secret: SecretReference | None = None
    """Secret of type kubernetes.io/tls, with ca.crt for clients, that servers show; one of the operator's own,
    which it rotates, unless given."""


class Pooler(FrozenStruct):
    """Connection poolers in front of the cluster."""

    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """How many pods for each Service."""
    mode: Literal["transaction", "session"] = "transaction"
    """When a server's connection is given to the next client."""
    read_only: Annotated[bool, Field(default=True)] = True
    """Whether there is one for replicas, too."""
    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=256)]],
        Field(
            max_properties=32,
            rules=(
                Rule(
                    rule="self.all(k, k in ['default_pool_size', 'min_pool_size', 'reserve_pool_size', "
                    "'reserve_pool_timeout', 'max_client_conn', 'max_db_connections', 'max_user_connections', "
                    "'max_prepared_statements', 'server_idle_timeout', 'server_lifetime', 'query_timeout', "
                    "'query_wait_timeout', 'client_idle_timeout', 'idle_transaction_timeout', "
                    "'ignore_startup_parameters', 'application_name_add_host', 'log_connections', "
                    "'log_disconnections', 'log_pooler_errors'])",
                    message="parameters that PgBouncer takes from users are listed in the reference of this kind; "
                    "the others are the operator's",
                ),
            ),
        ),
    ] = FrozenDict()
    """Settings of PgBouncer."""
    resources: ResourceRequirements | None = None
    """Resources of each pod."""


class ClusterMember(FrozenStruct):
    """An instance as it is."""

    name: str
    """Name of the instance."""
    role: MemberRole | None = None
    """Primary or Replica; absent while it is neither."""
    state: str | None = None
    """What its server does: Starting, Cloning, Running, Streaming, Stopped, Crashed, StartFailed, or Unknown."""
    node: str | None = None
    """The node that its pod is on."""
    ready: bool | None = None
    """Whether it takes connections."""
    lag_bytes: int | None = None
    """How far it is behind the primary, rounded down to MiB."""
    timeline: int | None = None
    """Its timeline."""
    pending_restart: bool | None = None
    """Whether parameters wait for a restart."""
    fenced: bool | None = None
    """Whether it is fenced."""


class ClusterSecrets(FrozenStruct):
    """Names of the Secrets of a cluster."""

    administrator: str | None = None
    """The superuser's, for people."""
    application: str | None = None
    """That of the owner of the first database."""
    ca: str | None = None
    """The certificates that clients verify servers by."""
