"""Maintenance windows of clusters, and the disruptions that wait for one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from steersman.meta import Duration, Field, FrozenStruct, Object, Rule
from steersman_databases.api.group import GROUP

Ring = Literal["Early", "Default", "Late"]
Day = Literal["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]

MAINTENANCE_UNTIL_ANNOTATION = f"{GROUP}/maintenance-until"
"""On a cluster: time in RFC 3339. Until then, disruptions do not wait for a window."""


class MaintenanceWindow(FrozenStruct):
    """A weekly maintenance window."""

    days: Annotated[tuple[Day, ...], Field(max_items=7, list_type="set")] = ()
    """Days of the week on which it starts, such as [Sat, Sun]. Defaults to every day."""
    start: Annotated[
        str,
        Field(
            max_length=5,
            rules=(
                Rule(
                    rule="self.matches('^([01][0-9]|2[0-3]):[0-5][0-9]$')",
                    message='must be hours and minutes, such as "02:30"',
                ),
            ),
        ),
    ]
    """Start in ``timeZone``, such as "02:30". A time that daylight saving time skips is later by what the clocks
    skip. Of a time that occurs twice, the first one counts."""
    duration: Annotated[
        Duration,
        Field(
            max_length=32,
            rules=(
                Rule(
                    rule="duration(self) >= duration('10m') && duration(self) <= duration('24h')",
                    message="duration must be from 10m to 24h",
                ),
            ),
        ),
    ]
    """Length of the window, from 10m to 24h."""


class MaintenanceSettings(FrozenStruct):
    """Time of unrequested disruptions."""

    windows: Annotated[tuple[MaintenanceWindow, ...], Field(max_items=16, list_type="atomic")] = ()
    """Windows in which unrequested disruptions begin. Without windows they begin at once."""
    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern="^[-+_/A-Za-z0-9]+$")] = "UTC"
    """Time zone of the windows, such as Europe/Berlin."""
    minor_upgrades: Literal["OnRequest", "Automatic"] = "OnRequest"
    """Automatic rolls out a newer image of the operator for this version. With ``imagePullPolicy`` Always, it also
    rolls out a newer image of the same tag that another instance already runs."""

    ring: Ring = "Default"
    """Order of automatic minor upgrades: Early, Default, then Late. A cluster waits until those of earlier rings, of
    the same kind and version, are upgraded and Ready."""


class PendingDisruption(FrozenStruct):
    """A disruption that waits for a maintenance window or for other clusters."""

    instance: str
    """Name of the instance, read replica or pooler."""
    type: Literal["Restart", "Recreate"]
    """Restart of the server, or recreation of the pod. That of the primary includes a switchover."""
    reason: str
    """Cause of the disruption."""


NEWER_TEMPLATE = "this version of the operator has another pod template"
"""Reason of disruptions of read replicas and poolers."""


def maintenance_until(cluster: Object) -> datetime | None:
    """Return the end of the window that an annotation opens.

    None without a valid one.
    """
    text = cluster.metadata.annotations.get(MAINTENANCE_UNTIL_ANNOTATION, "").strip()
    try:
        until = datetime.fromisoformat(text)
        # A time near the end of the calendar may have no UTC.
        return until.astimezone(UTC) if until.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
