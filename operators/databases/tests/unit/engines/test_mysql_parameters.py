"""What MySQL's servers are given beside what is declared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.unit.planned_cluster import DECLARED
from steersman_databases.engines.mysql.config.parameters import rejection_reason, server_parameters

CLUSTER = replace(DECLARED, kind="MySQLCluster", engine="mysql")


def test_invisible_primary_key_is_default() -> None:
    assert server_parameters(CLUSTER)["sql_generate_invisible_primary_key"] == "ON"
    declared = replace(CLUSTER, parameters={"sql_generate_invisible_primary_key": "OFF"})
    assert server_parameters(declared)["sql_generate_invisible_primary_key"] == "OFF"


def test_binary_logs_with_an_archive_never_expire_by_age() -> None:
    assert server_parameters(CLUSTER)["binlog_expire_logs_seconds"] == "21600"
    archived = replace(CLUSTER, archive_interval_seconds=5.0)
    assert server_parameters(archived)["binlog_expire_logs_seconds"] == "0"


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
        ("group_replication_transaction_size_limit", "0"),
        ("group_replication_transaction_size_limit", "-1"),
        ("group_replication_message_cache_size", "128M"),
    ],
)
def test_data_losing_option_is_rejected(name: str, value: str) -> None:
    """It could not be asked, and one that was started with an option keeps it until it starts again."""
    assert rejection_reason(name, value)
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
        ("group_replication_transaction_size_limit", "500M"),
    ],
)
def test_harmless_option_is_passed(name: str, value: str) -> None:
    assert rejection_reason(name, value) is None
    assert server_parameters(replace(CLUSTER, parameters={name: value}))[name] == value
