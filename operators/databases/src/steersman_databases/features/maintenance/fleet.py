"""Order of automatic minor upgrades among clusters. Pure, derived from their status.

A cluster counts from the moment at which its status says that its window is open, so all clusters see the same queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from steersman.meta import find_condition, is_true
from steersman_databases.api import Cluster
from steersman_databases.api.autopilot.maintenance import Ring
from steersman_databases.api.cluster_common import ClusterSpec, ClusterStatus
from steersman_databases.api.group import is_paused

UpgradeState = Literal["Waiting", "Upgrading", "NotReady", "Current"]
"""State of a cluster in the rollout of an image. NotReady: after its upgrade."""

_RINGS = get_args(Ring)
_STATES: dict[str, UpgradeState] = {
    "WaitingForWindow": "Waiting",
    "WaitingForRing": "Waiting",
    "Upgrading": "Upgrading",
    "Current": "Current",
}


def upgrade_state(spec: ClusterSpec, status: ClusterStatus) -> UpgradeState | None:
    """Return the reported state, or None without automatic upgrades."""
    condition = find_condition(status.conditions, "UpToDate")
    if spec.image is not None or spec.maintenance.minor_upgrades != "Automatic" or spec.hibernated:
        return None
    state = None if condition is None else _STATES.get(condition.reason)
    return "NotReady" if state == "Current" and not is_true(status.conditions, "Ready") else state


def turn_of(cluster: Cluster, fleet: Iterable[Cluster], image: str, limit: int) -> str:
    """Return why the minor upgrade of ``cluster`` waits for others, or "".

    Args:
        fleet: clusters of its kind.
        image: the operator's image for its version.
        limit: clusters that may be in the upgrade, or not Ready after it, at the same time.
    """
    others = [each for each in fleet if each.key != cluster.key and _takes_part(each, cluster)]
    if not others:
        return ""
    if _reason(cluster) != "Upgrading" and not is_true(cluster.status.conditions, "Ready"):
        return "waiting for this cluster to be Ready"
    unfinished = [each for each in others if _state(each, image) in ("Upgrading", "NotReady")]
    waiting = [
        each for each in others if _state(each, image) == "Waiting" and is_true(each.status.conditions, "Ready")
    ]
    if earlier := [each for each in waiting if _ring(each) < _ring(cluster)]:
        return f"waiting for {_names(earlier)} in an earlier ring"
    if len(unfinished) >= limit:
        return f"waiting for {_names(unfinished)} to be Ready after the upgrade"
    first = [each for each in waiting if _reason(each) == "WaitingForRing" and _order(each) < _order(cluster)]
    if len(unfinished) + len(first) >= limit:
        return f"waiting for {_names(first)} to be upgraded first"
    # Others may have decided without knowing of this cluster.
    is_known = _reason(cluster) in ("WaitingForRing", "Upgrading")
    return "" if is_known else "waiting for its turn"


def _takes_part(one: Cluster, cluster: Cluster) -> bool:
    if one.spec.version != cluster.spec.version or one.metadata.deletion_timestamp is not None or is_paused(one):
        return False
    return bool(one.status.version) and upgrade_state(one.spec, one.status) is not None


def _state(cluster: Cluster, image: str) -> UpgradeState | None:
    """Return the state. A status may be older than the operator's image."""
    state = upgrade_state(cluster.spec, cluster.status)
    return "Waiting" if state in ("Current", "NotReady") and cluster.status.image != image else state


def _reason(cluster: Cluster) -> str:
    condition = find_condition(cluster.status.conditions, "UpToDate")
    return "" if condition is None else condition.reason


def _ring(cluster: Cluster) -> int:
    return _RINGS.index(cluster.spec.maintenance.ring)


def _order(cluster: Cluster) -> tuple[int, str]:
    return _ring(cluster), str(cluster.key)


def _names(clusters: Sequence[Cluster]) -> str:
    first = min(clusters, key=_order)
    others = f" and {len(clusters) - 1} more" if len(clusters) > 1 else ""
    return f"cluster {first.key}{others}"
