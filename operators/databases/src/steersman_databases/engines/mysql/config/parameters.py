"""Effect of a system variable's value: none, or a refusal.

The operator or the server may refuse it. The servers themselves determine if it needs a restart: each agent tries
the value and reports variables that must wait.

Source: MySQL 9.7 Reference Manual, "Server System Variables", "performance_schema.variables_info".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from steersman.meta import Quantity
from steersman_databases.engines.cluster_engine import DeclaredCluster, Setting, SettingCatalog, Verdict

_MIB = 1 << 20
_OPERATOR_PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("port", "bind_address", "socket", "admin_address", "admin_port", "skip_networking", "mysqlx"),
            *("skip_name_resolve", "report_host", "report_port", "proxy_protocol_networks"),
        ),
        "the operator manages listen addresses and ports",
    ),
    **dict.fromkeys(
        (
            *("datadir", "basedir", "tmpdir", "plugin_dir", "pid_file", "log_error", "secure_file_priv", "init_file"),
            *("innodb_data_home_dir", "innodb_data_file_path", "innodb_log_group_home_dir", "innodb_undo_directory"),
            *("innodb_tmpdir", "replica_load_tmpdir", "character_sets_dir", "lc_messages_dir", "innodb_directories"),
            *("general_log_file", "slow_query_log_file", "innodb_temp_data_file_path", "innodb_temp_tablespaces_dir"),
            "innodb_doublewrite_dir",
        ),
        "the image determines the location of files",
    ),
    **dict.fromkeys(
        ("require_secure_transport", "tls_version", "auto_generate_certs"),
        "the operator manages the certificates: use spec.tls",
    ),
    **dict.fromkeys(
        (
            *("gtid_mode", "enforce_gtid_consistency", "log_bin", "log_bin_basename", "log_bin_index"),
            *("binlog_format", "binlog_checksum", "log_replica_updates", "server_id", "server_uuid", "sql_log_bin"),
            *("read_only", "super_read_only", "offline_mode", "relay_log", "relay_log_index", "relay_log_recovery"),
            *("replica_preserve_commit_order", "replica_parallel_type", "skip_replica_start", "gtid_purged"),
            *("gtid_next", "autocommit", "transaction_write_set_extraction", "binlog_gtid_simple_recovery"),
            *("default_table_encryption", "replication_optimize_for_static_plugin_config"),
        ),
        "the operator manages replication",
    ),
    **dict.fromkeys(
        (
            *("binlog_do_db", "binlog_ignore_db", "binlog_error_action", "replica_exec_mode", "replica_skip_errors"),
            *("rbr_exec_mode", "sql_replica_skip_counter"),
        ),
        "other members would lack the writes of one member, and a failover would lose them",
    ),
    **dict.fromkeys(
        (
            *("plugin_load", "plugin_load_add", "early_plugin_load", "persisted_globals_load"),
            *("init_connect", "init_replica"),
        ),
        "the operator manages loaded options, and reverts SET PERSIST",
    ),
    **dict.fromkeys(
        ("innodb_page_size", "lower_case_table_names", "innodb_undo_tablespaces"),
        "it is fixed when the data directory is initialized",
    ),
    **dict.fromkeys(
        (
            *("innodb_doublewrite", "innodb_force_recovery", "innodb_read_only", "innodb_checksum_algorithm"),
            *("innodb_log_checksums", "innodb_force_load_corrupted"),
        ),
        "without it a crash corrupts the database",
    ),
    # A running server does not know these, and a starting one would have them only until its next start.
    **dict.fromkeys(
        (
            *("allow_suspicious_udfs", "ansi", "archive", "blackhole", "check_table_functions", "chroot", "console"),
            *("daemonize", "default_time_zone", "exit_info", "external_locking", "federated", "gdb", "help"),
            *("initialize", "initialize_insecure", "innodb_status_file", "log_isam", "log_short_format", "log_tc"),
            *("log_tc_size", "source_retry_count", "max_binlog_dump_events", "memlock", "myisam_block_size"),
            *("ndbcluster", "ndbinfo", "ngram", "performance_schema_instrument", "performance_schema_logger"),
            *("performance_schema_meter", "port_open_timeout", "safe_user_create", "show_replica_auth_info"),
            *("sporadic_binlog_dump_fail", "super_large_pages", "symbolic_links", "sysdate_is_now"),
            *("tc_heuristic_recover", "upgrade", "user", "validate_config", "validate_user_plugins", "verbose"),
        ),
        "it is an option of the program mysqld, not a system variable",
    ),
    "performance_schema": "members and operator need it to observe the group",
    "default_authentication_plugin": "passwords are stored by caching_sha2_password only",
    "authentication_policy": "passwords are stored by caching_sha2_password only",
}
_PREFIXES: Mapping[str, str] = {
    "group_replication_": "the operator manages the group: use spec.instances",
    "ssl_": "the operator manages the certificates: use spec.tls",
    "admin_ssl_": "the operator manages the certificates: use spec.tls",
    "mysqlx_": "the X protocol is disabled",
    "clone_": "the operator selects the donor of a clone",
    "replicate_": "a member that skips changes would lack committed transactions",
    **dict.fromkeys(
        ("keyring_migration_", "ndb_", "ndbinfo_", "performance_schema_consumer_"),
        "it is an option of the program mysqld, not a system variable",
    ),
    **dict.fromkeys(("loose_", "skip_", "disable_", "enable_", "maximum_"), "use the name of the variable itself"),
}
_TRANSACTION_LIMIT = "group_replication_transaction_size_limit"
_FIXED_MEMORY_PARAMETERS: Mapping[str, int] = {
    **dict.fromkeys(("innodb_buffer_pool_size", "innodb_log_buffer_size", "key_buffer_size"), 1),
    # Measured: each member holds a transaction about three times while the group agrees on it.
    _TRANSACTION_LIMIT: 3,
}
"""Parameters with the number of times that a server allocates their value."""
_DURABILITY_PARAMETERS = ("innodb_flush_log_at_trx_commit", "sync_binlog")
# The other values are for measurements: `nosync`, `littlesync`. A server also accepts prefixes and numbers.
_FLUSHING = ("fsync", "O_DSYNC", "O_DIRECT", "O_DIRECT_NO_FSYNC")
_RENAMED_WORDS = (("slave", "replica"), ("master", "source"))
"""Renamed words in variables. Servers still accept the old names."""
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate("KMGTPE", 1)}
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)([KMGTPE]?)", re.IGNORECASE)


def server_parameters(cluster: DeclaredCluster) -> dict[str, str]:
    """Return the variables of the servers.

    The user's values override sized ones and the operator's defaults. The operator's fixed values override all.
    """
    # An absent member needs binary logs to catch up. After a longer absence it copies the data.
    pool_size = min(max(_mebibytes(cluster.usable_size) // 16, 16), 256)
    defaults = {
        # The agent purges what the archive has. The server would purge what is not stored yet.
        "binlog_expire_logs_seconds": "21600" if cluster.archive_interval_seconds is None else "0",
        "max_binlog_size": str(pool_size * _MIB),
        # Otherwise a group refuses each row of tables without a primary key, long after their creation.
        "sql_generate_invisible_primary_key": "ON",
        # The binary log contains rows, so no statement runs on a replica with more rights than on the primary.
        "log_bin_trust_function_creators": "ON",
        **_slow_log(cluster.slow_statement_seconds),
    }
    # Before a server was reachable, no server has validated them.
    declared = {n: v.strip() for n, v in cluster.parameters.items() if rejection_reason(n, v) is None}
    sized = {one.name: one.value for one in cluster.sized}
    return {**defaults, **sized, **declared, "require_secure_transport": "ON" if cluster.tls_required else "OFF"}


def _slow_log(threshold_seconds: float | None) -> Mapping[str, str]:
    """Return the variables of the slow query log. New sessions use a changed threshold."""
    if threshold_seconds is None:
        return {}
    return {
        "slow_query_log": "ON",
        "long_query_time": f"{threshold_seconds:.6f}".rstrip("0").rstrip("."),
        "log_slow_extra": "ON",
    }


def without_unit(value: str) -> str:
    """Return the value without its unit, which only option files support."""
    found = _NUMBER.fullmatch(value.strip())
    if found is None or not found[2] or "." in found[1]:
        return value.strip()
    return str(int(found[1]) * _UNITS[found[2].upper()])


def rejection_reason(name: str, value: str) -> str | None:
    """Return the reason why users may never set this, or None."""
    for word, current_name in _RENAMED_WORDS:
        name = re.sub(rf"(?<![a-z]){word}(?![a-z])", current_name, name)
    if reason := _OPERATOR_PARAMETERS.get(name):
        return reason
    if name == "transaction_read_only" and _SWITCHES.get(value.strip().lower()) is not False:
        return "a server that starts with it cannot join a group: set it in sessions, or grant fewer privileges"
    if name == "innodb_flush_method" and value.strip().lower() not in map(str.lower, _FLUSHING):
        return f"a power failure loses committed transactions, except with {', '.join(_FLUSHING)}"
    if name == _TRANSACTION_LIMIT:
        # A server takes a negative number for 0.
        unlimited = (number := parse_number(value)) is not None and number <= 0
        return "without a limit one transaction can take the memory of all members: set bytes" if unlimited else None
    if name in _DURABILITY_PARAMETERS and without_unit(value) != "1":
        return "with a value other than 1 a power failure loses committed transactions"
    return next((reason for prefix, reason in _PREFIXES.items() if name.startswith(prefix)), None)


def fixed_memory(name: str, value: str) -> int | None:
    """Return the bytes that a server allocates for this variable.

    The number of connections does not matter. None for other variables, and if the value is not a number.
    """
    number = parse_number(value) if name in _FIXED_MEMORY_PARAMETERS else None
    return None if number is None or math.isinf(number) else int(number) * _FIXED_MEMORY_PARAMETERS[name]


def classify(name: str, value: str, catalog: SettingCatalog) -> Verdict:
    """Return the effect of this value on a server with these variables."""
    if reason := rejection_reason(name, value):
        return Verdict(kind="Refused", reason=f"{name}: {reason}")
    setting = catalog.get(name)
    if setting is None:
        return Verdict(kind="Refused", reason=f"Unknown system variable '{name}'")
    if mismatch := _type_mismatch(setting, value):
        return Verdict(kind="Refused", reason=mismatch)
    return Verdict(kind="Same" if effective_value(name, value, catalog) is None else "Reload")


def _type_mismatch(setting: Setting, value: str) -> str | None:
    mismatch = f"Variable '{setting.name}' can't be set to the value of '{value}'"
    number = parse_number(value)
    if setting.kind == "bool":
        return None if value.strip().lower() in _SWITCHES else mismatch
    if setting.kind not in ("integer", "real"):
        return None
    if number is None:
        return f"Incorrect argument type to variable '{setting.name}': '{value}'"
    lowest, highest = parse_number(setting.minimum or ""), parse_number(setting.maximum or "")
    if (lowest is not None and number < lowest) or (highest is not None and number > highest):
        return f"{mismatch}: it is from {setting.minimum} to {setting.maximum}"
    return None


def effective_value(name: str, value: str, catalog: SettingCatalog) -> str | None:
    """Return the value that the server uses instead of `value`.

    None if it uses `value`, or if that is unknown. The server normalises texts in many ways, and rounds numbers up
    to
    allocatable ones. So numbers are reported only if they are less than declared, or more than twice as much.
    """
    setting = catalog.get(name)
    if setting is None:
        return None
    if setting.kind == "bool":
        desired, shown = _SWITCHES.get(value.strip().lower()), _SWITCHES.get(setting.value.lower())
        return None if desired is None or desired is shown else setting.value
    desired, shown = parse_number(value), parse_number(setting.value)
    if desired is None or shown is None or setting.kind not in ("integer", "real"):
        return None
    return None if desired <= shown <= 2 * max(desired, 0) or desired <= 0 else setting.value


def parse_number(text: str) -> float | None:
    """Return the number of a value such as `64M`. None if it is not a number."""
    found = _NUMBER.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS.get(found[2].upper(), 1)


def _mebibytes(quantity: Quantity) -> int:
    return int(quantity.value) // _MIB
