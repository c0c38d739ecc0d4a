"""Plain numbers that Prometheus' client makes text of when somebody scrapes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pytest

from steersman.observability.instruments import Counter, Gauge, Histogram

if TYPE_CHECKING:
    from prometheus_client.core import Metric


def samples(families: Iterable[Metric]) -> dict[str, float]:
    return {
        f"{s.name}{sorted(s.labels.items()) if s.labels else ''}": s.value
        for family in families
        for s in family.samples
    }


def test_a_counter() -> None:
    plain, labelled = Counter("fish", "Fish caught."), Counter("nets", "Nets cast.", ["orders"])
    plain.inc()
    plain.inc(2)
    labelled.labels("north").inc()
    assert samples(plain.collect()) == {"fish_total": 3}
    assert samples(labelled.collect()) == {"nets_total[('orders', 'north')]": 1}
    with pytest.raises(ValueError, match="labels"):
        labelled.inc()


def test_a_gauge() -> None:
    depth = Gauge("depth", "Metres.")
    assert samples(depth.collect()) == {"depth": 0}
    depth.set(7)
    assert samples(depth.collect()) == {"depth": 7}


def test_a_histogram() -> None:
    waits = Histogram("waits", "Seconds.", buckets=(1.0, 10.0))
    for value in (0.5, 1.0, 5.0, 50.0):
        waits.observe(value)
    assert samples(waits.collect()) == {
        "waits_bucket[('le', '1.0')]": 2,
        "waits_bucket[('le', '10.0')]": 3,
        "waits_bucket[('le', '+Inf')]": 4,
        "waits_count": 4,
        "waits_sum": 56.5,
    }


def test_metrics_without_scrape_skip_prometheus_import() -> None:
    program = "import sys, steersman.manager; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
