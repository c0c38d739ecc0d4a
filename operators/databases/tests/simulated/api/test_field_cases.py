"""Each field of a spec has a case for the tests of fields on a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from database_support.fields import backup, database, mysql_cluster, postgresql_cluster
from database_support.fields.cluster import FieldCases, fields
from database_support.simulation import explored_kinds
from steersman_databases.api import Backup, BackupStore, Database, MySQLCluster, PostgreSQLCluster, Restore
from steersman_manifests.crd import definition


def _paths(kind: type[Any], *, lists: bool = False) -> set[str]:
    version: Any = definition(kind)["spec"]["versions"][0]
    return set(fields(version["schema"]["openAPIV3Schema"]["properties"]["spec"], lists=lists))


@pytest.mark.parametrize(
    ("kind", "cases"), [(PostgreSQLCluster, postgresql_cluster.FIELDS), (MySQLCluster, mysql_cluster.FIELDS)]
)
def test_cluster_fields_all_have_a_case(kind: type[Any], cases: FieldCases) -> None:
    assert _paths(kind) == {*cases.cases, *cases.final}


@pytest.mark.parametrize(
    ("kind", "tested"), [(BackupStore, backup.STORE), (Backup, backup.BACKUP), (Restore, backup.RESTORE)]
)
def test_backup_fields_all_have_a_test(kind: type[Any], tested: Mapping[str, str]) -> None:
    assert _paths(kind) == tested.keys()


def test_database_fields_all_have_a_case_or_a_test() -> None:
    cases = {path for each in database.FIELDS.values() for path in (*each.cases, *each.immutable)}
    known = _paths(Database, lists=True)
    whole = {name for path in known if (name := path.partition(".")[0]) in database.TESTED}
    assert {path for path in known if path.partition(".")[0] not in whole} | whole == {*cases, *database.TESTED}


def test_unexplored_database_fields_are_tested() -> None:
    cases = {path for each in database.FIELDS.values() for path in (*each.cases, *each.immutable)}
    tested = {re.split(r"[.\[]", path)[0] for path in (*cases, *database.TESTED)}
    assert {path.removeprefix("spec.") for path in explored_kinds.ELSEWHERE} <= tested


@pytest.mark.parametrize("tested", [backup.STORE, backup.BACKUP, backup.RESTORE, backup.CLUSTER, database.TESTED])
def test_modules_of_tested_fields_exist(tested: Mapping[str, str]) -> None:
    tests = Path(__file__).parents[2]
    assert [module for module in sorted(set(tested.values())) if not (tests / module).exists()] == []
