"""Failures that the operator corrects without a person."""

from __future__ import annotations

from typing import Annotated

from steersman.meta import Duration, Field, FrozenStruct, Rule
from steersman_databases.api.autopilot.automation import AutomationMode


class CrashLoopSettings(FrozenStruct):
    """Crash loops after a change of parameters."""

    mode: AutomationMode = "Automatic"
    """Automatic restores the previous values after repeated crashes. Recommend only names the parameters. Disabled
    does nothing."""


class InactiveSlotSettings(FrozenStruct):
    """Replication slots without a client that fill a volume."""

    mode: AutomationMode = "Recommend"
    """Automatic drops an undeclared slot before it fills the volume. Its client must copy its data again. Recommend
    only names the slot. Disabled does nothing."""


class WraparoundSettings(FrozenStruct):
    """Prevention of transaction ID wraparound."""

    mode: AutomationMode = "Automatic"
    """Automatic vacuums the oldest tables at an age of a billion transactions. Recommend only names the oldest
    database and what prevents the cleanup. Disabled does nothing."""
    end_transactions_after: (
        Annotated[
            Duration,
            Field(
                max_length=32,
                rules=(
                    Rule(
                        rule="duration(self) >= duration('10m') && duration(self) <= duration('720h')",
                        message="must be from 10m to 720h",
                    ),
                ),
            ),
        ]
        | None
    ) = None
    """Duration after which the session of a transaction may be ended. It must prevent the cleanup of IDs that are
    older than a billion transactions. Defaults to never."""


class StuckReplicaSettings(FrozenStruct):
    """Replicas that stream and receive nothing."""

    mode: AutomationMode = "Automatic"
    """Automatic ends the replica's WAL receiver, then restarts its server. Recommend only names the replica. Disabled
    does nothing."""


class HealingSettings(FrozenStruct):
    """Failures that the operator corrects."""

    crash_loops: CrashLoopSettings = CrashLoopSettings()
    """Crash loops after a change of parameters."""


class PostgreSQLHealingSettings(HealingSettings):
    """Failures that the operator corrects."""

    inactive_slots: InactiveSlotSettings = InactiveSlotSettings()
    """Replication slots without a client that fill a volume."""
    stuck_replicas: StuckReplicaSettings = StuckReplicaSettings()
    """Replicas that stream and receive nothing."""
    wraparound: WraparoundSettings = WraparoundSettings()
    """Prevention of transaction ID wraparound."""
