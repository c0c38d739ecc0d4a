"""Disruptions that wait for a maintenance window. Pure, derived again in each reconcile."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from steersman.meta import Object
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings, PendingDisruption, maintenance_until
from steersman_databases.cluster.rules import minor_versions, rolling_update
from steersman_databases.cluster.state import ClusterState
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.outcome import truncated
from steersman_databases.core.time_zones import InvalidTimeZone
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.features.maintenance.windows import is_open, next_start
from steersman_databases.features.parameters import model as parameters_model

_UPGRADE_REASONS = frozenset(
    {"Current", "MinorUpgradeAvailable", "MinorVersionSkew", "Upgrading", "WaitingForRing", "WaitingForWindow"}
)
"""Reasons of UpToDate that a waiting recreation replaces."""
_RESTART_REASONS = frozenset({"LoweringParameter", "RestartPending"})
"""Reasons of ParametersApplied that a waiting restart replaces."""


@dataclass(frozen=True, slots=True)
class MaintenanceSchedule:
    """Windows of a cluster at one moment.

    Attributes:
        waits: unrequested disruptions wait now.
        next_window: start of the next window. None without windows.
        error: why the windows cannot be evaluated, or "". Then all unrequested disruptions wait.
    """

    waits: bool = False
    next_window: datetime | None = None
    error: str = ""

    @property
    def has_windows(self) -> bool:
        """Return True if windows are declared."""
        return self.next_window is not None or bool(self.error)

    @property
    def clause(self) -> str:
        """Clause for messages: the awaited window."""
        if self.next_window is None:
            return f"waiting for a maintenance window, but {self.error}"
        return f"waiting for the maintenance window at {self.next_window:%Y-%m-%d %H:%M} UTC"


@dataclass(slots=True, kw_only=True)
class Maintenance:
    """Schedule of a cluster, and the disruptions that a reconcile found waiting.

    Attributes:
        turn: why a minor upgrade waits for other clusters, or "".
    """

    schedule: MaintenanceSchedule = MaintenanceSchedule()
    turn: str = ""
    pending: list[PendingDisruption] = field(default_factory=list[PendingDisruption])

    @property
    def status(self) -> Mapping[str, Any]:
        """Fields of the cluster's status."""
        return {"next_window": self.schedule.next_window, "pending_disruptions": tuple(self.pending)}

    def apply_to(self, cluster: DeclaredCluster) -> DeclaredCluster:
        """Return the cluster with what waits now."""
        waits = self.schedule.waits
        return replace(
            cluster,
            waits_for_window=waits,
            has_maintenance_windows=self.schedule.has_windows,
            holds_minor_upgrade=waits or bool(self.turn),
        )

    def report(self, conditions: ConditionSet) -> None:
        """Report the pending disruptions in UpToDate and ParametersApplied.

        Reasons that need a user's action stay.
        """
        recreations = [one for one in self.pending if one.type == "Recreate"]
        upgrade = conditions.updates.get("UpToDate")
        if recreations and (upgrade is None or upgrade.reason in _UPGRADE_REASONS):
            reason = "WaitingForWindow" if self.schedule.waits else "WaitingForRing"
            conditions.set("UpToDate", False, reason, self._message(recreations))
        restarts = [one for one in self.pending if one.type == "Restart"]
        parameters = conditions.updates.get("ParametersApplied")
        if restarts and parameters is not None and parameters.reason in _RESTART_REASONS:
            conditions.set("ParametersApplied", False, "WaitingForWindow", self._message(restarts))

    def _message(self, pending: Iterable[PendingDisruption]) -> str:
        names = dict[str, list[str]]()
        for one in pending:
            names.setdefault(one.reason, []).append(one.instance)
        causes = "; ".join(f"{', '.join(found)}: {reason}" for reason, found in names.items())
        return f"{causes}; {self.schedule.clause if self.schedule.waits else self.turn}"


def schedule_of(settings: MaintenanceSettings, cluster: Object, now: datetime) -> MaintenanceSchedule:
    """Return the schedule at ``now``."""
    if not settings.windows:
        return MaintenanceSchedule()
    until = maintenance_until(cluster)
    is_requested = until is not None and now < until
    try:
        return MaintenanceSchedule(
            waits=not is_requested and not is_open(settings, now), next_window=next_start(settings, now)
        )
    except InvalidTimeZone as error:
        return MaintenanceSchedule(waits=not is_requested, error=f"spec.maintenance.timeZone: {error}")


def pending_disruptions(cluster: DeclaredCluster, state: ClusterState) -> Sequence[PendingDisruption]:
    """Return the disruptions of instances that begin when nothing holds them."""
    if not cluster.holds_minor_upgrade:
        return ()
    at_once = replace(cluster, waits_for_window=False, holds_minor_upgrade=False)
    found = list[PendingDisruption]()
    for instance in state.instances:
        name = cluster.names.instance(instance.ordinal)
        if instance.pod is None or instance.fenced:
            continue
        image = rolling_update.target_image(at_once, state, instance)
        if image != rolling_update.target_image(cluster, state, instance):
            found.append(PendingDisruption(instance=name, type="Recreate", reason=f"image {image} is available"))
        elif minor_versions.should_recreate(at_once, state, instance):
            found.append(PendingDisruption(instance=name, type="Recreate", reason=rolling_update.OLDER_THAN_ANOTHER))
        elif rolling_update.is_outdated(cluster, state, instance):
            # A requested recreation applies the parameters, too.
            continue
        elif waiting := parameters_model.waiting_settings(cluster, state, instance):
            reason = f"a restart applies {', '.join(waiting)}"
            found.append(PendingDisruption(instance=name, type="Restart", reason=truncated(reason)))
    return found
