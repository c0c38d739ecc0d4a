"""The harness of Jobs' programs: job.json in, one line and an exit code out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from database_support.process_state import preserved_process_state
from steersman_instance import jobs
from steersman_instance.archive.errors import ArchiveError
from steersman_instance.backup import postgresql
from steersman_instance.jobs import JobFailed, JobFields, JobRefused
from steersman_instance.paths import PATHS

SPEC: Mapping[str, object] = {"format": 1, "engine": "PostgreSQL", "version": "17"}


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: object, spec: object = SPEC) -> tuple[int, Any]:
    """Run `backup` with a program that returns or raises the outcome."""
    module = ModuleType("program")

    def program(job: JobFields, paths: object) -> object:
        del job, paths
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    module.__dict__["run"] = program
    monkeypatch.setattr(jobs.importlib, "import_module", lambda *_: module)  # type: ignore[attr-defined]
    file = tmp_path / "job.json"
    file.write_text(json.dumps(spec))
    paths = replace(PATHS, termination_log=tmp_path / "log")
    with preserved_process_state():
        code = jobs.main("backup", ["--spec", str(file)], paths)
    return code, json.loads(paths.termination_log.read_text())


def test_job_result_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(tmp_path, monkeypatch, {"backup": {"id": "1"}}) == (0, {"ok": True, "backup": {"id": "1"}})


def test_job_result_fits_the_termination_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expired = [f"20260101-0000{number:02}F" for number in range(99)] * 3
    code, result = run(tmp_path, monkeypatch, {"backup": {"id": "1"}, "expired": expired})
    assert (code, result) == (0, {"ok": True, "backup": {"id": "1"}, "expired": []})


def test_long_report_is_in_the_logs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = {"names": ["n" * 100] * 50}
    assert run(tmp_path, monkeypatch, {"check": report}) == (0, {"ok": True})
    assert json.loads(capsys.readouterr().out) == {"ok": True, "check": report}


@pytest.mark.parametrize(
    ("error", "code", "reason"),
    [
        (JobFailed("NoProgress", "It stands still."), 1, "NoProgress"),
        (JobRefused("WALMissing", "It is missing."), 3, "WALMissing"),
        (ArchiveError("StoreFull", "It is full."), 1, "StoreFull"),
        (ValueError("secret"), 1, "InternalError"),
    ],
)
def test_job_failure_has_reason_and_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, reason: str
) -> None:
    found, result = run(tmp_path, monkeypatch, error)
    assert (found, result["ok"], result["reason"]) == (code, False, reason)
    assert "secret" not in result["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ([], "not a JSON object"),
        ({"engine": "postgresql"}, "format must be"),
        ({"format": 2, "engine": "postgresql"}, "format must be"),
        ({"format": 1}, "engine must be a string"),
        ({"format": 1, "engine": "oracle"}, "engine must be one of postgresql, mysql"),
    ],
)
def test_invalid_job_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: object, words: str) -> None:
    code, result = run(tmp_path, monkeypatch, {}, spec)
    assert (code, result["reason"]) == (3, "InvalidJob")
    assert words in result["message"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"type": "Partial"}, "type"),
        ({"members": []}, "members"),
        ({"members": [{"instance": "orders-0"}]}, "address"),
        ({"members": "orders-0"}, "members"),
        ({"processes": 0}, "processes"),
        ({"retention": {"window_seconds": -1}}, "window_seconds"),
        ({"retention": {"window_seconds": 1}, "retain_until": {"1": "soon"}}, "retain_until"),
    ],
)
def test_backup_job_names_the_invalid_field(changed: dict[str, object], field: str) -> None:
    members = [{"instance": "orders-0", "address": "localhost"}]
    fields = {**SPEC, "type": "Full", "members": members, **changed}
    with pytest.raises(JobRefused, match=field):
        postgresql.BackupJob.parse(JobFields(fields))


def test_backup_job_keeps_what_is_declared() -> None:
    job = postgresql.BackupJob.parse(
        JobFields(
            {
                **SPEC,
                "type": "Differential",
                "backup": {"name": "orders-1", "uid": "u", "trigger": "Schedule"},
                "members": [{"instance": "orders-0", "address": "orders-0.orders", "role": "Replica"}],
                "retention": {"window_seconds": 60, "minimum_full_backups": 2},
                "retain_until": {"20260101-000000F": "Forever"},
            }
        )
    )
    assert (job.type, job.source, job.trigger, job.port) == ("Differential", "PreferReplica", "Schedule", 8432)
    assert job.retention is not None
    assert job.retention.policy.minimum_full == 2
    assert job.retention.held == {"20260101-000000F": None}
