"""What setting a system variable means: nothing, or that the operator or the server would not take it.

Whether it takes a restart is what the servers say themselves: each agent tries it, and tells what has to wait.

Source: MySQL 9.7 Reference Manual, "Server System Variables", "performance_schema.variables_info".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from steersman.meta import Quantity

from ..cluster import ClusterView, Setting, SettingCatalog, Verdict

_MIB = 1 << 20
_OURS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("port", "bind_address", "socket", "admin_address", "admin_port", "skip_networking", "mysqlx"),
            *("skip_name_resolve", "report_host", "report_port", "proxy_protocol_networks"),
        ),
        "the operator decides where the server listens",
    ),
    **dict.fromkeys(
        (
            *("datadir", "basedir", "tmpdir", "plugin_dir", "pid_file", "log_error", "secure_file_priv", "init_file"),
            *("innodb_data_home_dir", "innodb_data_file_path", "innodb_log_group_home_dir", "innodb_undo_directory"),
            *("innodb_tmpdir", "replica_load_tmpdir", "character_sets_dir", "lc_messages_dir", "innodb_directories"),
            *("general_log_file", "slow_query_log_file", "innodb_temp_data_file_path", "innodb_temp_tablespaces_dir"),
            "innodb_doublewrite_dir",
        ),
        "the image decides where files are",
    ),
    **dict.fromkeys(
        ("require_secure_transport", "tls_version", "auto_generate_certs"),
        "the operator keeps the certificates; use spec.tls",
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
        "the members keep replication",
    ),
    **dict.fromkeys(
        (
            *("binlog_do_db", "binlog_ignore_db", "binlog_error_action", "replica_exec_mode", "replica_skip_errors"),
            *("rbr_exec_mode", "sql_replica_skip_counter"),
        ),
        "what one member has written the others would not have, and a failover loses it",
    ),
    **dict.fromkeys(
        (
            *("plugin_load", "plugin_load_add", "early_plugin_load", "persisted_globals_load"),
            *("init_connect", "init_replica"),
        ),
        "the members decide what is loaded; what is set by SET PERSIST is drift",
    ),
    **dict.fromkeys(
        ("innodb_page_size", "lower_case_table_names", "innodb_undo_tablespaces"),
        "it is decided as the data are made, and cannot be changed later",
    ),
    **dict.fromkeys(
        (
            *("innodb_doublewrite", "innodb_force_recovery", "innodb_read_only", "innodb_checksum_algorithm"),
            *("innodb_log_checksums", "innodb_force_load_corrupted"),
        ),
        "without it a crash loses the database",
    ),
    # A server that runs knows none of these, and one that starts would have them until it starts again.
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
        "it is an option of the program mysqld, and no system variable",
    ),
    "performance_schema": "members and operator see by it what the group does",
    "default_authentication_plugin": "passwords are kept by caching_sha2_password only",
    "authentication_policy": "passwords are kept by caching_sha2_password only",
}
_PREFIXES: Mapping[str, str] = {
    "group_replication_": "the members keep the group; use spec.instances",
    "ssl_": "the operator keeps the certificates; use spec.tls",
    "admin_ssl_": "the operator keeps the certificates; use spec.tls",
    "mysqlx_": "the X protocol is off",
    "clone_": "the members decide who copies whom",
    "replicate_": "a member that leaves changes out has not what clients were told is kept",
    **dict.fromkeys(
        ("keyring_migration_", "ndb_", "ndbinfo_", "performance_schema_consumer_"),
        "it is an option of the program mysqld, and no system variable",
    ),
    **dict.fromkeys(("loose_", "skip_", "disable_", "enable_", "maximum_"), "name the variable itself"),
}
_HELD = frozenset({"innodb_buffer_pool_size", "innodb_log_buffer_size", "key_buffer_size"})
_DURABLE = ("innodb_flush_log_at_trx_commit", "sync_binlog")
# The others are for measurements: `nosync`, `littlesync`. By its beginning or its number a server takes a value, too.
_FLUSHING = ("fsync", "O_DSYNC", "O_DIRECT", "O_DIRECT_NO_FSYNC")
_FORMERLY = (("slave", "replica"), ("master", "source"))
"""Words in names that servers go on taking for what they are called now."""
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True, "off": False, "false": False, "no": False, "0": False}
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate("KMGTPE", 1)}
_NUMBER = re.compile(r"([+-]?\d+(?:\.\d+)?)([KMGTPE]?)", re.IGNORECASE)


def server_parameters(cluster: ClusterView) -> dict[str, str]:
    """What the servers are given: our defaults, over them the user's, over these what is the operator's."""
    # Binary logs are of use until a member that was away has come back; who was away for longer copies the data.
    piece = min(max(_mebibytes(cluster.storage_size) // 16, 16), 256)
    defaults = {
        "binlog_expire_logs_seconds": "21600",
        "max_binlog_size": str(piece * _MIB),
        # A group refuses rows of tables without a key, one by one and long after these were made.
        "sql_generate_invisible_primary_key": "ON",
        # Logs hold rows, and no statement that a replica would run with more rights than who wrote it.
        "log_bin_trust_function_creators": "ON",
    }
    # Where no server could be asked yet, nobody has judged them.
    declared = {n: v.strip() for n, v in cluster.parameters.items() if refused(n, v) is None}
    return {**defaults, **declared, "require_secure_transport": "ON" if cluster.tls_required else "OFF"}


def plain(value: str) -> str:
    """The value without its unit, which files of options know."""
    found = _NUMBER.fullmatch(value.strip())
    if found is None or not found[2] or "." in found[1]:
        return value.strip()
    return str(int(found[1]) * _UNITS[found[2].upper()])


def refused(name: str, value: str) -> str | None:
    """Why a user may not set this at all, whatever the server is; None if he may."""
    for word, now in _FORMERLY:
        name = re.sub(rf"(?<![a-z]){word}(?![a-z])", now, name)
    if reason := _OURS.get(name):
        return reason
    if name == "transaction_read_only" and _SWITCHES.get(value.strip().lower()) is not False:
        return "a server that starts with it cannot be in a group; set it for sessions, or grant less"
    if name == "innodb_flush_method" and value.strip().lower() not in map(str.lower, _FLUSHING):
        return f"a power failure loses what was acknowledged, except with {', '.join(_FLUSHING)}"
    if name in _DURABLE and plain(value) != "1":
        return "with another value than 1 a power failure loses what was acknowledged"
    return next((reason for prefix, reason in _PREFIXES.items() if name.startswith(prefix)), None)


def held(name: str, value: str) -> int | None:
    """Bytes that a server takes for this variable, whoever is connected; None for others and for no number."""
    number = _number(value) if name in _HELD else None
    return None if number is None or math.isinf(number) else int(number)


def judge(name: str, value: str, catalog: SettingCatalog) -> Verdict:
    """What giving the variable this value means on the server whose variables are ``catalog``."""
    if reason := refused(name, value):
        return Verdict(kind="Refused", reason=f"{name}: {reason}")
    known = catalog.get(name)
    if known is None:
        return Verdict(kind="Refused", reason=f"Unknown system variable '{name}'")
    if words := _misfit(known, value):
        return Verdict(kind="Refused", reason=words)
    return Verdict(kind="Same" if shown_instead(name, value, catalog) is None else "Reload")


def _misfit(known: Setting, value: str) -> str | None:
    wrong = f"Variable '{known.name}' can't be set to the value of '{value}'"
    number = _number(value)
    if known.kind == "bool":
        return None if value.strip().lower() in _SWITCHES else wrong
    if known.kind not in ("integer", "real"):
        return None
    if number is None:
        return f"Incorrect argument type to variable '{known.name}': '{value}'"
    lowest, highest = _number(known.minimum or ""), _number(known.maximum or "")
    if (lowest is not None and number < lowest) or (highest is not None and number > highest):
        return f"{wrong}: it is from {known.minimum} to {known.maximum}"
    return None


def shown_instead(name: str, value: str, catalog: SettingCatalog) -> str | None:
    """What the server runs with in place of ``value``; None where it has that, or where that cannot be told.

    Texts are changed by the server in many ways, and numbers are rounded up to what it can allocate: of them only
    those are told that are less than was declared, or more than twice as much.
    """
    known = catalog.get(name)
    if known is None:
        return None
    if known.kind == "bool":
        wanted, shown = _SWITCHES.get(value.strip().lower()), _SWITCHES.get(known.value.lower())
        return None if wanted is None or wanted is shown else known.value
    wanted, shown = _number(value), _number(known.value)
    if wanted is None or shown is None or known.kind not in ("integer", "real"):
        return None
    return None if wanted <= shown <= 2 * max(wanted, 0) or wanted <= 0 else known.value


def _number(text: str) -> float | None:
    found = _NUMBER.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS.get(found[2].upper(), 1)


def _mebibytes(quantity: Quantity) -> int:
    return int(quantity.value) // _MIB
