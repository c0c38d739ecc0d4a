"""The Python twins of the types in ``go/v1``."""

from __future__ import annotations

from datetime import datetime
from enum import Enum, StrEnum
from typing import Annotated, Any, Literal

import msgspec

from steersman.api.core_v1 import (
    Affinity,
    EnvVar,
    LocalObjectReference,
    ObjectReference,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PodSecurityContext,
    PodTemplateSpec,
    ResourceRequirements,
    SecretKeySelector,
    ServiceSpec,
    Toleration,
)
from steersman.api.meta_v1 import LabelSelector
from steersman.meta import (
    Duration,
    Field,
    FrozenDict,
    FrozenStruct,
    PrinterColumn,
    Quantity,
    Resource,
    Rule,
    Scale,
    Spec,
    Status,
    at_least_one_of,
    at_most_one_of,
    discriminated,
    exactly_one_of,
    resource,
    schema,
)

GROUP = "twins.example.com"
Int32 = Annotated[int, Field(format="int32")]


class ScalarsSpec(Spec):
    """ScalarsSpec has every scalar, with bounds."""

    count: Annotated[int, Field(ge=0, le=100)]
    """Number of items."""
    small: Annotated[Int32, Field(gt=1, lt=9)] | None = None
    """A small number."""
    step: Annotated[int, Field(multiple_of=5)] = 10
    ratio: Annotated[float, Field(ge=0.5)] | None = None
    name: Annotated[str, Field(min_length=1, max_length=63, pattern="^[a-z]+$")]
    host: Annotated[str, Field(format="hostname")] = ""
    enabled: bool = True
    paused: bool = False
    key: bytes = b""
    start: datetime | None = None
    comment: Annotated[str, Field(title="A comment", example="like this")] = ""
    prefix: Annotated[str, Field(default="")] = ""
    owner: Annotated[str | None, Field(nullable=True)] = None
    flavour: Annotated[
        str,
        Field(rules=(Rule(rule="self == oldSelf", message="flavour is immutable", reason="FieldValueForbidden"),)),
    ]


class ScalarsStatus(Status):
    """ScalarsStatus is empty but for a number."""

    count: int | None = None


@resource(group=GROUP, version="v1", plural="scalars", singular="scalars")
class Scalars(Resource[ScalarsSpec, ScalarsStatus]):
    """Scalars has every scalar."""


class Mode(StrEnum):
    """Mode is how it runs."""

    FAST = "fast"
    SAFE = "safe"


class Level(Enum):
    LOW = 1
    MIDDLE = 2
    HIGH = 3


class EnumsSpec(Spec):
    """EnumsSpec has closed sets of values."""

    mode: Mode = Mode.SAFE
    letter: Literal["a", "b", "c"]
    level: Level | None = None


class EnumsStatus(Status):
    """EnumsStatus says what was chosen."""

    phase: Literal["Pending", "Ready"] | None = None


@resource(
    group=GROUP,
    version="v1",
    namespaced=False,
    short_names=["ch", "cho"],
    categories=["all", "twins"],
    columns=[
        PrinterColumn("Letter", ".spec.letter", description="The letter."),
        PrinterColumn("Level", ".spec.level", "integer", priority=1, format="int64"),
    ],
    selectable_fields=[".spec.letter"],
    annotations={"example.com/a": "b"},
    labels={"example.com/c": "d"},
)
class Choice(Resource[EnumsSpec, EnumsStatus]):
    """Choice has closed sets of values."""


class Port(FrozenStruct):
    """Port is one port."""

    number: Annotated[int, Field(ge=1, le=65535)]
    protocol: str = "TCP"
    name: str = ""


@schema(map_type="atomic")
class Pair(FrozenStruct):
    """Pair is compared as a whole."""

    left: str
    right: str


class ListsSpec(Spec):
    """ListsSpec has lists and maps of every kind."""

    arguments: Annotated[tuple[str, ...], Field(list_type="atomic", max_items=8)] = ()
    zones: Annotated[
        tuple[Annotated[str, Field(min_length=1, pattern="^[a-z]+$")], ...], Field(list_type="set", min_items=1)
    ]
    ports: Annotated[tuple[Port, ...], Field(list_map_keys=("number", "protocol"))] = ()
    pairs: Annotated[tuple[Pair, ...], Field(list_type="set")] = ()
    labels: Annotated[FrozenDict[str, str], Field(map_type="atomic", min_properties=1, max_properties=16)] = (
        FrozenDict()
    )
    counts: FrozenDict[str, int] = FrozenDict()
    letters: tuple[str, ...] = ("x", "y")
    nothing: Annotated[tuple[str, ...], Field(default=())] = ()
    defaults: FrozenDict[str, str] = FrozenDict({"a": "b"})
    matrix: tuple[tuple[int, ...], ...] = ()
    by_name: FrozenDict[str, Pair] = FrozenDict()


@resource(group=GROUP, version="v1", plural="listings", singular="listing")
class Lists(Resource[ListsSpec, ScalarsStatus]):
    """Lists has lists and maps of every kind."""


class Schedule(FrozenStruct):
    """Schedule says when."""

    cron: str = "0 0 * * *"


class Backup(FrozenStruct):
    """Backup says where backups go."""

    keep_days: int = 7
    schedule: Schedule | None = None


class NestedSpec(Spec):
    """NestedSpec has structs within structs."""

    backup: Backup = Backup()
    other: Backup | None = None
    """Another one."""
    third: Backup = Backup(keep_days=3)
    needed: Schedule


@resource(group=GROUP, version="v1")
class Nested(Resource[NestedSpec, ScalarsStatus]):
    """Nested has structs within structs."""


class HTTP(FrozenStruct):
    """HTTP is a probe by HTTP."""

    path: str


class TCP(FrozenStruct):
    """TCP is a probe by TCP."""

    port: int


@schema(rules=[at_most_one_of("period", "every"), exactly_one_of("http", "tcp")])
class Probe(FrozenStruct):
    """Probe is one of several."""

    http: HTTP | None = None
    tcp: TCP | None = None
    period: int | None = None
    every: str | None = None


@schema(rules=[discriminated("type", HTTP="http", TCP="tcp")])
class Source(FrozenStruct):
    """Source is one that its type names."""

    type: Literal["HTTP", "TCP"]
    http: HTTP | None = None
    tcp: TCP | None = None


@schema(rules=[at_least_one_of("probe", "source")])
class UnionSpec(Spec):
    """UnionSpec has unions: structs with one member set."""

    probe: Probe | None = None
    source: Source | None = None
    sources: Annotated[
        FrozenDict[str, Source],
        Field(
            max_properties=8,
            rules=(
                Rule(
                    rule="self.all(k, k.size() < 9)",
                    message="names are short",
                    message_expression="self.size() == 1 ? 'its name is long' : 'a name is long'",
                ),
            ),
        ),
    ] = FrozenDict()


@resource(
    group=GROUP,
    version="v1",
    rules=[Rule(rule="self.metadata.name.size() < 9", message="the name is too long", field_path=".spec.probe")],
)
class Union(Resource[UnionSpec, ScalarsStatus]):
    """Union has unions: structs with one member set."""


@schema(preserve_unknown=True)
class Loose(FrozenStruct):
    """Loose keeps what it does not know."""

    known: str = ""


class OpenSpec(Spec):
    """OpenSpec has values that are not, or hardly, described."""

    port: int | str | None = None
    size: Quantity = Quantity("1Gi")
    limits: FrozenDict[str, Quantity] = FrozenDict()
    timeout: Duration | None = None
    anything: Any = None
    values: Annotated[FrozenDict[str, Any], Field(preserve_unknown=True)] = FrozenDict()
    object: Annotated[FrozenDict[str, Any], Field(embedded_resource=True, preserve_unknown=True)] | None = None
    loose: Loose | None = None


@resource(group=GROUP, version="v1")
class Open(Resource[OpenSpec, ScalarsStatus]):
    """Open has values that are not, or hardly, described."""


class BuiltinsSpec(Spec):
    """BuiltinsSpec has types of Kubernetes' own."""

    resources: ResourceRequirements | None = None
    selector: LabelSelector | None = None
    tolerations: tuple[Toleration, ...] = ()
    affinity: Affinity | None = None
    env: tuple[EnvVar, ...] = ()
    secret: LocalObjectReference | None = None
    key: SecretKeySelector | None = None
    service: ServiceSpec | None = None
    ref: ObjectReference | None = None
    claim: PersistentVolumeClaimSpec | None = None
    security: PodSecurityContext | None = None


class BuiltinsStatus(Status):
    """BuiltinsStatus has conditions."""


@resource(group=GROUP, version="v1", plural="builtins", singular="builtins")
class Builtins(Resource[BuiltinsSpec, BuiltinsStatus]):
    """Builtins has types of Kubernetes' own."""


class TemplateSpec(Spec):
    """TemplateSpec has whole pods and claims."""

    template: PodTemplateSpec
    claims: tuple[PersistentVolumeClaim, ...] = ()


@resource(group=GROUP, version="v1")
class Template(Resource[TemplateSpec, ScalarsStatus]):
    """Template has whole pods and claims."""


class WorkloadSpec(Spec):
    """WorkloadSpec can be scaled."""

    replicas: Annotated[Int32, Field(ge=0)] = 1
    image: Annotated[str, Field(immutable=True)]
    """Source is taken from here."""


class WorkloadStatus(Status):
    """WorkloadStatus reports the running replicas."""

    replicas: Int32 | None = None
    selector: str = ""


@resource(
    group=GROUP,
    version="v1",
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
    columns=[PrinterColumn("Replicas", ".status.replicas", "integer")],
)
class Workload(Resource[WorkloadSpec, WorkloadStatus]):
    """Workload can be scaled."""


GROWS = Rule(rule="!oldSelf.hasValue() || self >= oldSelf.value()", message="it only grows", optional_old_self=True)


class FixedSpec(Spec):
    """FixedSpec never changes."""

    engine: Annotated[str, Field(immutable=True)]
    region: Annotated[str | None, Field(immutable=True)] = None
    address: Annotated[str | None, Field(immutable="once-set")] = None
    class_: Annotated[str, Field(immutable=True)] = msgspec.field(default="gold", name="class")
    size: Annotated[int, Field(rules=(GROWS,))]


@resource(group=GROUP, version="v1")
class Fixed(Resource[FixedSpec, ScalarsStatus]):
    """Fixed never changes."""


@schema(rules=[Rule(rule="self.slots >= oldSelf.slots", message="a rack never shrinks", field_path=".slots")])
class Rack(FrozenStruct):
    """Rack has a name."""

    name: str
    slots: Annotated[int, Field(le=48)]
    ports: Annotated[tuple[Port, ...], Field(max_items=4)] = ()


Room = Annotated[str, Field(max_length=9, rules=(Rule(rule="self != 'none'", message="none is reserved"),))]


class DeepSpec(Spec):
    """DeepSpec has rules and bounds at every depth."""

    racks: Annotated[tuple[Rack, ...], Field(list_map_keys=("name",), max_items=16)] = ()
    """The racks, by their names."""
    rooms: Annotated[tuple[Room, ...], Field(max_items=9)] = ()
    nested: FrozenDict[str, FrozenDict[str, tuple[Port, ...]]] = FrozenDict()


@resource(group=GROUP, version="v1")
class Deep(Resource[DeepSpec, ScalarsStatus]):
    """Deep has rules and bounds at every depth."""


class TaskSpec(Spec):
    """TaskSpec is an everyday kind."""

    schedule: Annotated[str, Field(min_length=9)]
    """Schedule is a cron expression."""
    concurrency_policy: Literal["Allow", "Forbid", "Replace"] = "Allow"
    suspend: bool | None = None
    cluster_ip: Annotated[str, Field(format="ipv4")] = msgspec.field(default="", name="clusterIP")
    """ClusterIP is an address."""
    url: Annotated[str, Field(format="uri")] = ""
    id: Annotated[str, Field(format="uuid")] = ""


@resource(group=GROUP, version="v1", short_names=["tk"])
class Task(Resource[TaskSpec, ScalarsStatus]):
    """Task is an everyday kind."""


class VersionedSpec(Spec):
    """VersionedSpec is the newest form."""

    host_port: str


@resource(group=GROUP, version="v1")
class Versioned(Resource[VersionedSpec, ScalarsStatus]):
    """Versioned has three versions."""
