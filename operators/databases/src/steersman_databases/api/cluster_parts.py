"""What the clusters of every engine have in common."""

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
from steersman.meta import Field, FrozenDict, FrozenStruct, PrinterColumn, Quantity, Rule, Spec, Status, schema
from steersman_databases.api.group import NAME_PATTERN, DeletionPolicy
from steersman_databases.api.names import SUBDOMAIN, Name, Namespaces
from steersman_databases.api.references import KeySelector

ServiceRole = Literal["rw", "ro", "r"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]
MemberRole = Literal["Primary", "Replica"]
ClusterPhase = Literal["Pending", "Provisioning", "Ready", "Degraded", "Failed", "Hibernated", "Deleting"]

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
    storage_class: Annotated[str | None, Field(min_length=1, max_length=253, pattern=SUBDOMAIN, immutable=True)] = (
        None
    )
    """Storage class; the cluster's default unless given. Immutable."""


@schema(rules=[_RESERVED_LABELS, _RESERVED_ANNOTATIONS])
class PodMetadata(FrozenStruct):
    """Labels and annotations of instances' pods beside the operator's own."""

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


class SqlReferences(FrozenStruct):
    """SQL in Secrets and ConfigMaps of the cluster's namespace: first the Secrets', then the ConfigMaps', each list
    in its order."""

    secret_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of Secrets."""
    config_map_refs: Annotated[tuple[KeySelector, ...], Field(max_items=32, list_type="atomic")] = ()
    """Keys of ConfigMaps."""


_LABEL = "([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?"
_DNS_NAME = rf"^([*][.])?([a-zA-Z0-9]{_LABEL}[.])*[a-zA-Z]{_LABEL}$"
_BYTE = "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"^({_BYTE}[.]){{3}}{_BYTE}$"
_GROUP = "[0-9a-fA-F]{1,4}"
_IPV6 = rf"^({_GROUP}:){{7}}{_GROUP}$"
_IPV6_SHORT = rf"^({_GROUP}(:{_GROUP})*)?::({_GROUP}(:{_GROUP})*)?$"
HostName = Annotated[
    str,
    Field(
        max_length=253,
        rules=(
            # isIP is known from Kubernetes 1.31 on.
            Rule(
                rule=f"self.matches('{_DNS_NAME}') || self.matches('{_IPV4}') || self.matches('{_IPV6}') ||"
                f" (self.matches('{_IPV6_SHORT}') && self.split(':').filter(g, g != '').size() < 8)",
                message="must be a DNS name, such as db.example.com, or an IP address",
            ),
        ),
    ),
]


class ClusterTls(FrozenStruct):
    """How connections are encrypted."""

    required: Annotated[bool, Field(default=True)] = True
    """Whether logins in clear text are refused."""
    server_secret: SecretReference | None = None
    """Secret of type kubernetes.io/tls, with ca.crt for clients, that servers show; one of the operator's own,
    which it rotates, unless given."""
    additional_names: Annotated[tuple[HostName, ...], Field(max_items=32, list_type="set")] = ()
    """Names and addresses by which clients call the cluster beside those of its Services, such as a load balancer's.
    The operator's certificate is for them too, and a given one must be. ``*.`` stands for one label."""


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
        "names with commas between",
    ),
)
"""Parameters of PgBouncer, what their values match, and that in words. One that it does not understand ends it, and a
line more would be one more setting."""
_POOLER_NAMES = [name for names, _, _ in POOLER_VALUES for name in names]
_POOLER_RULES = tuple(
    Rule(
        rule=f"self.all(k, !(k in {[*names]}) || self[k].matches('{pattern}'))",
        message=f"must be {words}: {', '.join(names)}",
    )
    for names, pattern, words in POOLER_VALUES
)


class Pooler(FrozenStruct):
    """Connection poolers in front of the cluster."""

    replicas: Annotated[int, Field(ge=1, le=10)] = 2
    """How many pods for each Service."""
    mode: Literal["transaction", "session"] = "transaction"
    """When a server's connection is given to the next client."""
    read_only: Annotated[bool, Field(default=True)] = True
    """Whether there is one for replicas, too. It needs the Service ro."""
    parameters: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=256)]],
        Field(
            max_properties=32,
            rules=(
                Rule(
                    rule=f"self.all(k, k in {_POOLER_NAMES})",
                    message="parameters that PgBouncer takes from users are listed in the reference of this kind; "
                    "the others are the operator's",
                ),
                *_POOLER_RULES,
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
    """What its server does: Starting, Cloning, Running, Streaming, Offline (in no group), Isolated (no majority),
    Stopped, Crashed, StartFailed, or Unknown."""
    node: str | None = None
    """The node that its pod is on."""
    ready: bool | None = None
    """Whether it takes connections."""
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


class LastSwitchover(FrozenStruct):
    """The last switchover that somebody asked for."""

    time: datetime | None = None
    """When it was asked for, and when it ended."""
    former: str | None = None
    """The former primary."""
    to: str | None = None
    """The primary since, or who should have become it."""
    outcome: str | None = None
    """Requested, Succeeded, or why not."""
    declared: str | None = None
    """For which generation it was asked for, and after which requested restart: nobody is asked twice for that."""
    refused: Annotated[tuple[str, ...], Field(max_items=32, list_type="set")] = ()
    """Who was asked before, for the same, and did not take over."""
    store_version: str | None = None
    """The resourceVersion of the ConfigMap that the request goes into, before it did. Until that bears it too, nobody
    has been asked yet."""


class ClusterSpec(Spec):
    """What every engine's cluster declares."""

    image: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    """Image of the servers; the operator's for this version unless given. It must have a server
    of ``version``."""
    image_pull_policy: PullPolicy = "IfNotPresent"
    """When nodes pull the image."""
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], Field(list_map_keys=("name",), max_items=16)] = ()
    """Secrets for the registry."""
    instances: Annotated[int, Field(ge=1, le=9, format="int32")] = 3
    """How many instances: a primary and its replicas."""
    storage: Storage = Storage()
    """The volume for data, one for each instance."""
    resources: ResourceRequirements | None = None
    """Resources of each instance; requests of 100m and 384Mi and a limit of 768Mi unless given."""
    affinity: Affinity | None = None
    """Which nodes; without a podAntiAffinity instances are kept apart where that is possible."""
    node_selector: Annotated[FrozenDict[str, Annotated[str, Field(max_length=63)]], Field(max_properties=64)] = (
        FrozenDict()
    )
    """Labels of the nodes."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_items=32, list_type="atomic")] = ()
    """Taints that are borne."""
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...], Field(max_items=16, list_type="atomic")
    ] = ()
    """How instances are spread. Without a selector of its own, each is about the pods of this cluster."""
    priority_class_name: Annotated[str, Field(min_length=1, max_length=253)] | None = None
    """Priority of the pods. Who sets it must be allowed to create pods."""
    pod_metadata: PodMetadata = PodMetadata()
    """Labels and annotations of instances' pods beside the operator's own; poolers and Jobs bear none of them. Who
    adds any must be allowed to create pods."""
    pod_disruption_budget: PodDisruptionBudget = PodDisruptionBudget()
    """How many instances a drain may take away at once."""
    services: Services = Services()
    """The Services: -rw, -ro and -r, and more."""
    tls: ClusterTls = ClusterTls()
    """How connections are encrypted."""
    allowed_namespaces: Annotated[tuple[Namespaces, ...], Field(max_items=256, list_type="set")] = ()
    """Namespaces whose databases and users may be on this cluster; "*" is each one."""
    network_policy: Literal["Managed", "None"] = "Managed"
    """Managed: a NetworkPolicy lets everybody reach the port for SQL, and members and the operator alone the others;
    another lets everybody reach poolers. None: there is none, so that you may bring your own."""
    minor_upgrades: Literal["OnRequest", "Automatic"] = "OnRequest"
    """Whether a newer image of the operator's for this version is taken by itself. With ``imagePullPolicy`` Always,
    also what another instance already runs by the same tag."""
    hibernated: bool = False
    """Stop all instances and keep the data."""
    replace_failed_instances: Literal["Automatic", "OnRequest"] = "Automatic"
    """Whether an instance whose data or volume is lost is made anew by itself, or when the annotation
    ``databases.steersman.dev/replace`` names it."""
    deletion_policy: DeletionPolicy = "Retain"
    """What becomes of the volumes, and of the Secrets that open them, when this object is deleted. What was retained
    is adopted by a new cluster of the same name."""


class ClusterStatus(Status):
    """A cluster as it is."""

    phase: ClusterPhase | None = None
    """Pending, Provisioning, Ready, Degraded (serves, and something is missing), Failed (needs a person), Hibernated
    or Deleting."""
    instances: int | None = None
    """How many instances there are."""
    ready_instances: int | None = None
    """How many take connections."""
    selector: str | None = None
    """Labels of the instances' pods, for autoscalers."""
    primary: str | None = None
    """The instance that takes writes."""
    version: str | None = None
    """The version that runs, whole."""
    image: str | None = None
    """The image that runs."""
    available_image: str | None = None
    """The image of the operator's for this version, where another one runs."""
    members: Annotated[tuple[ClusterMember, ...], Field(list_map_keys=("name",), max_items=32)] = ()
    """The instances."""
    secrets: ClusterSecrets | None = None
    """Names of the Secrets."""
    last_switchover: LastSwitchover | None = None
    """The last switchover that somebody asked for."""


COLUMNS = [
    PrinterColumn("Instances", ".spec.instances", "integer"),
    PrinterColumn("Ready", ".status.readyInstances", "integer"),
    PrinterColumn("Primary", ".status.primary"),
    PrinterColumn("Version", ".status.version"),
    PrinterColumn("Phase", ".status.phase"),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
]
"""What kubectl shows of clusters."""
NAME_RULE = Rule(
    rule=f"self.metadata.name.matches('{NAME_PATTERN}')",
    message="metadata.name must be at most 45 lower-case letters, digits and '-', starting with a letter: "
    "Services are named after it",
)
"""Of a cluster's name."""
