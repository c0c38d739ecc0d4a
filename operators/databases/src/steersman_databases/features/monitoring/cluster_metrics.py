"""Metrics of the operator about clusters, from their status."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from steersman.meta import ObjectKey
from steersman_databases.api.cluster_common import ClusterPhase, ClusterSpec, ClusterStatus
from steersman_databases.features.maintenance.fleet import upgrade_state

_CLUSTER = ("namespace", "dbcluster", "kind")
FAMILIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "steersman_cluster_condition": (
        "1 if the condition is True, 0 if it is False, -1 if it is Unknown.",
        (*_CLUSTER, "type", "reason"),
    ),
    "steersman_cluster_phase": ("1 for the phase of the cluster, 0 for all others.", (*_CLUSTER, "phase")),
    "steersman_cluster_instances": ("Declared instances.", _CLUSTER),
    "steersman_cluster_ready_instances": ("Instances that accept connections.", _CLUSTER),
    "steersman_cluster_member_ready": ("1 if the instance accepts connections, else 0.", (*_CLUSTER, "member")),
    "steersman_cluster_member_primary": ("1 if the instance is the primary, else 0.", (*_CLUSTER, "member")),
    "steersman_cluster_minor_upgrade": (
        "1 for the state of the automatic minor upgrade: Waiting, Upgrading, NotReady (after it) or Current.",
        (*_CLUSTER, "ring", "state"),
    ),
    "steersman_alert_disabled": ("1 for an alert that spec.monitoring disables.", (*_CLUSTER, "alert")),
}
_CONDITION_VALUES = {"True": 1.0, "False": 0.0}


@dataclass(frozen=True, slots=True)
class _Observed:
    spec: ClusterSpec
    status: ClusterStatus


class ClusterMetrics(Collector):
    """The clusters that a manager has reconciled. One for a registry: see `cluster_metrics`."""

    def __init__(self) -> None:
        self._clusters: Mapping[tuple[str, ObjectKey], _Observed] = {}

    def observe(self, kind: str, cluster: ObjectKey, spec: ClusterSpec, status: ClusterStatus) -> None:
        """Replace the values of a cluster."""
        # A scrape in another thread may iterate over the previous mapping.
        self._clusters = {**self._clusters, (kind, cluster): _Observed(spec, status)}

    def forget(self, kind: str, cluster: ObjectKey) -> None:
        """Remove the series of a deleted cluster."""
        self._clusters = {key: value for key, value in self._clusters.items() if key != (kind, cluster)}

    def collect(self) -> Iterable[Metric]:
        """Yield the families of one scrape."""
        families = {
            name: GaugeMetricFamily(name, documentation, labels=labels)
            for name, (documentation, labels) in FAMILIES.items()
        }
        for (kind, key), one in self._clusters.items():
            cluster = (key.namespace, key.name, kind)
            for name, labels, value in _samples(one):
                families[name].add_metric((*cluster, *labels), value)
        yield from families.values()


def _samples(one: _Observed) -> Iterable[tuple[str, tuple[str, ...], float]]:
    for condition in one.status.conditions:
        value = _CONDITION_VALUES.get(condition.status, -1.0)
        yield "steersman_cluster_condition", (condition.type, condition.reason), value
    for phase in get_args(ClusterPhase):
        yield "steersman_cluster_phase", (phase,), float(phase == one.status.phase)
    # A hibernated cluster is meant to have none.
    yield "steersman_cluster_instances", (), 0 if one.spec.hibernated else one.spec.instances
    yield "steersman_cluster_ready_instances", (), one.status.ready_instances or 0
    for member in one.status.members:
        yield "steersman_cluster_member_ready", (member.name,), float(member.ready or False)
        yield "steersman_cluster_member_primary", (member.name,), float(member.role == "Primary")
    if (state := upgrade_state(one.spec, one.status)) is not None:
        yield "steersman_cluster_minor_upgrade", (one.spec.maintenance.ring, state), 1
    for alert in one.spec.monitoring.disabled_alerts:
        yield "steersman_alert_disabled", (alert,), 1


@cache
def cluster_metrics(registry: CollectorRegistry) -> ClusterMetrics:
    """Return the metrics in ``registry``: controllers of both engines share them."""
    metrics = ClusterMetrics()
    registry.register(metrics)
    return metrics
