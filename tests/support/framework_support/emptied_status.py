"""An operator whose status has maps and structs that become empty."""

from __future__ import annotations

from typing import Annotated, Any

from framework_support.status_versions import Release
from steersman.client import Client, Transport
from steersman.meta import Field, FrozenDict, FrozenStruct, ObjectMeta, Resource, Spec, Status, resource


class Last(FrozenStruct):
    label: str | None = None


class Shard(FrozenStruct):
    name: str
    pods: FrozenDict[str, int] = FrozenDict()


class Nested(FrozenStruct):
    last: Last | None = None


class TallySpec(Spec):
    selector: FrozenDict[str, str] = FrozenDict()


class TallyStatus(Status):
    pods: FrozenDict[str, int] = FrozenDict()
    last: Last | None = None
    nested: Nested | None = None
    shards: Annotated[tuple[Shard, ...], Field(list_map_keys=("name",))] = ()


@resource(group="emptied-status.example.com", version="v1", plural="tallies")
class Tally(Resource[TallySpec, TallyStatus]):
    """A kind with maps in its status."""


FULL: dict[str, Any] = {
    "pods": FrozenDict({"Running": 1}),
    "last": Last(label="x"),
    "nested": Nested(last=Last(label="x")),
    "shards": (Shard(name="a", pods=FrozenDict({"Running": 1})),),
}
EMPTY: dict[str, Any] = {
    "pods": FrozenDict(),
    "last": Last(),
    "nested": Nested(last=Last()),
    "shards": (Shard(name="a"),),
}


async def check_emptied_fields_are_removed(transport: Transport) -> None:
    """Check that maps and structs of the status can become empty."""
    await Client(transport).create(Tally(metadata=ObjectMeta(name="t", namespace="default"), spec=TallySpec()))
    operator = Release(transport, Tally, "t")
    for name, full in FULL.items():
        for value in (full, EMPTY[name], EMPTY[name], full):
            status = await operator.status(**{name: value})
            assert getattr(status, name) in ((full,) if value is full else (None, EMPTY[name])), (name, value)
    status = await operator.status(**EMPTY)
    assert (status.pods, status.last, status.shards) == ({}, None, EMPTY["shards"])
    assert await operator.status(**EMPTY) == await operator.status(**EMPTY)
