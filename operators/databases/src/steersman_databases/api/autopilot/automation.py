"""Automatic decisions: modes, storage autogrow, and their status."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal, get_args

from steersman.meta import Duration, Field, FrozenStruct, Quantity, Rule, schema

AutomationMode = Literal["Disabled", "Recommend", "Automatic"]
AutomationName = Literal[
    "Storage",
    "WalStorage",
    "Resources",
    "Tuning",
    "CrashLoops",
    "InactiveSlots",
    "StuckReplicas",
    "Wraparound",
]
"""Automatic functions, in the order of the status."""
_POSITIVE_SIZE = Rule(
    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
    message="the size must be greater than 0, such as 1Gi",
)

_POSITIVE_AMOUNT = Rule(
    rule="quantity(string(self)).isGreaterThan(quantity('0'))",
    message="the amount must be greater than 0, such as 500m or 1Gi",
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


class ComputeAmounts(FrozenStruct):
    """Amounts of CPU and memory."""

    cpu: Annotated[Quantity, Field(rules=(_POSITIVE_AMOUNT,))] | None = None
    """Cores, such as 500m."""
    memory: Annotated[Quantity, Field(rules=(_POSITIVE_AMOUNT,))] | None = None
    """Memory, such as 2Gi."""


def _ordered(name: str) -> Rule:
    smaller, larger = f"self.minAllowed.{name}", f"self.maxAllowed.{name}"
    return Rule(
        rule=f"!has(self.minAllowed) || !has({smaller}) || !has(self.maxAllowed) || !has({larger})"
        f" || quantity(string({larger})).compareTo(quantity(string({smaller}))) >= 0",
        message="maxAllowed must be at least minAllowed",
        field_path=f".maxAllowed.{name}",
    )


@schema(
    rules=[
        Rule(
            rule="!has(self.mode) || self.mode != 'Automatic' || (has(self.minAllowed) && has(self.minAllowed.cpu)"
            " && has(self.minAllowed.memory) && has(self.maxAllowed) && has(self.maxAllowed.cpu)"
            " && has(self.maxAllowed.memory))",
            message="Automatic needs cpu and memory in minAllowed and maxAllowed",
            field_path=".mode",
        ),
        _ordered("cpu"),
        _ordered("memory"),
    ]
)
class VerticalScalingSettings(FrozenStruct):
    """CPU and memory of the servers by their recorded use."""

    mode: AutomationMode = "Recommend"
    """Automatic applies recommendations. Recommend only reports them. Disabled does nothing."""
    min_allowed: ComputeAmounts = ComputeAmounts()
    """Least requests. Automatic needs both."""
    max_allowed: ComputeAmounts = ComputeAmounts()
    """Largest requests. Automatic needs both."""


class AutomationStatus(FrozenStruct):
    """The last decision of an automatic function."""

    name: AutomationName
    """Name of the function.

    Storage is spec.storage.autogrow, WalStorage spec.walStorage.autogrow, Resources spec.verticalScaling, Tuning
    spec.tuning. The others are fields of spec.healing.
    """
    mode: AutomationMode
    """Effective mode.

    It is the declared one, or less with the operator's flag ``--automation``.
    """
    decision: str
    """Decision in one word, such as the reason of the condition AutogrowReady."""
    message: str
    """Decision and its reason."""
    evidence: str | None = None
    """Measurements that the decision rests on, and the number of their days."""
    last_action: str | None = None
    """The last action and its evidence."""
    last_action_time: datetime | None = None
    """Time of the last action."""
    next_action_time: datetime | None = None
    """Earliest time of the next action, while one waits."""
