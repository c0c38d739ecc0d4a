"""Parameters that follow from the resource limits of instances."""

from __future__ import annotations

from typing import Annotated, Literal

from steersman.meta import Field, FrozenStruct

Sizing = Literal["FromResources", "Defaults"]


class SizedParameterStatus(FrozenStruct):
    """A parameter that follows from the resource limits."""

    name: str
    """Name of the parameter."""
    value: str
    """Value that servers have or receive."""
    rule: str
    """Rule by which the value follows from the limits."""


class SizingStatus(FrozenStruct):
    """Parameters that follow from the resource limits of instances."""

    mode: Sizing
    """FromResources or Defaults. It stays while the spec declares none."""
    message: str | None = None
    """Cause of missing parameters, with FromResources."""
    parameters: Annotated[tuple[SizedParameterStatus, ...], Field(list_map_keys=("name",), max_items=64)] = ()
    """The parameters, without declared ones, which override them."""
