"""Every field of a MySQLCluster's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from database_support.fields.backup import CASES as BACKUP_CASES
from database_support.fields.cluster import (
    COMMON,
    COMMON_FINAL,
    ClusterObjects,
    FieldCase,
    FieldCases,
    cpu,
    image,
    memory,
    volume,
)
from devcluster.images import MYSQL

OTHER_IMAGE = "steersman.dev/mysql:9.7-other"


def _sorts(found: ClusterObjects) -> str:
    return found.cluster.sql("SELECT @@GLOBAL.sort_buffer_size")


def _clear_text(found: ClusterObjects) -> bool:
    return found.cluster.sql("SELECT @@GLOBAL.require_secure_transport") == "0"


def _limits_temporary_tables(found: ClusterObjects) -> bool:
    return int(found.cluster.sql("SELECT @@GLOBAL.temptable_max_ram")) < 1 << 30


CASES: Mapping[str, FieldCase] = {
    **COMMON,
    **BACKUP_CASES,
    "version": FieldCase("9.7", None, lambda found: found.cluster.sql("SELECT VERSION()")[:3], ("9.7", "9.7", "9.7")),
    "image": image(MYSQL.reference, OTHER_IMAGE),
    "mysql.parameters": FieldCase(
        {"sort_buffer_size": "512K"}, {"sort_buffer_size": "1M"}, _sorts, ("524288", "1048576", "262144")
    ),
    "mysql.sizing": FieldCase("Defaults", "FromResources", _limits_temporary_tables, (False, True, True)),
    "storage.size": volume("data", "800Mi", "850Mi"),
    "resources.limits": memory("776Mi", "784Mi", "768Mi"),
    "resources.requests": cpu("256Mi"),
    "tls.required": FieldCase(True, False, _clear_text, (False, True, False)),
    # Consent to a loss means nothing where none is to be had: test_mysql_cluster_outages.py.
    "forceRecovery.epoch": FieldCase(None, None),
    "forceRecovery.instance": FieldCase(None, None),
    "forceRecovery.loss.transactions": FieldCase(None, None),
    "forceRecovery.loss.instances": FieldCase(None, None),
}
FINAL: Mapping[str, Any] = {
    **COMMON_FINAL,
    "bootstrap.initdb.characterSet": "latin1",
    "bootstrap.initdb.collation": "latin1_bin",
}
_GIVEN = (
    "SELECT DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA "
    "WHERE SCHEMA_NAME = 'shop'"
)
FIELDS = FieldCases(
    cases=CASES,
    final=FINAL,
    other_image=OTHER_IMAGE,
    sql=(
        "CREATE TABLE made (who varchar(64) PRIMARY KEY)",
        "INSERT INTO made SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)",
    ),
    bootstrap_query=(_GIVEN, "latin1\tlatin1_bin"),
)
