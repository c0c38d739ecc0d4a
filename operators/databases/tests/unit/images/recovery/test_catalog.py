"""The catalog, from reports that pgBackRest 2.55 printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from steersman_instance.backup.catalog import InvalidCatalog, parse_info

FULL = "20261128-225714F"
INCREMENTAL = "20261128-225714F_20261128-225715I"


def reported(label: str, kind: str, prior: str | None, **changed: object) -> dict[str, Any]:
    return {
        "annotation": {"name": "orders-1", "trigger": "Schedule", "job": "uid"},
        "archive": {"start": "000000020000000000000002", "stop": "000000020000000000000002"},
        "database": {"id": 1, "repo-key": 1},
        "error": False,
        "info": {"delta": 1532162, "repository": {"delta": 32832}, "size": 23487595},
        "label": label,
        "lsn": {"start": "0/2000028", "stop": "0/2000120"},
        "prior": prior,
        "reference": [FULL] if prior else None,
        "timestamp": {"start": 1795906634, "stop": 1795906635},
        "type": kind,
        **changed,
    }


def report(*backups: dict[str, Any]) -> str:
    database = {"id": 1, "repo-key": 1, "system-id": 7713360258200246510, "version": "17"}
    status = {"code": 0, "lock": {"backup": {"held": True}}, "message": "ok"}
    return json.dumps([{"backup": backups, "db": [database], "name": "main", "status": status}])


def test_catalog_entry_has_the_fields_of_a_backup() -> None:
    catalog = parse_info(report(reported(FULL, "full", None), reported(INCREMENTAL, "incr", FULL)))
    assert catalog.backup_runs
    assert catalog.current is not None
    assert catalog.current.archive == "17-1"
    entry = catalog.current_backups()[-1].entry()
    assert entry == {
        "id": INCREMENTAL,
        "type": "Incremental",
        "trigger": "Schedule",
        "name": "orders-1",
        "start": "2026-11-28T22:57:14Z",
        "stop": "2026-11-28T22:57:15Z",
        "timeline": 2,
        "startLSN": "0/2000028",
        "stopLSN": "0/2000120",
        "size": 23487595,
        "stored": 32832,
        "dependsOn": [FULL],
        "version": "17",
    }


def test_catalog_places_an_offline_backup_by_its_annotations() -> None:
    annotation = {"trigger": "Final", "timeline": "3", "lsn": "0/7000028"}
    offline = reported(FULL, "full", None, annotation=annotation, archive={"start": None, "stop": None})
    offline.pop("lsn")
    (found,) = parse_info(report(offline)).all_backups
    assert (found.offline, found.trigger, found.timeline, found.stop_lsn) == (True, "Final", 3, 0x7000028)


def test_catalog_leaves_out_an_offline_backup_of_others() -> None:
    offline = reported(FULL, "full", None, annotation=None, archive={"start": None, "stop": None})
    offline.pop("lsn")
    assert parse_info(report(offline)).all_backups == ()


@pytest.mark.parametrize("text", ["", "[]"])
def test_catalog_without_an_archive_is_empty(text: str) -> None:
    assert parse_info(text).current is None


@pytest.mark.parametrize("text", ["{}x", "[1]", '[{"db": []}]', "[[[[", json.dumps([{"db": [{}], "backup": []}])])
def test_malformed_report_is_refused(text: str) -> None:
    with pytest.raises(InvalidCatalog):
        parse_info(text)
