"""Every field of a MySQLCluster's spec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from database_support.cluster_fields import (
    COMMON,
    COMMON_FINAL,
    Case,
    Fields,
    Found,
    image,
    memory,
    processor,
    volume,
)
from devcluster.images import MYSQL

OTHER_IMAGE = "steersman.dev/mysql:9.7-other"


def _sorts(found: Found) -> str:
    return found.cluster.sql("SELECT @@GLOBAL.sort_buffer_size")


def _clear_text(found: Found) -> bool:
    return found.cluster.sql("SELECT @@GLOBAL.require_secure_transport") == "0"


CASES: Mapping[str, Case] = {
    **COMMON,
    "version": Case("9.7", None, lambda found: found.cluster.sql("SELECT VERSION()")[:3], ("9.7", "9.7", "9.7")),
    "image": image(MYSQL.reference, OTHER_IMAGE),
    "mysql.parameters": Case(
        {"sort_buffer_size": "512K"}, {"sort_buffer_size": "1M"}, _sorts, ("524288", "1048576", "262144")
    ),
    "storage.size": volume("data", "800Mi", "850Mi"),
    "resources.limits": memory("776Mi", "784Mi", "768Mi"),
    "resources.requests": processor("256Mi"),
    "tls.required": Case(True, False, _clear_text, (False, True, False)),
    # Consent to a loss means nothing where none is to be had: test_mysql_cluster_outages.py.
    "recovery.epoch": Case(None, None),
    "recovery.instance": Case(None, None),
    "recovery.loss.transactions": Case(None, None),
    "recovery.loss.instances": Case(None, None),
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
FIELDS = Fields(
    cases=CASES,
    final=FINAL,
    other_image=OTHER_IMAGE,
    sql=(
        "CREATE TABLE made (who varchar(64) PRIMARY KEY)",
        "INSERT INTO made SELECT SUBSTRING_INDEX(CURRENT_USER(), '@', 1)",
    ),
    given=(_GIVEN, "latin1\tlatin1_bin"),
)
