"""API types of LeaderService in leader.example.com/v1."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman import Field, FrozenDict, PrinterColumn, Resource, Rule, Spec, Status, resource
from steersman.meta import FrozenStruct, schema

GROUP = "leader.example.com"
Fencing = Literal["None", "Sidecar"]

_VALID_NAME = Rule(
    rule="self.metadata.name.size() <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
    message="name must be a DNS label of at most 50 characters that starts with a letter: it names a Service",
    field_path=".metadata.name",
)
_NOT_EMPTY = Rule(rule="self.size() > 0", message="selector must have a label: an empty one selects all pods")
_UNIQUE_NAMES = Rule(
    rule="self.size() == 1 || self.all(port, port.name != '' && self.exists_one(other, other.name == port.name))",
    message="each of several ports needs a name of its own",
)
_UNIQUE_PORTS = Rule(
    rule="self.all(port, self.exists_one(other, other.port == port.port && other.protocol == port.protocol))",
    message="port and protocol are used twice: a Service has each of them once",
)
_TERM_GROWS = Rule(
    rule="!has(oldSelf.term) || (has(self.term) && self.term >= oldSelf.term)",
    message="term must not decrease: stores refuse writes with a lower term",
)


class ServicePort(FrozenStruct):
    """A port of the Service."""

    port: Annotated[int, Field(ge=1, le=65535)]
    """Port of the Service."""
    target_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    """Port of the pods. Defaults to port."""
    name: Annotated[str, Field(max_length=15, pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$")] = ""
    """Name of the port; required if there are several."""
    protocol: Literal["TCP", "UDP", "SCTP"] = "TCP"


class PublishSpec(FrozenStruct):
    """Further ways to publish the leader."""

    config_map: (
        Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")] | None
    ) = None
    """Name of a ConfigMap that the operator creates. Its key leader.json has leader, term and address."""
    headless: bool = False
    """Creates the headless Service NAME-leader. Its DNS name resolves to the leader."""


class LeaderServiceSpec(Spec):
    """Desired state of a LeaderService."""

    selector: Annotated[FrozenDict[str, str], Field(max_properties=16, rules=(_NOT_EMPTY,))]
    """Labels of the pods."""
    ports: Annotated[tuple[ServicePort, ...], Field(min_items=1, max_items=16, rules=(_UNIQUE_NAMES, _UNIQUE_PORTS))]
    """Ports of the Service, which only the leader serves."""
    fencing: Annotated[Fencing, Field(immutable=True)] = "None"
    """Sidecar: pods elect the leader and end the previous one first. None: no mutual exclusion, only traffic."""
    termination_seconds: Annotated[int, Field(ge=0, le=3600)] = 10
    """Seconds from SIGTERM to SIGKILL at the end of a term. The Lease lasts longer by it."""
    min_term: Annotated[int, Field(ge=0, le=2_000_000_000)] = 0
    """Terms are above this number. Set it after a restore of etcd, or to replace a deleted LeaderService."""
    publish: PublishSpec = PublishSpec()


class Leader(FrozenStruct):
    """The leader."""

    pod: str
    uid: str
    term: int
    address: str | None = None
    """Primary IP address of the pod."""


@schema(rules=[_TERM_GROWS])
class LeaderServiceStatus(Status):
    """Observed state of a LeaderService."""

    term: int | None = None
    """Highest term. It never decreases."""
    leader: Leader | None = None
    """The published leader. Absent while there is none."""


@resource(
    group=GROUP,
    version="v1",
    short_names=["ls"],
    columns=[
        PrinterColumn("Leader", ".status.leader.pod"),
        PrinterColumn("Term", ".status.leader.term", "integer"),
        PrinterColumn("Fencing", ".spec.fencing"),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Message", '.status.conditions[?(@.type=="Ready")].message', priority=1),
    ],
    rules=[_VALID_NAME],
)
class LeaderService(Resource[LeaderServiceSpec, LeaderServiceStatus]):
    """A LeaderService chooses one leader among pods and publishes it."""
