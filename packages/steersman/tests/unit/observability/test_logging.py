"""Log formats. Each test runs a process, since logging is configured once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import logging, structlog
from steersman.observability.logging import configure_logging, get_logger, log_context
configure_logging({level!r}, {output!r})
log = get_logger("orders")
class Work:
    def log_fields(self):
        return dict(name="a", reconcile_id="r1", knots="its own")
log_context.set(Work())
structlog.contextvars.bind_contextvars(trace="t1")
log.debug("too quiet")
log.info("drifting", knots=3)
logging.getLogger("library").warning("from elsewhere %s", "%d")
def sink():
    password = "hunter" + "2" * 3
    raise RuntimeError("broken")
try:
    sink()
except RuntimeError:
    log.exception("reconcile failed")
"""


def logged(level: str, output: str) -> str:
    program = PROGRAM.format(level=level, output=output)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == ""
    return done.stderr


def test_json_logs_have_one_object_per_line() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged("info", "json").splitlines()]
    drifting, elsewhere, failed = lines
    assert (drifting["event"], drifting["level"], drifting["component"]) == ("drifting", "info", "orders")
    assert (drifting["knots"], drifting["name"], drifting["reconcile_id"]) == (3, "a", "r1")
    assert (drifting["trace"], drifting["component"]) == ("t1", "orders")
    assert drifting["timestamp"].endswith("Z")
    assert (elsewhere["event"], elsewhere["component"]) == ("from elsewhere %d", "library")
    assert (elsewhere["name"], elsewhere["reconcile_id"]) == ("a", "r1")
    assert "RuntimeError: broken" in failed["exception"]
    assert "hunter222" not in failed["exception"]


def test_console_logs_have_no_local_variables() -> None:
    text = logged("debug", "console")
    assert "too quiet" in text
    assert "drifting" in text
    assert "RuntimeError: broken" in text
    assert "hunter222" not in text
    assert "\x1b" not in text  # no colours into a pipe


@pytest.mark.parametrize(("level", "count"), [("warning", 2), ("error", 1)])
def test_log_level_filters_lines(level: str, count: int) -> None:
    assert len(logged(level, "json").splitlines()) == count


FLOOD = """
import logging
from steersman.observability.logging import configure_logging, get_logger
configure_logging({level!r}, {output!r})
import time
time.time = lambda: 1000.0
log = get_logger("orders")
for number in range(350):
    log.error("reconcile failed", number=number)
log.error("something else")
for number in range(150):
    logging.getLogger("library").warning("lost %s", number)
time.time = lambda: 1001.0
log.error("reconcile failed", number=1000)
"""


def log_flood(level: str, output: str) -> list[str]:
    program = FLOOD.format(level=level, output=output)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30)
    return done.stderr.splitlines()


def test_sampling_filter_samples_equal_events() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in log_flood("info", "json")]
    failed = [line["number"] for line in lines if line["event"] == "reconcile failed"]
    assert failed == [*range(100), 199, 299, 1000]
    assert [line["number"] for line in lines if line.get("dropped_lines") == 99] == [199, 299]
    assert [line["event"] for line in lines].count("something else") == 1
    assert len([line for line in lines if line["component"] == "library"]) == 100


@pytest.mark.parametrize(("level", "output"), [("debug", "json"), ("info", "console")])
def test_sampling_is_off_for_debug_or_console(level: str, output: str) -> None:
    assert len([line for line in log_flood(level, output) if "reconcile failed" in line]) == 351
