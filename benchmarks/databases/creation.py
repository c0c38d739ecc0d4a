"""Time from ``kubectl apply`` to Ready, and from deletion to cleanup."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.databases.scenarios import DatabaseBenchmark
from benchmarks.measurement import Measurement
from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest

SIZES = (1, 3)
_TIMEOUT_SECONDS = 300


def measure(bench: DatabaseBenchmark, title: str) -> Iterator[Measurement]:
    """Measure one and three instances, each in an existing namespace."""
    with bench.temporary_namespace("creation") as place:
        for number in range(bench.runs):
            for instances in SIZES:
                peer = f"{instances} instance{'s' if instances > 1 else ''}"
                cluster = ClusterUnderTest(place, f"run-{number}-{instances}", {**SMALL_SPEC, "instances": instances})
                begun = time.monotonic()
                cluster.apply()
                # Use a watch, because polling would take CPU time from the servers under test.
                wait = ("wait", f"postgresqlcluster/{cluster.name}", "--for=jsonpath={.status.phase}=Ready")
                place.kubectl(*wait, f"--timeout={_TIMEOUT_SECONDS}s", seconds=_TIMEOUT_SECONDS + 10)
                ready = time.monotonic() - begun
                cluster.wait_ready()
                begun = time.monotonic()
                cluster.delete()
                deleted_after = time.monotonic() - begun
                yield Measurement(title, peer, "apply to Ready", ready, "s")
                yield Measurement(title, peer, "delete to gone", deleted_after, "s")
                bench.print_line(f"{peer}: Ready after {ready:.1f} s, deleted after {deleted_after:.1f} s")
