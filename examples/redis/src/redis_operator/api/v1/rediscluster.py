"""API types of RedisCluster in cache.example.com/v1."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman import Field, PrinterColumn, Quantity, Resource, Rule, Scale, Spec, Status, resource
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, FrozenStruct, schema

Phase = Literal["Forming", "Scaling", "Updating", "Ready", "Waiting", "Failed"]

# They are the operator's: addresses, files, passwords, and what would take a node out of the cluster.
_RESERVED_PARAMETERS = [
    "aclfile",
    "appenddirname",
    "appendfilename",
    "bind",
    "bind-source-addr",
    "cluster-allow-replica-migration",
    "cluster-config-file",
    "cluster-enabled",
    "cluster-port",
    "daemonize",
    "databases",
    "dbfilename",
    "dir",
    "enable-debug-command",
    "enable-module-command",
    "enable-protected-configs",
    "include",
    "loadmodule",
    "logfile",
    "masterauth",
    "masteruser",
    "pidfile",
    "port",
    "primaryauth",
    "primaryuser",
    "protected-mode",
    "rename-command",
    "replicaof",
    "requirepass",
    "slaveof",
    "supervised",
    "unixsocket",
    "unixsocketperm",
    "user",
]
_RESERVED_PARAMETER_PREFIXES = ("cluster-announce-", "replica-announce-", "slave-announce-", "tls-")

_VALID_NAMES = Rule(
    rule="self.all(name, name.matches('^[a-z][a-z0-9-]{0,63}$'))",
    message="names of Redis' parameters are of a-z, 0-9 and -, as in maxmemory-policy",
)
_NOT_RESERVED = Rule(
    rule=(
        f"self.all(name, !(name in {_RESERVED_PARAMETERS!r}) && "
        f"!{list(_RESERVED_PARAMETER_PREFIXES)!r}.exists(prefix, name.startsWith(prefix)))"
    ),
    message="the operator itself sets addresses, files, passwords and what makes a node part of the cluster",
)
_ONE_LINE = Rule(
    rule="self.all(name, !self[name].contains('\\n') && !self[name].contains('\\r'))",
    message="a value is one line, as in redis.conf",
)
_MIN_REPLICAS = Rule(
    rule="self.replicas >= 3 * (1 + self.replicasPerMaster)",
    message="replicas must be at least 3 * (1 + replicasPerMaster): a cluster has three masters or more",
    field_path=".replicas",
)
_NO_DOWNGRADE = Rule(
    rule=(
        "int(self.split('.')[0]) > int(oldSelf.split('.')[0]) || "
        "(int(self.split('.')[0]) == int(oldSelf.split('.')[0]) && "
        "int(self.split('.')[1]) >= int(oldSelf.split('.')[1]))"
    ),
    message="an older series of Redis cannot read what a newer one has written",
)


class StorageSpec(FrozenStruct):
    """The volume of each node."""

    size: Annotated[Quantity, Field(immutable=True)] = Quantity("1Gi")
    storage_class_name: Annotated[str | None, Field(immutable=True)] = None
    """The cluster's default class unless given."""
    when_deleted: Literal["Retain", "Delete"] = "Retain"
    """What becomes of the volumes with the RedisCluster. Another one of its name finds retained ones again."""


@schema(rules=[_MIN_REPLICAS])
class RedisClusterSpec(Spec):
    """Desired state of a RedisCluster."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$", max_length=20, rules=(_NO_DOWNGRADE,))]
    """Of Redis, as in 8.0 or 8.0.2. It is the tag of the image. Nodes change one by one, replicas before masters."""
    replicas: Annotated[int, Field(ge=3, le=200)] = 6
    """How many nodes there are: masters and their replicas together."""
    replicas_per_master: Annotated[int, Field(ge=0, le=5)] = 1
    """With 6 nodes and 1 replica a master there are 3 masters. Nodes that are over become more replicas."""
    config: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(max_properties=64, rules=(_VALID_NAMES, _NOT_RESERVED, _ONE_LINE)),
    ] = FrozenDict()
    """Parameters of redis.conf, as in maxmemory: 100mb. A change restarts the nodes one by one."""
    storage: StorageSpec = StorageSpec()
    resources: ResourceRequirements | None = None
    """What each node asks for and may use. Keep maxmemory well below the limit of memory."""
    repository: Annotated[str, Field(min_length=1, max_length=255)] = "docker.io/library/redis"
    """Where the image comes from; its tag is the version."""


class NodeStatus(FrozenStruct):
    """One node of the cluster."""

    pod: str
    role: Literal["master", "replica", "unknown"] = "unknown"
    master: str | None = None
    """Of a replica: the pod of its master."""
    slots: int = 0
    """Of a master: how many of the 16384 slots are its own."""
    node_name: str | None = None
    """The Kubernetes node that it runs on."""


class RedisClusterStatus(Status):
    """Observed state of a RedisCluster."""

    phase: Phase | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str | None = None
    """Of the pods, for kubectl scale and autoscalers."""
    masters: int | None = None
    slots_covered: int | None = None
    """How many of the 16384 slots have a master that answers."""
    version: str | None = None
    """What all nodes run; while they change, what they ran before."""
    nodes: Annotated[tuple[NodeStatus, ...], Field(list_map_keys=("pod",))] = ()


@resource(
    group="cache.example.com",
    version="v1",
    short_names=["rc"],
    categories=["all"],
    columns=[
        PrinterColumn("Version", ".status.version"),
        PrinterColumn("Replicas", ".spec.replicas", "integer"),
        PrinterColumn("Running", ".status.readyReplicas", "integer"),
        PrinterColumn("Slots", ".status.slotsCovered", "integer"),
        PrinterColumn("Phase", ".status.phase"),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    scale=Scale(".spec.replicas", ".status.replicas", ".status.selector"),
)
class RedisCluster(Resource[RedisClusterSpec, RedisClusterStatus]):
    """A Redis Cluster: keys are spread over masters by their slots, and replicas stand in for their masters."""
