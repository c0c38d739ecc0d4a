"""Check the CPU time of unit tests in a junit report: ``python scripts/check_durations.py build/junit-unit.xml``.

A unit test that takes more than 2 seconds of CPU time belongs to the integration tests or to ``make simulate``. The
nightly workflow runs this check; a busy machine changes wall time, but hardly CPU time.
"""

from __future__ import annotations

import argparse
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

LIMIT_SECONDS = 2.0


def cpu_seconds(report: Path) -> Iterator[tuple[str, float]]:
    """Yield the name of each test and its CPU time in seconds."""
    for case in ElementTree.parse(report).iter("testcase"):  # noqa: S314 our own report
        for item in case.iter("property"):
            if item.get("name") == "cpu_seconds":
                yield f"{case.get('classname')}::{case.get('name')}", float(item.get("value", "0"))


def main() -> None:
    """Print the tests above the limit, slowest first.

    Exits with 1 if there are any.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="junit XML file that pytest wrote")
    parser.add_argument("--limit", type=float, default=LIMIT_SECONDS, help="CPU seconds. Defaults to %(default)s")
    arguments = parser.parse_args()
    slow = sorted((seconds, name) for name, seconds in cpu_seconds(arguments.report) if seconds > arguments.limit)
    for seconds, name in reversed(slow):
        sys.stderr.write(f"{seconds:7.1f} s  {name}\n")
    sys.exit(1 if slow else 0)


if __name__ == "__main__":
    main()
