"""Automatic decisions: modes, storage autogrow, and their status."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from steersman.meta import Duration, Field, FrozenStruct, Quantity, Rule

AutomationMode = Literal["Disabled", "Recommend", "Automatic"]
_POSITIVE_SIZE = Rule(
    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
    message="the size must be greater than 0, such as 1Gi",
)


def _duration(least: str, most: str) -> tuple[Rule, ...]:
    rule = f"duration(self) >= duration('{least}') && duration(self) <= duration('{most}')"
    return (Rule(rule=rule, message=f"must be from {least} to {most}"),)


def limited_mode(declared: AutomationMode, limit: AutomationMode) -> AutomationMode:
    """Return the lesser of the declared mode and the limit."""
    order = get_args(AutomationMode)
    return limit if order.index(limit) < order.index(declared) else declared


class AutogrowSettings(FrozenStruct):
    """Automatic growth of a volume.

    All volumes of the cluster grow alike. Sizes never shrink.
    """

    mode: AutomationMode = "Automatic"
    """Automatic grows the volumes. Recommend only reports what it would do. Disabled does nothing."""
    max_size: Annotated[Quantity, Field(rules=(_POSITIVE_SIZE,))]
    """Largest size of each volume."""
    at_percent: Annotated[int, Field(ge=50, le=90, format="int32")] = 80
    """Use of a volume in percent at which it grows."""
    forecast: Annotated[Duration, Field(max_length=32, rules=_duration("1h", "2160h"))] = Duration("168h")
    """Period for which a volume must suffice at its measured growth. A volume that would fill up earlier grows."""
    min_step: Annotated[Quantity, Field(rules=(_POSITIVE_SIZE,))] = Quantity("1Gi")
    """Least growth."""
    cooldown: Annotated[Duration, Field(max_length=32, rules=_duration("0s", "168h"))] = Duration("6h")
    """Least time between two growths. A volume that is over 95 % full, or would be full within an hour, grows
    nevertheless."""


class AutomationStatus(FrozenStruct):
    """The last decision of an automatic function."""

    name: Literal["Storage", "WalStorage"]
    """Storage (spec.storage.autogrow) or WalStorage (spec.walStorage.autogrow)."""
    mode: AutomationMode
    """Effective mode.

    It is the declared one, or less with the operator's flag ``--automation``.
    """
    decision: str
    """Reason of the decision, as in the condition AutogrowReady."""
    message: str
    """Decision and evidence."""
    last_action: str | None = None
    """The last action and its evidence."""
    last_action_time: datetime | None = None
    """Time of the last action."""
    next_action_time: datetime | None = None
    """Earliest time of the next action, during the cooldown."""
