"""What the objects of a cluster need to know of its engine, and a cluster as every engine sees it."""

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

from .cluster_names import ClusterNames, Store
from .survey import SecuredObject

SynchronousMode = Literal["Off", "Priority", "Quorum"]
CLUSTER_DOMAIN = "cluster.local"
"""The DNS domain of Kubernetes' own names, where nobody chose another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Synchronous:
    """How many standbys must have what was committed, ``mode`` with its default put in.

    ``required``: writes stop rather than lose the copy.
    """

    mode: SynchronousMode = "Off"
    standbys: int = 1
    required: bool = False


@dataclass(frozen=True, slots=True)
class SqlSource:
    """SQL that stands under a key of a Secret or a ConfigMap in the namespace of the cluster."""

    kind: Literal["Secret", "ConfigMap"]
    name: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitialDatabase:
    """How a new volume is made, and the first database with its owner. ``wal_segment_size`` is in MiB.

    ``sql`` is run in the database once, in its order.
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


DEFAULT_PULL_POLICY = "IfNotPresent"


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSettings:
    """What a user may say of the pods, the same for every engine. What needs a new pod to take effect."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """What annotations of the cluster ask for.

    ``fenced`` are numbers of instances, or ``"*"`` for all; ``switchover`` is an instance's name, ``any`` or empty,
    and ``replace`` an instance's name or empty.
    """

    paused: bool = False
    force_delete: bool = False
    fenced: frozenset[int] | Literal["*"] = frozenset()
    switchover: str = ""
    replace: str = ""
    restart: str = ""

    def fences(self, instance: int) -> bool:
        """Whether this instance should be fenced."""
        return self.fenced == "*" or instance in self.fenced


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """A person's leave to go on with the data of ``instance`` after the outage ``epoch``, with its loss named.

    ``transactions`` and ``instances`` are what is given up, as the members tell it.
    """

    epoch: int
    instance: str
    transactions: str = ""
    instances: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """A cluster as it is declared, defaults put in: what is the same for each engine's kind.

    ``image`` is what ``spec`` says, or else what the operator has for ``version``. ``access_rules`` are lines of
    ``pg_hba.conf``, ``superuser_access`` whether another lets PostgreSQL's superuser in by a password;
    ``preload_libraries`` is what the server loads at its start. ``image_given``: the image is the user's and taken at
    once; ``upgrades_minor``: so is the operator's. ``writable_services`` are those whose EndpointSlices the primary
    fills. ``has_database``: ``initial`` names a first database, and is not only how a new volume is made.
    ``generation`` is the declaration's number. ``forgets_absent``: who is not there now does not come back.
    ``estranged`` are the instances that cannot be told to read their certificates again. ``present`` are those that
    have data or are about to. ``recovery`` is what a person consents to, ``recovered`` the instance that may go on by
    it. ``alterable``: servers take what they are told of parameters of their own, since some have to forget it.
    ``upgrade_image``: the user's, for upgrades of the data.
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
    storage_class: str | None = None
    wal_class: str | None = None
    pods: PodSettings
    synchronous: Synchronous
    initial: InitialDatabase
    writable_services: Sequence[str]
    parameters: Mapping[str, str] = field(default_factory=dict[str, str])
    preload_libraries: Sequence[str] = ()
    access_rules: Sequence[str] = ()
    superuser_access: bool = True
    tls_required: bool = True
    image_given: bool = False
    upgrades_minor: bool = False
    has_database: bool = False
    hibernated: bool = False
    replaces_failed: bool = True
    deletes_data: bool = False
    requests: Requests = Requests()
    generation: int = 0
    forgets_absent: bool = False
    estranged: frozenset[int] = frozenset()
    present: frozenset[int] = frozenset()
    recovery: Consent | None = None
    recovered: int | None = None
    alterable: bool = False
    upgrade_image: str = ""
    cluster_domain: str = CLUSTER_DOMAIN

    @property
    def names(self) -> ClusterNames:
        """The names of everything that belongs to it."""
        return ClusterNames(self.key)

    @property
    def begins_together(self) -> bool:
        """Whether nobody may lead before all were seen: a group, whose last primary may have less than another."""
        return self.engine == "mysql"

    @property
    def store(self) -> Store:
        """Where its members agree."""
        return self.names.store_of(self.engine)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurer:
    """What applies the SQL for a new database, and leaves ``marker`` in it.

    With ``one_transaction`` it does so as a whole or not at all, and may be ended at any moment. ``container`` mounts
    the volumes ``sql``, with the file ``paths`` of each source, and ``application``, the Secret for applications. It
    ends with one of ``refused`` where the server refused the SQL; other failures may be tried again as it is.
    """

    container: core.Container
    paths: Mapping[SqlSource, str]
    marker: SecuredObject
    refused: Sequence[int]
    one_transaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PodParts:
    """What an engine puts into the pod of an instance.

    ``server`` has no resources and no security context: those are the cluster's and the same for every engine. It
    mounts the volumes ``data``, ``wal`` (where ``ClusterView.wal_size`` is set) and ``shm``, which need not be in
    ``volumes``. ``labels`` and ``annotations`` are the pod's beside those that all our objects bear.
    """

    server: core.Container
    volumes: Sequence[core.Volume] = ()
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    annotations: Mapping[str, str] = field(default_factory=dict[str, str])
    grace_seconds: int = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Rights:
    """What an engine's servers ask of the API server, in RBAC's verbs.

    ``store``, ``pods`` and ``slices`` are of the ConfigMaps in which they agree, of their own pods, and of the
    EndpointSlices that the primary fills, each by its name. ``every_config_map`` and ``every_pod`` are of all in the
    namespace: what is looked for by label, RBAC cannot narrow.
    """

    store: Sequence[str] = ("get", "patch")
    slices: Sequence[str] = ("get", "patch")
    pods: Sequence[str]
    every_config_map: Sequence[str] = ()
    every_pod: Sequence[str]


SettingContext = Literal["internal", "postmaster", "sighup", "superuser-backend", "backend", "superuser", "user"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One parameter as a server knows it. Source: PostgreSQL's view ``pg_settings``, column for column.

    ``value`` is ``setting``, in ``unit``. ``of_session``: it is the asking session's alone. ``altered``: it comes
    from the file that ``ALTER SYSTEM`` writes.
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
    of_session: bool = False
    altered: bool = False


SettingCatalog = Mapping[str, Setting]
"""Every parameter of one server by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What writing a parameter means. ``reason`` says why it is refused, in the server's words where it has some.

    ``Same``: the server has that value already. ``Lowering``: a restart, and the primary first, since no standby may
    have less than its primary.
    """

    kind: Literal["Same", "Reload", "Restart", "Lowering", "Refused"]
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Tried:
    """What a server said as it tried values, which changed nothing, and of the file that it reads when it starts.

    ``refused`` are those values that it does not take, with its words, by the parameter. ``unread`` is what stands in
    the file and is not taken: values and words, with an empty name where it does not understand the line.
    """

    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    unread: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])


@dataclass(frozen=True, slots=True, kw_only=True)
class InUse:
    """What an upgrade has to bring along, as the primary tells: of all databases together.

    ``problems`` are sentences about what cannot be brought along; ``size`` is in bytes.
    """

    problems: Sequence[str] = ()
    extensions: Sequence[str] = ()
    libraries: Sequence[str] = ()
    size: int = 0


class ClusterEngine(Protocol):
    """One engine's part in the Kubernetes objects of a cluster. Pure."""

    @property
    def name(self) -> str:
        """The engine's name, ``postgresql``."""
        ...

    @property
    def port(self) -> int:
        """The port its servers listen on."""
        ...

    @property
    def member_ports(self) -> Sequence[int]:
        """The ports beside it that members and the operator use among themselves."""
        ...

    @property
    def rights(self) -> Rights:
        """What its servers do at the API server, and nothing that they do not."""
        ...

    @property
    def administrator(self) -> str:
        """The account for people that may do everything."""
        ...

    def pod(self, cluster: ClusterView, instance: int, *, fenced: bool = False) -> PodParts:
        """What runs in an instance's pod. ``fenced``: the same image with the data mounted, and no server starts."""
        ...

    def objects(self, cluster: ClusterView) -> Sequence[ApplyConfiguration[Any]]:
        """What the instances need to find before they start, each without what they write into it themselves.

        With names and labels, without owners.
        """
        ...

    def settings(self, cluster: ClusterView) -> Mapping[str, Any]:
        """What `Topology.configure` should write: the part of the configuration that all members share."""
        ...

    def configurer(self, cluster: ClusterView) -> Configurer:
        """What runs ``cluster.initial.sql``."""
        ...

    def access_problem(self, rule: str) -> str | None:
        """Why a user's access rule is not taken; None where it is."""
        ...

    def judge(self, name: str, value: str, catalog: SettingCatalog) -> Verdict:
        """What giving the parameter ``name`` this ``value`` means on a server whose parameters are ``catalog``."""
        ...

    def shown_instead(self, name: str, value: str, catalog: SettingCatalog) -> str | None:
        """What the server runs with in place of ``value``; None where it has that, or where that cannot be told."""
        ...

    def at_odds(self, values: Mapping[str, str]) -> Iterable[tuple[Sequence[str], str]]:
        """The parameters among ``values`` with which no server starts because of each other, and why."""
        ...

    def held(self, name: str, value: str) -> int | None:
        """Bytes of memory that a server takes for this parameter, once; None where that cannot be told."""
        ...

    def keeps(self, cluster: ClusterView, names: Iterable[str]) -> frozenset[str]:
        """Those of the parameters ``names`` that are declared or the operator's, and nobody else's to set."""
        ...

    def can_be_altered(self, cluster: ClusterView) -> bool:
        """Whether somebody could set one at a server of this version, past what all members share."""
        ...
