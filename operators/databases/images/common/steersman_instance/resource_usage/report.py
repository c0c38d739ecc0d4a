"""Thread that reports the use of resources on the pod.

It runs in the server's container, which alone sees the control group of the server. The operator records the reports
hourly, and recommends CPU and memory from them.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steersman_pod.api_client import ApiUnavailable

from ..cgroup import used_memory, used_seconds
from ..paths import PATHS
from ..pod_annotation import PodAnnotation
from .meter import UsageMeter, UsageSample
from .present import USAGE_FILE, UsageFile

ANNOTATION = "databases.steersman.dev/resource-usage"
SAMPLE_SECONDS = 10.0
REPORT_SECONDS = 300.0
"""Interval of reports. The operator waits for the last one of an hour."""


@dataclass(slots=True)
class UsageReporter:
    """Samples the use, and reports it periodically.

    Args:
        write: stores the annotation; raises ApiUnavailable.
        sample: returns the present use.
    """

    write: Callable[[str], None]
    sample: Callable[[], UsageSample]
    meter: UsageMeter = field(default_factory=UsageMeter)
    _report_at: float | None = None

    def step(self) -> None:
        """Take a sample, and report if it is time. Raises ApiUnavailable; the next step tries again."""
        sample = self.sample()
        self.meter.add(sample)
        if self._report_at is None or abs(self._report_at - sample.at) > REPORT_SECONDS:
            self._report_at = sample.at + REPORT_SECONDS
        elif sample.at >= self._report_at:
            self.write(json.dumps({"hours": self.meter.report()}))
            self._report_at = sample.at + REPORT_SECONDS

    def run(self, stop: threading.Event) -> None:
        """Report until `stop` is set. A failure is logged once."""
        failed = ""
        while not stop.wait(SAMPLE_SECONDS):
            try:
                self.step()
                failed = ""
            except (ApiUnavailable, OSError) as error:
                if str(error) != failed:
                    sys.stderr.write(f"resource usage: {error}\n")
                failed = str(error)


def sample_of(volume: Path) -> UsageSample:
    """Return the present use of this container, and of the volume."""
    found = os.statvfs(volume)
    return UsageSample(
        at=time.time(),
        cpu_seconds=used_seconds(),
        memory=used_memory(),
        disk=(found.f_blocks - found.f_bfree) * found.f_frsize,
    )


def start(volume: Path, environment: Mapping[str, str]) -> None:
    """Report in a thread that ends with the process."""
    present = UsageFile(PATHS.run / USAGE_FILE)
    reporter = UsageReporter(
        write=PodAnnotation(ANNOTATION, environment).write, sample=lambda: present.publish(sample_of(volume))
    )
    threading.Thread(target=reporter.run, args=(threading.Event(),), name="resource-usage", daemon=True).start()
