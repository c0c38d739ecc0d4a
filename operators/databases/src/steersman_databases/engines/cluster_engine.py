"""Interface of an engine to the Kubernetes objects of a cluster.

Also holds the engine-independent types: the declared cluster, settings and the contributions to a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from steersman.api.apply import core
from steersman.api.core_v1 import (
    Affinity,
    LocalObjectReference,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
)
from steersman.meta import ApplyConfiguration, ObjectKey, Quantity

from .naming import ClusterNames, DcsConfigMaps
from .parameter_trial import ParameterTrial
from .sql.inspection import SecuredObject
from .workload_identity import WorkloadIdentity

SynchronousMode = Literal["Disabled", "Priority", "Quorum"]
CLUSTER_DOMAIN = "cluster.local"
"""Default DNS domain of Kubernetes Services."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SynchronousReplication:
    """Number of standbys that must confirm a commit.

    `mode` has its default filled in. `required`: writes stop if no such standby is available.
    """

    mode: SynchronousMode = "Disabled"
    number: int = 1
    required: bool = False


@dataclass(frozen=True, slots=True)
class SqlSource:
    """Key of a Secret or ConfigMap that holds SQL.

    The object is in the namespace of the cluster.
    """

    kind: Literal["Secret", "ConfigMap"]
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BootstrapDatabase:
    """Options for a new data volume, and its first database.

    `sql` runs in the database once, in the declared order. `wal_segment_size` is in MiB.
    """

    database: str
    owner: str
    secret: str | None = None
    sql: Sequence[SqlSource] = ()
    encoding: str = "UTF8"
    collation: str | None = None
    locale_provider: str = "libc"
    locale: str = "C.UTF-8"
    wal_segment_size: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceResources:
    """Resource limits of the server in each instance.

    Attributes:
        memory: declared limit in bytes.
        smallest_memory: the lowest limit of the declared one and those of present pods, in bytes.
        cpus: declared limit in CPUs, or None without one.
    """

    memory: int
    smallest_memory: int
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class SizedParameter:
    """A parameter that follows from resource limits. `rule` says how, for the status."""

    name: str
    value: str
    rule: str


DEFAULT_PULL_POLICY = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodTemplateSettings:
    """User settings for pods, the same for each engine.

    A change takes effect when the pod is recreated.
    """

    resources: ResourceRequirements
    shm_size: Quantity | None = None
    image_pull_policy: str = DEFAULT_PULL_POLICY
    image_pull_secrets: Sequence[LocalObjectReference] = ()
    affinity: Affinity | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict[str, str])
    tolerations: Sequence[Toleration] = ()
    topology_spread_constraints: Sequence[TopologySpreadConstraint] = ()
    priority_class: str = ""
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    identity: WorkloadIdentity | None = None  # of pods that use the object store


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedOperations:
    """Operations that annotations of the cluster request.

    Attributes:
        fenced: numbers of instances, or `"*"` for all.
        switchover: name of an instance, `any` or empty.
        replace: name of an instance, or empty.
    """

    paused: bool = False
    force_delete: bool = False
    fenced: frozenset[int] | Literal["*"] = frozenset()
    switchover: str = ""
    replace: str = ""
    restarted_at: str = ""

    def is_fenced(self, instance: int) -> bool:
        """Return True if this instance should be fenced."""
        return self.fenced == "*" or instance in self.fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLossConsent:
    """A user's consent to continue with the data of one instance.

    It applies after the outage `epoch` and names the loss: `transactions` and `instances` that are given up, as the
    members report them.
    """

    epoch: int
    instance: str
    transactions: str = ""
    instances: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DeclaredSlot:
    """A declared replication slot. It is logical with a plugin and a database."""

    name: str
    plugin: str = ""
    database: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredCluster:
    """A cluster as declared, with defaults filled in.

    Attributes:
        image: the image from `spec`, or else the operator's image for `version`.
        capacity: smallest capacity of the volumes with the WAL or the binary logs. None if unknown.
        sized: parameters from resource limits, without declared ones.
        hba_rules: the user's lines of `pg_hba.conf`.
        superuser_access: PostgreSQL's superuser may log in over the network with a password.
        preload_libraries: libraries that the server loads at its start.
        has_explicit_image: the image comes from the user and is rolled out at once.
        automatic_minor_upgrades: a new image of the operator is rolled out, too.
        holds_minor_upgrade: an automatic minor upgrade that has not begun waits for a window or for other clusters.
        waits_for_window: unrequested disruptions wait for a maintenance window.
        has_maintenance_windows: unrequested restarts have their times.
        writable_services: the services whose EndpointSlices the primary fills.
        has_bootstrap_database: `bootstrap` names a first database, and not only options for a new volume.
        generation: `metadata.generation` of the object.
        drop_absent_slots: absent instances do not return, so their replication slots may be dropped.
        distrusting: instances that do not trust the operator's certificate, so that they take no request to reload.
        existing_ordinals: instances that have the present data, or are about to.
        force_recovery: the data loss that a user consents to.
        recovery_approved_for: the instance that may continue by this consent.
        allows_alter_system: servers accept ALTER SYSTEM, because some of them have to reset parameters.
        upgrade_image: the user's image for upgrades of the data.
        archive_interval_seconds: None without `spec.backup`.
        read_replicas: numbers of read replicas that have a replication slot.
        replication_slots: slots of users on every primary.
        trial: trial of a parameter that has begun. `parameters` have its value until it has ended.
        slow_statement_seconds: duration from which on servers log a statement. None for no statement.
        recorded_volumes: volumes, data or wal, that grow or have grown automatically. Each growth is recorded.
    """

    key: ObjectKey
    uid: str
    kind: str
    engine: str
    version: str
    image: str
    instances: int
    storage_size: Quantity
    wal_size: Quantity | None
    capacity: Quantity | None = None
    storage_class: str | None = None
    wal_class: str | None = None
    pod_settings: PodTemplateSettings
    synchronous: SynchronousReplication
    bootstrap: BootstrapDatabase
    writable_services: Sequence[str]
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    sized: Sequence[SizedParameter] = ()
    preload_libraries: Sequence[str] = ()
    hba_rules: Sequence[str] = ()
    superuser_access: bool = True
    tls_required: bool = True
    has_explicit_image: bool = False
    automatic_minor_upgrades: bool = False
    holds_minor_upgrade: bool = False
    waits_for_window: bool = False
    has_maintenance_windows: bool = False
    has_bootstrap_database: bool = False
    hibernated: bool = False
    automatic_replacement: bool = True
    delete_data: bool = False
    needs_recovery: bool = False
    """A recovery is declared, and no server has run yet."""
    requests: RequestedOperations = RequestedOperations()
    generation: int = 0
    drop_absent_slots: bool = False
    distrusting: frozenset[int] = frozenset()
    existing_ordinals: frozenset[int] = frozenset()
    force_recovery: DataLossConsent | None = None
    recovery_approved_for: int | None = None
    allows_alter_system: bool = False
    upgrade_image: str = ""
    cluster_domain: str = CLUSTER_DOMAIN
    archive_interval_seconds: float | None = None
    backup_processes: int = 1
    read_replicas: frozenset[int] = frozenset()
    replication_slots: Sequence[DeclaredSlot] = ()
    recorded_volumes: frozenset[str] = frozenset()
    trial: ParameterTrial | None = None
    slow_statement_seconds: float | None = None

    @property
    def names(self) -> ClusterNames:
        """Names of all objects that belong to the cluster."""
        return ClusterNames(self.key)

    @property
    def usable_size(self) -> Quantity:
        """Size of the volume with the WAL or the binary logs.

        It may have less than declared.
        """
        declared = self.wal_size or self.storage_size
        return declared if self.capacity is None else min(declared, self.capacity)

    @property
    def needs_all_members(self) -> bool:
        """Return True if no member may lead before all members were seen.

        This holds for a group of MySQL servers: its last primary may have fewer transactions than another member.
        """
        return self.engine == "mysql"

    @property
    def dcs(self) -> DcsConfigMaps:
        """ConfigMaps through which the members agree on a leader."""
        return self.names.dcs_of(self.engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostInitRunner:
    """Container that applies the SQL for a new database.

    Attributes:
        container: mounts the volumes `sql`, with the file `paths` of each source, and `application`, which is the
            Secret for applications.
        marker: object that the container creates after success.
        non_retryable_exit_codes: exit codes after the server refused the SQL. Other failures may be retried
            unchanged.
        single_transaction: all SQL runs in one transaction, so that the container may be stopped at any moment.
    """

    container: core.Container
    paths: Mapping[SqlSource, str]
    marker: SecuredObject
    non_retryable_exit_codes: Sequence[int]
    single_transaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodContribution:
    """Parts that an engine adds to the pod of an instance.

    `server` and `agent` have no resources and no security context, which are the same for each engine. Both mount
    the volumes `data`, `wal` (if `DeclaredCluster.wal_size` is set) and `shm`, which `volumes` need not contain.
    `labels` and `annotations` are added to those that all objects of the operator have.
    """

    server: core.Container
    agent: core.Container | None = None
    volumes: Sequence[core.Volume] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    grace_seconds: int = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPermissions:
    """Permissions of an engine's servers at the API server, as RBAC verbs.

    `dcs`, `pods` and `slices` apply by name: to the ConfigMaps of the members, to the cluster's pods, and to the
    EndpointSlices that the primary fills. `every_config_map` and `every_pod` apply to the whole namespace, because
    RBAC cannot restrict a list by label.
    """

    dcs: Sequence[str] = ("get", "patch")
    slices: Sequence[str] = ("get", "patch")
    pods: Sequence[str]
    every_config_map: Sequence[str] = ()
    every_pod: Sequence[str]


SettingContext = Literal["internal", "postmaster", "sighup", "superuser-backend", "backend", "superuser", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A parameter and its value on a server.

    Source: PostgreSQL's view `pg_settings`, column for column.

    Attributes:
        value: the column `setting`, in `unit`.
        session_settable: the value applies to the inspecting session only.
        overridden: the value comes from the file that `ALTER SYSTEM` writes.
    """

    name: str
    value: str
    unit: str | None = None
    context: SettingContext = "user"
    kind: Literal["bool", "integer", "real", "string", "enum"] = "string"
    minimum: str | None = None
    maximum: str | None = None
    choices: Sequence[str] = ()
    pending_restart: bool = False
    session_settable: bool = False
    overridden: bool = False


SettingCatalog = Mapping[str, Setting]
"""All parameters of a server by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Effect of a new value of a parameter.

    `Same`: the server has the value already. `Lowering`: a restart, with the primary first, because a standby may
    not have less than its primary. `reason` says why the value is refused, in the server's message where it has one.
    """

    kind: Literal["Same", "Reload", "Restart", "Lowering", "Refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class SettingValidation:
    """Result of a trial of values on a server, which changed nothing.

    Attributes:
        rejected: error message of the server by parameter.
        unreadable: value and error message by parameter, from the file that the server reads at its start. The name
            is empty if the server cannot parse the line.
    """

    rejected: Mapping[str, str] = field(default_factory=dict[str, str])
    unreadable: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeInventory:
    """Content of all databases that an upgrade has to migrate.

    The primary reports it. `problems` are sentences about content that cannot be migrated. `size` is in bytes.
    `column_options` are the names of the storage options of columns.
    """

    problems: Sequence[str] = ()
    extensions: Sequence[str] = ()
    libraries: Sequence[str] = ()
    size: int = 0
    column_options: Sequence[str] = ()


class ClusterEngine(Protocol):
    """An engine's part in the Kubernetes objects of a cluster.

    The methods have no side effects.
    """

    @property
    def name(self) -> str:
        """Name of the engine, such as `postgresql`."""
        ...

    @property
    def port(self) -> int:
        """Port of its servers for clients."""
        ...

    @property
    def member_ports(self) -> Sequence[int]:
        """Further ports that members and the operator use among themselves."""
        ...

    @property
    def permissions(self) -> PodPermissions:
        """Least permissions that its servers need at the API server."""
        ...

    @property
    def administrator(self) -> str:
        """Account for people with all rights."""
        ...

    def pod_contribution(self, cluster: DeclaredCluster, instance: int, *, fenced: bool = False) -> PodContribution:
        """Return the engine's part of an instance's pod.

        Args:
            fenced: use the same image with the data mounted, and start no server.
        """
        ...

    def supporting_objects(self, cluster: DeclaredCluster) -> Sequence[ApplyConfiguration[Any]]:
        """Return the objects that must exist before the instances start.

        They have names and labels, but no owners, and do not contain the fields that instances write themselves.
        """
        ...

    def shared_configuration(self, cluster: DeclaredCluster) -> Mapping[str, Any]:
        """Return the part of the configuration that all members share, for `HaBackend.configure`."""
        ...

    def post_init_runner(self, cluster: DeclaredCluster) -> PostInitRunner:
        """Return the container that runs `cluster.bootstrap.sql`."""
        ...

    def validate_hba(self, rule: str) -> str | None:
        """Return the reason why a user's access rule is refused, or None."""
        ...

    def classify(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """Return the effect of this value on a server with these parameters."""
        ...

    def effective_value(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """Return the value that the server uses instead of `value`.

        None if it uses `value`, or if that is unknown.
        """
        ...

    def conflicts(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """Yield parameters that prevent a start in combination, and the reason."""
        ...

    def fixed_memory(self, name: str, value: str) -> int | None:
        """Return the bytes that a server allocates once for this parameter.

        None if unknown.
        """
        ...

    def sized_parameters(self, cluster: DeclaredCluster, resources: InstanceResources) -> Iterable[SizedParameter]:
        """Yield the parameters that follow from the limits. Some of them may be declared."""
        ...

    def managed_parameters(self, cluster: DeclaredCluster, names: Iterable[str]) -> frozenset[str]:
        """Return the parameters that are declared or reserved for the operator."""
        ...

    def allows_alter_system(self, cluster: DeclaredCluster) -> bool:
        """Return True if users can set a parameter on a single server.

        Such a value overrides the configuration that all members share. This depends on the version.
        """
        ...
