"""Logs as machines and as people read them; each in a process of its own, since logging is configured once."""

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
log = get_logger("sea")
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


def test_one_json_object_a_line() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged("info", "json").splitlines()]
    drifting, elsewhere, failed = lines
    assert (drifting["event"], drifting["level"], drifting["component"]) == ("drifting", "info", "sea")
    assert (drifting["knots"], drifting["name"], drifting["reconcile_id"]) == (3, "a", "r1")
    assert (drifting["trace"], drifting["component"]) == ("t1", "sea")
    assert drifting["timestamp"].endswith("Z")
    assert (elsewhere["event"], elsewhere["component"]) == ("from elsewhere %d", "library")
    assert (elsewhere["name"], elsewhere["reconcile_id"]) == ("a", "r1")
    assert "RuntimeError: broken" in failed["exception"]
    assert "hunter222" not in failed["exception"]


def test_text_for_people_shows_no_variables() -> None:
    text = logged("debug", "console")
    assert "too quiet" in text
    assert "drifting" in text
    assert "RuntimeError: broken" in text
    assert "hunter222" not in text
    assert "\x1b" not in text  # no colours into a pipe


@pytest.mark.parametrize(("level", "count"), [("warning", 2), ("error", 1)])
def test_levels(level: str, count: int) -> None:
    assert len(logged(level, "json").splitlines()) == count
