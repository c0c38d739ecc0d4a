"""Checks of resource requirements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import Quantity
from steersman.webhook import FieldError


def check_resources(field: str, resources: ResourceRequirements | None) -> Iterator[FieldError]:
    """Yield an error for each request above its limit."""
    if resources is None:
        return
    requests, limits = _quantities(resources.requests), _quantities(resources.limits)
    for name, desired in requests.items():
        if name in limits and desired.value > limits[name].value:
            message = f"{desired} is more than the limit of {limits[name]}: raise the limit, or request less"
            yield FieldError(f"{field}.requests[{name}]", message)


def _quantities(declared: Mapping[str, int | str]) -> dict[str, Quantity]:
    return {name: Quantity(str(amount)) for name, amount in declared.items()}
