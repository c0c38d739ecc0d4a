"""A small custom resource for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from steersman.meta import (
    ApplyConfiguration,
    Field,
    FrozenDict,
    FrozenStruct,
    ObjectMeta,
    OwnerReference,
    Resource,
    Spec,
    Status,
    resource,
)


class BuoySpec(Spec):
    """The buoy that is wanted."""

    depth: Annotated[int, Field(ge=0)] = 1


class BuoyStatus(Status):
    """The buoy as it is."""

    depth: int | None = None
    note: str = ""


@resource(group="sea.example.com", version="v1")
class Buoy(Resource[BuoySpec, BuoyStatus]):
    """Floats, and is chained to the ground."""


class BuoySpecApply(FrozenStruct):
    """Apply form of ``BuoySpec``."""

    depth: int


class BuoyApply(ApplyConfiguration[Buoy]):
    """Apply form of ``Buoy``."""

    read_type = Buoy

    spec: BuoySpecApply


def buoy(
    name: str = "a",
    version: int | str = 1,
    *,
    uid: str = "",
    namespace: str = "sea",
    depth: int = 1,
    labels: Mapping[str, str] | None = None,
    owners: tuple[OwnerReference, ...] = (),
) -> Buoy:
    """A buoy as read from the server; its UID follows from its name unless told."""
    return Buoy(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            resource_version=str(version),
            labels=FrozenDict(labels or {}),
            owner_references=owners,
        ),
        spec=BuoySpec(depth=depth),
    )


def wire(name: str = "a", version: int | str = 1, *, uid: str = "", depth: Any = 1) -> dict[str, Any]:
    """As ``buoy``, in wire form, in which ``depth`` may be anything."""
    return {
        "apiVersion": "sea.example.com/v1",
        "kind": "Buoy",
        "metadata": {
            "name": name,
            "namespace": "sea",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": {"depth": depth},
    }
