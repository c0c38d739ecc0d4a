"""Requests and limits that follow from an applied recommendation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Literal, get_args

import msgspec

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import FrozenDict, Quantity, to_builtins
from steersman_databases.api.autopilot.automation import ComputeAmounts, VerticalScalingSettings
from steersman_databases.core.content_hash import content_hash
from steersman_databases.features.vertical_scaling.record import AppliedResources

ResourceName = Literal["cpu", "memory"]
RESOURCE_NAMES: tuple[ResourceName, ...] = get_args(ResourceName)
Amounts = Mapping[ResourceName, Decimal]
"""Cores and bytes."""
_MIB = 1 << 20


def requested(resources: ResourceRequirements) -> Amounts:
    """Return the requests. A resource with a limit alone requests it, and one without both is left out."""
    found = {**resources.limits, **resources.requests}
    return {name: Quantity(str(found[name])).value for name in RESOURCE_NAMES if name in found}


def memory_ratio(resources: ResourceRequirements) -> Decimal:
    """Return the ratio of the memory request to the limit. 1 without a limit."""
    request, limit = requested(resources).get("memory"), resources.limits.get("memory")
    if request is None or limit is None:
        return Decimal(1)
    return request / Quantity(str(limit)).value


def scaled(
    declared: ResourceRequirements, applied: AppliedResources | None, settings: VerticalScalingSettings
) -> ResourceRequirements:
    """Return the resources with an applied recommendation. Limits keep their ratio to the requests.

    Changed `declared` resources supersede it.
    """
    if applied is None or applied.base != base_of(declared):
        return declared
    before = requested(declared)
    targets: Amounts = {
        name: within(settings, name, Quantity(applied.requests[name]).value)
        for name in RESOURCE_NAMES
        if name in applied.requests and before.get(name)
    }

    def change(amounts: Mapping[str, int | str]) -> FrozenDict[str, int | str]:
        changed = {
            name: format_amount(name, Quantity(str(amounts[name])).value / before[name] * target)
            for name, target in targets.items()
            if name in amounts
        }
        return FrozenDict[str, int | str]({**amounts, **changed})

    return msgspec.structs.replace(declared, requests=change(declared.requests), limits=change(declared.limits))


def base_of(declared: ResourceRequirements) -> str:
    """Hash of the declared resources."""
    return content_hash(to_builtins(declared))


def within(settings: VerticalScalingSettings, name: ResourceName, amount: Decimal) -> Decimal:
    """Return the amount within `minAllowed` and `maxAllowed`."""
    least, most = _bound(settings.min_allowed, name), _bound(settings.max_allowed, name)
    amount = amount if least is None else max(amount, least.value)
    return amount if most is None else min(amount, most.value)


def is_limited(settings: VerticalScalingSettings, name: ResourceName, amount: Decimal) -> bool:
    """Return True if `maxAllowed` is less than the amount."""
    most = _bound(settings.max_allowed, name)
    return most is not None and most.value < amount


def format_amount(name: ResourceName, amount: Decimal) -> str:
    """Return a quantity: CPU in thousandths of a core, memory in MiB. A part of a unit is rounded up."""
    if name == "cpu":
        return f"{math.ceil(amount * 1000)}m"
    return f"{math.ceil(amount / _MIB)}Mi"


def _bound(amounts: ComputeAmounts, name: ResourceName) -> Quantity | None:
    return amounts.cpu if name == "cpu" else amounts.memory
