"""Log lines during a reconcile name the object, whichever logger is used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import framework_support

PROGRAM = """
import asyncio, logging, sys
from framework_support.widget import Widget
from steersman.controller import RequestReconciler, Request, Result
from steersman.manager import Manager, ManagerOptions
from steersman.observability.logging import configure_logging, get_logger
from steersman_testing import run_virtual
from framework_support.controller_env import ControllerEnv

class LoggingReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: Request) -> Result:
        password = "hunter" + "2" * 3
        self.log.info("of the reconciler", count=3)
        get_logger("else").info("of another logger")
        logging.getLogger("library").warning("of a library")
        await asyncio.create_task(self.log_in_task())
        raise RuntimeError("scripted")

    async def log_in_task(self) -> None:
        logging.getLogger("library").error("of a task")

async def main() -> None:
    world = ControllerEnv()
    world.create_widgets("a")
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    manager.controller(Widget).complete(LoggingReconciler)
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(0.004)
    manager.stop()
    await running

configure_logging("info", sys.argv[1])
run_virtual(main())
"""

EVENTS = ["of the reconciler", "of another logger", "of a library", "of a task", "reconcile failed"]
SUPPORT = str(Path(framework_support.__file__).parents[1])


def logged(output: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": SUPPORT}
    command = [sys.executable, "-c", PROGRAM, output]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    return done.stderr.splitlines()


def test_json_log_lines_name_the_object() -> None:
    lines: list[dict[str, Any]] = [json.loads(line) for line in logged("json")]
    lines_by_event = {line["event"]: line for line in lines if line["event"] in EVENTS}
    assert list(lines_by_event) == EVENTS
    identity = ("controller", "namespace", "name")
    assert {tuple(line[field] for field in identity) for line in lines_by_event.values()} == {
        ("widget", "orders", "a")
    }
    assert len({line["reconcile_id"] for line in lines_by_event.values()}) == 1
    assert "RuntimeError: scripted" in lines_by_event["reconcile failed"]["exception"]
    # Lines outside of a reconcile have no object.
    assert [line for line in lines if line["event"] == "cache synced" and "name" in line] == []
    assert "hunter222" not in str(lines)


def test_console_log_lines_name_the_object() -> None:
    lines = logged("console")
    for event in EVENTS:
        (line,) = [line for line in lines if event in line]
        for field in ("controller=widget", "namespace=orders", "name=a", "reconcile_id="):
            assert field in line
    assert "hunter222" not in "".join(lines)
