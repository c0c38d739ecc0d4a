"""What MySQL's servers are given beside what is declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.planned_cluster import VIEW
from steersman_databases.engines.mysql.parameters import refused, server_parameters

CLUSTER = replace(VIEW, kind="MySQLCluster", engine="mysql")


def test_tables_get_a_key_unless_somebody_wants_none() -> None:
    assert server_parameters(CLUSTER)["sql_generate_invisible_primary_key"] == "ON"
    declared = replace(CLUSTER, parameters={"sql_generate_invisible_primary_key": "OFF"})
    assert server_parameters(declared)["sql_generate_invisible_primary_key"] == "OFF"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("binlog_do_db", "shop"),
        ("binlog_ignore_db", "scratch"),
        ("binlog_error_action", "IGNORE_ERROR"),
        ("replicate_do_db", "shop"),
        ("replicate_wild_ignore_table", "shop.%"),
        ("replica_skip_errors", "all"),
        ("slave_skip_errors", "1062"),
        ("replica_exec_mode", "IDEMPOTENT"),
        ("slave_exec_mode", "IDEMPOTENT"),
        ("sql_slave_skip_counter", "1"),
        ("log_slave_updates", "OFF"),
        ("slave_preserve_commit_order", "OFF"),
        ("init_slave", "SET GLOBAL sync_binlog = 0"),
        ("loose_binlog_ignore_db", "scratch"),
        ("innodb_flush_method", "nosync"),
        ("innodb_flush_method", "NoSync"),
        # The server takes the beginning and the number of a value for it.
        ("innodb_flush_method", "nosyn"),
        ("innodb_flush_method", "3"),
        ("innodb_log_checksums", "OFF"),
        ("skip_log_bin", "1"),
        ("disable_log_bin", "1"),
        ("skip_grant_tables", "1"),
        ("tc_heuristic_recover", "ROLLBACK"),
        ("initialize", "1"),
        ("upgrade", "NONE"),
        ("user", "root"),
        # Its plugin is not loaded then.
        ("transaction_read_only", "ON"),
    ],
)
def test_what_would_lose_rows_is_not_even_given_to_the_first_server(name: str, value: str) -> None:
    """It could not be asked, and one that was started with an option keeps it until it starts again."""
    assert refused(name, value)
    declared = replace(CLUSTER, parameters={name: value, "max_connections": "200"})
    given = server_parameters(declared)
    assert name not in given and given["max_connections"] == "200"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("innodb_flush_method", "O_DIRECT"),
        ("innodb_flush_method", "fsync"),
        ("slave_net_timeout", "30"),
        ("transaction_read_only", "0"),
        ("transaction_read_only", "OFF"),
    ],
)
def test_what_loses_nothing_is_given(name: str, value: str) -> None:
    assert refused(name, value) is None
    assert server_parameters(replace(CLUSTER, parameters={name: value}))[name] == value
