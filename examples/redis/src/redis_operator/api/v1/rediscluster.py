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
    """Volume of each node."""

    size: Annotated[Quantity, Field(immutable=True)] = Quantity("1Gi")
    storage_class_name: Annotated[str | None, Field(immutable=True)] = None
    """StorageClass of the volumes. Defaults to the default class of the cluster."""
    when_deleted: Literal["Retain", "Delete"] = "Retain"
    """Deletes or retains the volumes with the RedisCluster. A new one of the same name uses retained volumes."""


@schema(rules=[_MIN_REPLICAS])
class RedisClusterSpec(Spec):
    """Desired state of a RedisCluster."""

    version: Annotated[str, Field(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?$", max_length=20, rules=(_NO_DOWNGRADE,))]
    """Version of Redis and tag of the image, such as 8.0. Nodes are updated one by one, replicas first."""
    replicas: Annotated[int, Field(ge=3, le=200)] = 6
    """Number of nodes: masters and replicas."""
    replicas_per_master: Annotated[int, Field(ge=0, le=5)] = 1
    """Replicas of each master: 6 nodes with 1 replica have 3 masters. Remaining nodes become replicas."""
    config: Annotated[
        FrozenDict[str, Annotated[str, Field(max_length=1024)]],
        Field(max_properties=64, rules=(_VALID_NAMES, _NOT_RESERVED, _ONE_LINE)),
    ] = FrozenDict()
    """Parameters of redis.conf, such as maxmemory: 100mb. A change restarts the nodes one by one."""
    storage: StorageSpec = StorageSpec()
    resources: ResourceRequirements | None = None
    """Resources of each node. Keep maxmemory well below the memory limit."""
    repository: Annotated[str, Field(min_length=1, max_length=255)] = "docker.io/library/redis"
    """Repository of the image. The version is its tag."""


class NodeStatus(FrozenStruct):
    """A node of the cluster."""

    pod: str
    role: Literal["master", "replica", "unknown"] = "unknown"
    master: str | None = None
    """Pod of the master, for replicas."""
    slots: int = 0
    """Number of slots, for masters."""
    node_name: str | None = None
    """Kubernetes node of the pod."""


class RedisClusterStatus(Status):
    """Observed state of a RedisCluster."""

    phase: Phase | None = None
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str | None = None
    """Label selector of the pods, for kubectl scale and autoscalers."""
    masters: int | None = None
    slots_covered: int | None = None
    """Number of slots with a reachable master, of 16384."""
    version: str | None = None
    """Version of all nodes; during an update, the previous version."""
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
    """A RedisCluster runs a Redis Cluster with masters and replicas."""
