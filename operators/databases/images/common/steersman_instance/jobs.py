"""Programs of the operator's Jobs.

They read ``job.json`` and write one line of JSON into the termination log.

Exit code 3 means that another attempt changes nothing; the Job's pod failure policy then ends it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, cast

from .archive.errors import ArchiveError
from .archive.store_file import InvalidStoreFile, Store, load_store
from .files import find_json
from .paths import PATHS, InstancePaths

PROGRAMS: Mapping[str, Mapping[str, str]] = {
    "backup": {"postgresql": "backup.postgresql", "mysql": "backup.mysql"},
    "expire": {"postgresql": "backup.postgresql_expire", "mysql": "backup.mysql_expire"},
    "recover": {"postgresql": "recovery.postgresql", "mysql": "recovery.mysql"},
    "plan": {"postgresql": "recovery.preview", "mysql": "recovery.mysql_preview"},
    "changes": {"mysql": "binlog.changes"},
    "verify": {"postgresql": "verification.postgresql", "mysql": "verification.mysql"},
    "dump": {"postgresql": "dump.postgresql_dump", "mysql": "dump.mysql_dump"},
    "load": {"postgresql": "dump.postgresql_load", "mysql": "dump.mysql_load"},
    "check-import": {"postgresql": "dump.postgresql_check", "mysql": "dump.mysql_check"},
    "restore": {"postgresql": "restore.postgresql", "mysql": "restore.mysql"},
    "final-backup": {"postgresql": "backup.postgresql_final", "mysql": "backup.mysql_final"},
}
"""Modules by program and engine, each with ``run(job, paths) -> result``."""

FORMAT = 1
MAX_RESULT_BYTES = 3000
_MAX_TERMINATION_BYTES = 4096  # the kubelet keeps no more
MAX_MESSAGE_LENGTH = 1000
EXIT_REFUSED = 3
EXIT_TERMINATED = 143

Result = Mapping[str, object]


class JobFailed(Exception):
    """The Job failed, and another attempt may succeed.

    Args:
        reason: of a condition.
        message: one sentence for users, without secrets.
    """

    exit_code = 1

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class JobRefused(JobFailed):
    """The Job failed, and another attempt changes nothing."""

    exit_code = EXIT_REFUSED


@dataclass(frozen=True, slots=True)
class JobFields:
    """Typed access to a JSON object of ``job.json``. Unknown fields are ignored.

    Every method raises JobRefused with the field's name if the value is missing or malformed.
    """

    fields: Mapping[str, Any]
    where: str = "job.json"

    def text(self, name: str, default: str | None = None) -> str:
        """Return a string; the default if it is missing."""
        value = self.fields.get(name, default)
        if not isinstance(value, str) or len(value) > 1000:
            raise self._invalid(name, "a string")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str | None = None) -> str:
        """Return one of several strings."""
        value = self.text(name, default)
        if value not in choices:
            raise self._invalid(name, f"one of {', '.join(choices)}")
        return value

    def number(self, name: str, lowest: int, highest: int, default: int | None = None) -> int:
        """Return an integer within bounds."""
        value: Any = self.fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self._invalid(name, f"an integer from {lowest} to {highest}")
        return value

    def part(self, name: str) -> JobFields | None:
        """Return a nested object, or None if it is missing."""
        value: Any = self.fields.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._invalid(name, "an object")
        return JobFields(cast("dict[str, Any]", value), f"{self.where}: {name}")

    def parts(self, name: str, limit: int) -> list[JobFields]:
        """Return the objects of a list."""
        value: Any = self.fields.get(name, [])
        found = cast("list[Any]", value) if isinstance(value, list) else None
        if found is None or len(found) > limit or not all(isinstance(each, dict) for each in found):
            raise self._invalid(name, f"a list of at most {limit} objects")
        return [JobFields(each, f"{self.where}: {name}") for each in found]

    def _invalid(self, name: str, form: str) -> JobRefused:
        return JobRefused("InvalidJob", f"{self.where}: {name} must be {form}.")


def main(program: str, arguments: Sequence[str], paths: InstancePaths = PATHS) -> int:
    """Run a Job's program. Return its exit code."""
    parser = argparse.ArgumentParser(prog=f"steersman-instance {program}")
    parser.add_argument("--spec", required=True, type=Path, metavar="FILE", help="job.json of the operator")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _terminate)
    os.umask(0o077)
    try:
        job = JobFields(_read(options.spec))
        job.number("format", FORMAT, FORMAT)
        modules = PROGRAMS[program]
        engine = JobFields({"engine": job.text("engine").lower()}).choice("engine", list(modules))
        module = importlib.import_module(f".{modules[engine]}", __package__)
        result: Result = module.run(job, paths)
    except _Terminated:
        return _report(
            paths, _failure("Interrupted", "The pod was terminated before the Job was done."), EXIT_TERMINATED
        )
    except JobFailed as failed:
        return _report(paths, _failure(failed.reason, failed.message), failed.exit_code)
    except ArchiveError as error:
        return _report(paths, _failure(error.reason, error.message), 1)
    except InvalidStoreFile as error:
        return _report(paths, _failure("InvalidStore", f"{error}."), EXIT_REFUSED)
    except Exception as error:
        # A traceback has no values of variables, so no secrets.
        traceback.print_exc()
        return _report(paths, _failure("InternalError", f"{type(error).__name__}: see the logs of the pod."), 1)
    return _report(paths, {"ok": True, **result}, 0)


def require_store(path: Path) -> Store:
    """Return the store of a Job.

    Raises:
        InvalidStoreFile: it is malformed.
        JobRefused: there is none.
    """
    store = load_store(path)
    if store is None:
        raise JobRefused("InvalidStore", f"{path.parent.name}/{path.name} is missing, so there is no object store.")
    return store


def log(message: str) -> None:
    """Write a line to the logs of the pod."""
    sys.stderr.write(f"steersman: {message}\n")
    sys.stderr.flush()


class _Terminated(BaseException):
    """SIGTERM arrived."""


def _terminate(_signal: int, _frame: object) -> NoReturn:
    # Once is enough: cleaning up must not be interrupted.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise _Terminated


def _read(path: Path) -> Mapping[str, Any]:
    found = find_json(path)
    if found is None:
        raise JobRefused("InvalidJob", f"{path.name} is missing, too large or not a JSON object.")
    return found


def _failure(reason: str, message: str) -> Mapping[str, object]:
    return {"ok": False, "reason": reason, "message": message[:MAX_MESSAGE_LENGTH]}


def _report(paths: InstancePaths, document: Mapping[str, object], code: int) -> int:
    """Write the result to the logs and to the termination log."""
    line = json.dumps(document)
    if len(line) > MAX_RESULT_BYTES and "expired" in document:
        # The catalog shows what is left, so the list is dispensable.
        line = json.dumps({**document, "expired": []})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
    if len(line) > _MAX_TERMINATION_BYTES:
        # A report is in the logs only.
        line = json.dumps({name: value for name, value in document.items() if name in ("ok", "reason", "message")})
    try:
        paths.termination_log.write_text(line)
    except OSError as error:
        log(f"the termination log cannot be written: {error.strerror}")
    return code
