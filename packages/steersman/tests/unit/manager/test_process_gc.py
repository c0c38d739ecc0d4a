"""Garbage collector settings of a manager that handles signals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import framework_support

PROGRAM = """
import asyncio, gc, os, signal, sys
from framework_support.widget import Widget
from steersman.controller import RequestReconciler, Request, Result
from steersman.manager import Manager, ManagerOptions
from steersman.observability.runtime import Runtime
from framework_support.controller_env import ControllerEnv

class PrintingReconciler(RequestReconciler[Widget]):
    async def reconcile(self, request: Request) -> Result:
        print("works", gc.get_threshold() == before, gc.get_freeze_count() > 0)
        if sys.argv[1] == "run":
            manager.stop()
        else:
            os.kill(os.getpid(), signal.SIGTERM)
        return Result()

class Early:
    def __call__(self, _):
        print("lists", gc.get_threshold() == before)
        return False

async def main() -> None:
    global manager, before
    before = gc.get_threshold()
    world = ControllerEnv(Runtime())
    world.create_widgets("a")
    world.server.fail_next(Early(), 500)
    manager = Manager(world.server, ManagerOptions(), world.runtime)
    manager.controller(Widget).complete(PrintingReconciler)
    await getattr(manager, sys.argv[1])()
    print("ended", gc.get_threshold() == before, gc.get_freeze_count() == 0)

asyncio.run(main())
"""
SUPPORT = str(Path(framework_support.__file__).parents[1])


def run_program(method: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": SUPPORT}
    command = [sys.executable, "-c", PROGRAM, method]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=environment)
    return list(dict.fromkeys(done.stdout.splitlines()))


def test_manager_with_signal_handlers_tunes_gc() -> None:
    first, *rest = run_program("run_until_signalled")
    assert first == "lists True"
    assert rest[-2:] == ["works False True", "ended True True"]


def test_manager_within_program_does_not_tune_gc() -> None:
    assert run_program("run") == ["lists True", "works True False", "ended True True"]
