"""Requests and failures of the Jobs that copy tables and databases."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

import pytest

from steersman_instance.dump.processes import ClientFailed
from steersman_instance.jobs import JobFields, JobRefused
from steersman_instance.recovery.plan import RecoveryRefused
from steersman_instance.recovery.target import AtTime, Latest
from steersman_instance.restore import mysql, postgresql, request
from steersman_instance.restore.postgresql_source import literal

NOT_REACHED = RecoveryRefused("TargetNotReached", "The archive ends before it.")


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that were slept."""
    found: list[float] = []
    monkeypatch.setattr(request.time, "sleep", found.append)
    return found


def minutes_ago(minutes: float) -> AtTime:
    return AtTime(datetime.datetime.now(datetime.UTC) - datetime.timedelta(minutes=minutes))


def attempts(*outcomes: RecoveryRefused | str) -> Iterator[RecoveryRefused | str]:
    return iter(outcomes)


def planned(left: Iterator[RecoveryRefused | str]) -> str:
    outcome = next(left)
    if isinstance(outcome, RecoveryRefused):
        raise outcome
    return outcome


def test_recent_target_waits_for_the_archive(pauses: list[float]) -> None:
    left = attempts(NOT_REACHED, NOT_REACHED, "plan")
    assert request.reached(lambda: planned(left), minutes_ago(1)) == "plan"
    assert len(pauses) == 2


@pytest.mark.parametrize(
    ("minutes", "refused"),
    [
        (6, NOT_REACHED),
        (-1, NOT_REACHED),
        (None, NOT_REACHED),
        (1, RecoveryRefused("NoUsableBackup", "There is no backup.")),
    ],
)
def test_other_targets_are_refused_at_once(
    minutes: float | None, refused: RecoveryRefused, pauses: list[float]
) -> None:
    target = Latest() if minutes is None else minutes_ago(minutes)
    left = attempts(refused)
    with pytest.raises(RecoveryRefused):
        request.reached(lambda: planned(left), target)
    assert pauses == []


@pytest.mark.parametrize(
    ("message", "code", "shown"),
    [
        ('psql:<stdin>:27: ERROR:  type "app.state" does not exist', 3, 'failed: type "app.state" does not exist.'),
        ("psql:<stdin>:27: FATAL:  terminating connection", 1, "failed: FATAL:  terminating connection."),
        ("psql:<stdin>:27: server closed the connection unexpectedly", 1, "failed: server closed"),
    ],
)
def test_lost_connection_of_postgresql_is_retried(message: str, code: int, shown: str) -> None:
    failure = postgresql.copy_failed(ClientFailed(message), [])
    assert (failure.exit_code, failure.reason) == (code, "RestoreFailed") and shown in failure.message


def test_missing_extensions_are_named_with_the_failure() -> None:
    failure = postgresql.copy_failed(ClientFailed("ERROR: no type geometry"), ["postgis"])
    assert failure.message.endswith("only a superuser can create are missing: postgis.")


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("ERROR 1062 (23000) at line 3: Duplicate entry", 3),
        ("ERROR 1142 (42000) at line 3: CREATE command denied", 3),
        ("ERROR 2013 (HY000) at line 3: Lost connection to MySQL server during query", 1),
        ("ERROR 1290 (HY000) at line 3: The MySQL server is running with the --super-read-only option", 1),
    ],
)
def test_lost_connection_of_mysql_is_retried(message: str, code: int) -> None:
    assert mysql.copy_failed(ClientFailed(message)).exit_code == code


def test_request_names_its_malformed_field() -> None:
    fields = {"database": "shop", "into": "copy", "tables": [{"schema": "public", "table": "t"}, {"table": "u"}]}
    found = request.CopyRequest.parse(JobFields({"restore": fields}))
    assert [str(table) for table in found.tables] == ["public.t", "u"]
    for malformed in ({}, {"restore": {**fields, "into": 7}}, {"restore": {**fields, "tables": "t"}}):
        with pytest.raises(JobRefused, match=r"job\.json"):
            request.CopyRequest.parse(JobFields(malformed))


def test_literal_has_no_special_characters() -> None:
    assert literal("it's") == "'it''s'"
    assert literal("a\\'b") == " E'a\\\\''b'"


def test_refusals_list_some_names() -> None:
    names = [f"t{number}" for number in range(12)]
    assert request.table_missing(request.TableName("public", "x"), names).message.endswith("t9 and 2 more.")
    assert request.database_missing("x", []).message.endswith("Databases: none.")
