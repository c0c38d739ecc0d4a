"""Sizes of volumes: what they reached, and the rule that follows."""

from __future__ import annotations

from steersman.meta import FrozenStruct, Quantity, Rule


class StorageStatus(FrozenStruct):
    """Observed sizes of the volumes."""

    data_capacity: Quantity | None = None
    """Largest capacity of a data volume."""
    wal_capacity: Quantity | None = None
    """Largest capacity of a WAL volume."""


def size_rule(spec_field: str, capacity_field: str) -> Rule:
    """Rule that a size is not lowered below what volumes have."""

    def at_least(size: str) -> str:
        return f"quantity(string(self.spec.{spec_field}.size)).compareTo(quantity(string({size}))) >= 0"

    old, capacity = f"oldSelf.spec.{spec_field}", f"self.status.storage.{capacity_field}"
    reached = f"has(self.status) && has(self.status.storage) && has({capacity}) && {at_least(capacity)}"
    return Rule(
        rule=f"!has(self.spec.{spec_field}) || !has({old}) || {at_least(f'{old}.size')} || ({reached})",
        message=f"the size cannot be lowered below status.storage.{capacity_field}: volumes never shrink",
        field_path=f".spec.{spec_field}.size",
    )
