"""Runs the command ``steersman`` in processes forked from a preloaded one.

A fresh interpreter spends more time on imports than on most commands.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
import traceback
from functools import cache
from pathlib import Path
from typing import Any

_PRELOADED = ("copier", "steersman_cli", "steersman.manager", "steersman_cli.packaging", "steersman_manifests.rbac")
_SERIALIZED = threading.Lock()


def run_steersman(root: Path, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run ``python -m steersman_cli`` in ``root`` and return the completed process."""
    with tempfile.TemporaryDirectory() as place:
        said, complained = Path(place, "out"), Path(place, "err")
        asked = {"root": str(root), "arguments": arguments, "env": env, "out": str(said), "err": str(complained)}
        code = _request_succeeded(json.dumps(asked))
        return subprocess.CompletedProcess(arguments, code, said.read_text(), complained.read_text())


def _request_succeeded(request: str) -> int:
    with _SERIALIZED:
        source = _source()
        assert source.stdin is not None and source.stdout is not None
        try:
            source.stdin.write(f"{request}\n")
            source.stdin.flush()
            return int(source.stdout.readline())
        except BaseException:
            # After a test timeout, the late response would be mistaken for the next one.
            source.kill()
            source.wait()
            _source.cache_clear()
            raise


@cache
def _source() -> subprocess.Popen[str]:
    """The preloaded process. It ends when its standard input is closed."""
    places = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, __file__],
        env={**os.environ, "PYTHONPATH": places},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _serve() -> None:
    for module in _PRELOADED:
        __import__(module)
    responses = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            responses.close()
            _run_forked(json.loads(line))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        responses.write(f"{code}\n")
        responses.flush()


def _run_forked(asked: dict[str, Any]) -> None:
    """Run the command with the process state of a fresh interpreter."""
    os.chdir(asked["root"])
    for descriptor, name in enumerate((os.devnull, asked["out"], asked["err"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT, 0o600), descriptor)
    os.environ.clear()
    os.environ.update(asked["env"])
    sys.path[:] = [asked["root"], *asked["env"]["PYTHONPATH"].split(os.pathsep)]
    sys.argv = ["steersman", *asked["arguments"]]
    code: Any = 0
    try:
        runpy.run_module("steersman_cli", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    if not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve()
