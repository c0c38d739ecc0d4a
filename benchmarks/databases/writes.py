"""How long a client cannot write while a cluster changes as its operator makes it: rolling update and switchover.

One client writes 50 rows a second, through -rw and through the pooler. The gap is the longest time between two
acknowledged writes, lost is what was acknowledged and is not there afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.databases.scenarios import Bench
from benchmarks.measurement import Measurement
from cluster_under_test import SMALL, ClusterUnderTest, writing

INSTANCES = 3
_CALM = 5.0  # seconds of writing before a change and after everything is well again
_LIMITS = ("520Mi", "512Mi")

Change = Callable[[ClusterUnderTest, int], None]


def rolling_update(bench: Bench, title: str) -> list[Measurement]:
    """All pods are made anew, since they are to have more memory, or less."""
    return _measure(bench, title, "rolling", _resources)


def switchover(bench: Bench, title: str) -> list[Measurement]:
    """Another instance is asked to lead."""
    return _measure(bench, title, "switchover", _switch_over)


def _measure(bench: Bench, title: str, name: str, change: Change) -> list[Measurement]:
    found: list[Measurement] = []
    with bench.cluster(name, INSTANCES, pooler={"readOnly": False}) as cluster:
        place = cluster.place
        place.declare("Database", "shop", {"clusterRef": {"name": cluster.name}})
        place.wait_reason("database", "shop", "DatabaseReady")
        rollout = ("rollout", "status", f"deployment/{cluster.name}-pooler-rw", "--timeout=120s")
        place.kubectl(*rollout, seconds=130)
        ways = {"without pooler": "", "with pooler": f"{cluster.name}-pooler-rw.{place.namespace}.svc"}
        for number in range(bench.runs):
            for who, host in ways.items():
                for metric, value, unit in _run(cluster, host, lambda c, n=number * 2 + bool(host): change(c, n)):
                    bench.tell(f"{who}: {metric} {value:.2f} {unit}".rstrip())
                    found.append(Measurement(title, who, metric, value, unit))
    return found


def _run(
    cluster: ClusterUnderTest, host: str, change: Callable[[ClusterUnderTest], None]
) -> Iterator[tuple[str, float, str]]:
    with writing(cluster, "shop-app", host) as seen:
        time.sleep(_CALM)
        begun = time.monotonic()
        change(cluster)
        cluster.wait_ready()
        took = time.monotonic() - begun
        time.sleep(_CALM)
        seen.goes_on(time.time())
        yield "write gap", seen.gap, "s"
        yield "lost rows", float(seen.lost()), ""
        yield "errors of the client", float(len(seen.errors)), ""
        yield "until all is Ready", took, "s"


def _resources(cluster: ClusterUnderTest, number: int) -> None:
    resources: dict[str, Any] = SMALL["resources"]
    limits = {"memory": _LIMITS[number % len(_LIMITS)]}
    before = _uids(cluster)
    cluster.apply(resources={**resources, "limits": limits})
    cluster.until("all pods are new", lambda: not before & _uids(cluster) and len(_uids(cluster)) == INSTANCES, 600)


def _uids(cluster: ClusterUnderTest) -> set[str]:
    chosen = f"--selector=databases.steersman.dev/member-of={cluster.name}"
    return {pod["metadata"]["uid"] for pod in cluster.place.all("pods", chosen)}


def _switch_over(cluster: ClusterUnderTest, number: int) -> None:
    former = cluster.primary
    cluster.annotate("switchover", "any")
    cluster.until("another leads", lambda: cluster.primary not in ("", former), 60)
