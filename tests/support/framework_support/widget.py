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


class WidgetSpec(Spec):
    """Desired state."""

    depth: Annotated[int, Field(ge=0)] = 1


class WidgetStatus(Status):
    """Observed state."""

    depth: int | None = None
    note: str = ""


@resource(group="shop.example.com", version="v1")
class Widget(Resource[WidgetSpec, WidgetStatus]):
    """A custom resource for tests."""


class WidgetSpecApply(FrozenStruct):
    """Apply form of ``WidgetSpec``."""

    depth: int


class WidgetApply(ApplyConfiguration[Widget]):
    """Apply form of ``Widget``."""

    read_type = Widget

    spec: WidgetSpecApply


def widget(
    name: str = "a",
    version: int | str = 1,
    *,
    uid: str = "",
    namespace: str = "orders",
    depth: int = 1,
    labels: Mapping[str, str] | None = None,
    owners: tuple[OwnerReference, ...] = (),
) -> Widget:
    """A widget as returned by the server. Its UID defaults to one derived from its name."""
    return Widget(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"uid-{name}",
            resource_version=str(version),
            labels=FrozenDict(labels or {}),
            owner_references=owners,
        ),
        spec=WidgetSpec(depth=depth),
    )


def widget_document(name: str = "a", version: int | str = 1, *, uid: str = "", depth: Any = 1) -> dict[str, Any]:
    """Like ``widget``, in wire form. ``depth`` may have any type."""
    return {
        "apiVersion": "shop.example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": name,
            "namespace": "orders",
            "uid": uid or f"uid-{name}",
            "resourceVersion": str(version),
        },
        "spec": {"depth": depth},
    }
