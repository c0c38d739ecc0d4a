"""Effect of a new value of a parameter.

It has no effect, needs a reload or a restart, or the server refuses it. PostgreSQL's view `pg_settings` is the
source. The check is necessary before Patroni receives the value: Patroni drops unknown names and values of the
wrong type, and clamps numbers to their bounds, and only logs a line.

Source: PostgreSQL 17 documentation, 19.1 "Setting Parameters" and 52.25 "pg_settings".
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from steersman_databases.engines.cluster_engine import Setting, SettingCatalog, Verdict

STANDBY_SENSITIVE = frozenset(
    {
        "max_connections",
        "max_worker_processes",
        "max_wal_senders",
        "max_prepared_transactions",
        "max_locks_per_transaction",
    }
)
"""Parameters that must be at least as high on a standby.

A standby with a lower value than its primary does not start. Source: documentation, 26.4.3 "Hot Standby".
"""

ASYNCHRONOUS_COMMIT_VALUES = frozenset({"off", "local", "false", "no", "0"})
"""Values of `synchronous_commit` with which no commit waits for a standby."""

_OPERATOR_PARAMETERS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("listen_addresses", "port", "unix_socket_directories", "unix_socket_group", "unix_socket_permissions"),
            *("bonjour", "bonjour_name"),
        ),
        "the operator manages listen addresses and ports",
    ),
    **dict.fromkeys(
        (
            *("data_directory", "config_file", "hba_file", "ident_file", "external_pid_file"),
            *("log_directory", "log_filename", "logging_collector", "stats_temp_directory"),
        ),
        "the image determines the location of files",
    ),
    **dict.fromkeys(
        (
            *("ssl", "ssl_cert_file", "ssl_key_file", "ssl_ca_file", "ssl_crl_file", "ssl_crl_dir"),
            *("ssl_passphrase_command", "ssl_passphrase_command_supports_reload", "ssl_dh_params_file"),
            *("krb_server_keyfile", "db_user_namespace"),
        ),
        "the operator manages the certificates: use spec.tls",
    ),
    **dict.fromkeys(
        (
            *("primary_conninfo", "primary_slot_name", "synchronous_standby_names", "cluster_name", "hot_standby"),
            *(
                "max_slot_wal_keep_size",
                "promote_trigger_file",
                "sync_replication_slots",
                "synchronized_standby_slots",
            ),
        ),
        "the operator manages replication: use spec.instances and spec.postgresql.synchronous",
    ),
    **dict.fromkeys(
        ("archive_mode", "archive_command", "archive_library", "archive_cleanup_command"),
        "the operator archives WAL: use spec.backup",
    ),
    "archive_timeout": "the operator archives WAL: use spec.backup.archive.interval",
    **dict.fromkeys(
        (
            *("restore_command", "recovery_end_command", "recovery_target", "recovery_target_name"),
            *("recovery_target_time", "recovery_target_xid", "recovery_target_lsn", "recovery_target_inclusive"),
            *("recovery_target_timeline", "recovery_target_action"),
        ),
        "the operator manages recovery",
    ),
    **dict.fromkeys(("fsync", "full_page_writes"), "without it a crash corrupts the database"),
    **dict.fromkeys(
        ("transaction_deferrable", "transaction_isolation", "transaction_read_only"),
        "it applies to a transaction only: set the parameter with the prefix default_",
    ),
    "shared_preload_libraries": "use spec.postgresql.sharedPreloadLibraries",
    **dict.fromkeys(
        ("session_preload_libraries", "local_preload_libraries"),
        "a missing library ends each session: use spec.postgresql.sharedPreloadLibraries",
    ),
    "idle_replication_slot_timeout": "it would invalidate slots, which replicas keep unused until a failover",
    "password_encryption": "passwords are stored as SCRAM-SHA-256 only",
    "allow_alter_system": "ALTER SYSTEM would override declared parameters",
}

# Names of the server have no dot, names of an extension have one. SET accepts "a.b.c" and "a.b$c", but in a file they
# are syntax errors. Source: src/backend/utils/misc/guc-file.l, ID and QUALIFIED_ID.
_NAME = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?")
_LINE_ENDS = re.compile(r"[\r\n\0]")
_DESTINATION = r'\s*("?)(?:stderr|csvlog|jsonlog|syslog)\{}\s*'
_DESTINATIONS = re.compile(rf"\s*|{_DESTINATION.format(1)}(?:,{_DESTINATION.format(2)})*", re.IGNORECASE)
_CONNECTION_ASPECT = r"(?:receipt|authentication|authorization|setup_durations|all)"
_LOGGED_CONNECTIONS = re.compile(rf"\s*{_CONNECTION_ASPECT}(?:\s*,\s*{_CONNECTION_ASPECT})*\s*", re.IGNORECASE)
_TRUE, _FALSE = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
_NUMBER = re.compile(r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))\s*([A-Za-z]*)\s*")
_MEMORY: Mapping[str, float] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIME: Mapping[str, float] = {"us": 1e-3, "ms": 1, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7}
# OpenSSL 3.5 knows more than the names of curves, and Python's may be older than the server's.
_OTHER_GROUPS = re.compile(r"ffdhe\d+|\w*MLKEM\w*|DEFAULT", re.IGNORECASE)
_TLS13_CIPHERS = re.compile(r"TLS_(?:AES_(?:128|256)_(?:GCM|CCM|CCM_8)_SHA(?:256|384)|CHACHA20_POLY1305_SHA256)")
_NON_ELLIPTIC_GROUPS = frozenset({"X25519", "X448"})
_UNIT = re.compile(r"(\d*)([A-Za-z]+)")


def rejection_reason(name: str, value: str) -> str | None:
    """Return the reason why users may never set this, or None."""
    folded = name.lower()
    if reason := _unparsable_reason(folded, value):
        return reason
    if folded == "wal_level" and value.strip().lower() not in ("replica", "logical"):
        return "replicas need wal_level replica or logical"
    if folded == "default_transaction_isolation" and value.strip().lower() == "serializable":
        return "replicas refuse each transaction with it: use ALTER ROLE or ALTER DATABASE ... SET instead"
    if folded == "io_method" and value.strip().lower() == "io_uring":
        return "container runtimes block io_uring, so a server cannot start with it: use worker"
    return _OPERATOR_PARAMETERS.get(folded) or _openssl_rejection(folded, value)


def _unparsable_reason(name: str, value: str) -> str | None:
    """Return the reason why a file with this value is unreadable.

    A server reads nothing of such a file and does not start with it.
    """
    if _NAME.fullmatch(name) is None:
        return 'names consist of lower-case letters, digits and "_", with at most one "."'
    if _LINE_ENDS.search(value):
        return "it cannot contain line breaks: remove them"
    if name == "default_table_access_method" and not value:
        return "it cannot be empty"
    if name == "log_destination" and _DESTINATIONS.fullmatch(value) is None:
        return "it is a list of stderr, csvlog, jsonlog and syslog, separated by commas"
    if name == "log_connections" and _bool_prefix(value) is None and not _LOGGED_CONNECTIONS.fullmatch(value):
        return "it is on, off, or a list of receipt, authentication, authorization, setup_durations and all"
    return None


def _openssl_rejection(name: str, value: str) -> str | None:
    """Return the reason why OpenSSL refuses the value, or None.

    On a reload the server keeps its previous value, but it does not start with the new one.
    """
    if name == "ssl_ciphers":
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(value)
        except ssl.SSLError:
            return "a server cannot start with it: OpenSSL supports none of these TLS 1.2 ciphers"
    if name == "ssl_tls13_ciphers":
        unknown = [one for one in value.split(":") if value and not _TLS13_CIPHERS.fullmatch(one)]
        return f"a server cannot start with it: {unknown[0]!r} is not a TLS 1.3 cipher suite" if unknown else None
    if name == "ssl_groups":
        unknown = [one for one in value.split(":") if not _is_tls_group(one)]
        return f"a server cannot start with it: OpenSSL does not support {unknown[0]!r}" if unknown else None
    if name == "ssl_ecdh_curve":
        if value in _NON_ELLIPTIC_GROUPS:
            return "a server cannot start with it: ECDSA does not support this curve. Set one such as prime256v1"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(value)
        except ValueError:
            return "a server cannot start with it: OpenSSL does not support this curve"
        except ssl.SSLError:
            # OpenSSL knows the curve, but not as a TLS group: a server starts with it and does not use it.
            return None
    return None


def _is_tls_group(name: str) -> bool:
    """Return True if OpenSSL may know the group."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(name)
    except ValueError:
        return _OTHER_GROUPS.fullmatch(name) is not None
    except ssl.SSLError:
        # OpenSSL knows the curve, but not as a TLS group.
        return False
    return True


def conflicts(values: Mapping[str, str]) -> Iterator[tuple[Sequence[str], str]]:
    """Yield parameters that prevent a start in combination, and the reason.

    Each of them is valid alone.
    """
    lowest, highest = (values.get(f"ssl_{end}_protocol_version", "") for end in ("min", "max"))
    if highest and highest.lower() < (lowest or "TLSv1.2").lower():
        message = (
            f"{highest} is before {lowest or 'TLSv1.2'}, ssl_min_protocol_version: a server cannot start with that"
        )
        yield ("ssl_max_protocol_version", "ssl_min_protocol_version"), message
    total, *parts = [f"log_{description}_stats" for description in ("statement", "parser", "planner", "executor")]
    others = [name for name in parts if _bool_prefix(values.get(name, "off"))]
    if _bool_prefix(values.get(total, "off")) and others:
        message = f"a server cannot start with {total} and {', '.join(others)}: disable one of both"
        yield (total, *others), message


def is_operator_parameter(name: str) -> bool:
    """Return True if the parameter (in lower case) is the operator's."""
    return name in _OPERATOR_PARAMETERS


_SHARED_BUFFERS = Setting(name="shared_buffers", value="", unit="8kB", kind="integer")
_BLOCK = 8192


def fixed_memory(name: str, value: str) -> int | None:
    """Return the bytes that a server allocates for this parameter.

    The number of connections does not matter. None for other parameters, and if the value is not a number.
    """
    if name != _SHARED_BUFFERS.name:
        return None
    try:
        return int(_parse_number(_SHARED_BUFFERS, value.strip())) * _BLOCK
    except (OverflowError, ValueError):
        return None


def classify(name: str, value: str, catalog: SettingCatalog) -> Verdict:
    """Return the effect of this value on a server.

    Names with a dot belong to an extension, which may not be loaded. Their values are accepted unchecked.

    Args:
        catalog: the server's `pg_settings`.
    """
    if reason := rejection_reason(name, value):
        return Verdict(kind="Refused", reason=f"{name}: {reason}")
    setting = catalog.get(name.lower()) or next(
        (current for current in catalog.values() if current.name.lower() == name.lower()), None
    )
    if setting is None:
        if "." in name:
            return Verdict(kind="Reload")
        return Verdict(kind="Refused", reason=f'unrecognized configuration parameter "{name}"')
    if setting.context == "internal":
        return Verdict(kind="Refused", reason=f'parameter "{name}" cannot be changed')
    try:
        desired = _parse(setting, value)
    except ValueError as error:
        return Verdict(kind="Refused", reason=str(error))
    if reason := _too_few_segments(setting, desired, catalog):
        return Verdict(kind="Refused", reason=reason)
    if desired == _parsed_current(setting):
        return Verdict(kind="Same")
    return Verdict(kind=_change_kind(setting, desired))


def _too_few_segments(setting: Setting, desired: object, catalog: SettingCatalog) -> str | None:
    """Return the reason if a size is below two WAL segments.

    A server accepts such a value on a reload, but does not start with it.
    """
    segment = catalog.get("wal_segment_size")
    if setting.name not in ("min_wal_size", "max_wal_size") or segment is None or not isinstance(desired, float):
        return None
    least = 2 * float(segment.value) / _MEMORY[setting.unit or "B"]
    if desired >= least:
        return None
    return f'"{setting.name}" must be at least {_format_number(least)}{setting.unit}: two WAL segments'


def effective_value(name: str, value: str, catalog: SettingCatalog) -> str | None:
    """Return the value that the server shows instead of `value`, with unit.

    None if the server has `value`, or if the comparison is not possible:

    - for parameters that the inspecting session has set itself;
    - for texts that a session may set, which the server normalises (`iso` becomes `ISO, MDY`);
    - for numbers up to 0, which often let the server choose.
    """
    setting = catalog.get(name)
    if setting is None or setting.session_settable or (setting.kind == "string" and setting.context == "user"):
        return None
    if classify(name, value, catalog).kind in ("Same", "Refused"):
        return None
    desired = _parse(setting, value)
    if isinstance(desired, float) and desired <= 0:
        return None
    return f"{setting.value} (in {setting.unit})" if setting.unit else setting.value


def _change_kind(setting: Setting, desired: object) -> Literal["Reload", "Restart", "Lowering"]:
    if setting.context != "postmaster":
        return "Reload"
    if setting.name in STANDBY_SENSITIVE and isinstance(desired, float) and desired < float(setting.value):
        return "Lowering"
    return "Restart"


def _parsed_current(setting: Setting) -> object:
    """Return the server's value in the form of `_parse`.

    The value is in the server's own unit.
    """
    match setting.kind:
        case "integer" | "real":
            return _parse_c_integer(setting.value)
        case "bool":
            return setting.value == "on"
        case "enum":
            return setting.value.lower()
        case "string":
            return setting.value


def _parse(setting: Setting, value: str) -> object:
    """Parse a value to a number, a bool, or text.

    Numbers are in the server's unit.

    Raises:
        ValueError: the message is the one of the server.
    """
    match setting.kind:
        case "integer" | "real":
            number = _parse_number(setting, value)
            lowest, highest = float(setting.minimum or "-inf"), float(setting.maximum or "inf")
            if not lowest <= number <= highest:
                unit = f" {setting.unit}" if setting.unit else ""
                raise ValueError(
                    f'{_format_number(number)}{unit} is outside the valid range for parameter "{setting.name}" '
                    f"({setting.minimum} .. {setting.maximum})"
                )
            return number
        case "bool":
            return _parse_bool(setting, value)
        case "enum":
            return _parse_enum(setting, value)
        case "string":
            return value


def _parse_number(setting: Setting, value: str) -> float:
    found = _NUMBER.fullmatch(value)
    if found is None:
        raise ValueError(f'invalid value for parameter "{setting.name}": "{value}"')
    digits, unit = found.groups()
    number = float(int(digits, 0)) if "x" in digits.lower() else float(_parse_c_integer(digits))
    if unit:
        number *= _unit_factor(setting, unit, value)
    # As the server rounds: to the nearest, and halves to the even number.
    return float(round(number)) if setting.kind == "integer" else number


def _parse_c_integer(digits: str) -> float:
    """Parse an integer as C does: a leading zero makes it octal."""
    return float(int(digits, 8)) if re.fullmatch(r"[+-]?0[0-7]+", digits) else float(digits)


def _unit_factor(setting: Setting, unit: str, value: str) -> float:
    """Return the number of the server's units in one of the user's."""
    base = _UNIT.fullmatch(setting.unit or "")
    for units in (_MEMORY, _TIME):
        if base is not None and base[2] in units:
            if unit in units:
                return units[unit] / (units[base[2]] * int(base[1] or 1))
            raise ValueError(
                f'invalid value for parameter "{setting.name}": "{value}". Valid units are {", ".join(units)}.'
            )
    raise ValueError(f'invalid value for parameter "{setting.name}": "{value}" (it has no unit)')


def _parse_bool(setting: Setting, value: str) -> bool:
    """Parse a Boolean: any unambiguous prefix of a keyword."""
    if (parsed := _bool_prefix(value)) is None:
        raise ValueError(f'parameter "{setting.name}" requires a Boolean value')
    return parsed


def _bool_prefix(value: str) -> bool | None:
    text = value.strip().lower()
    for message, truth in ((_TRUE, True), (_FALSE, False)):
        if text and text != "o" and any(word.startswith(text) for word in message):
            return truth
    return None


def _parse_enum(setting: Setting, value: str) -> str:
    text = value.strip().lower()
    if text in (choice.lower() for choice in setting.choices):
        return text
    # Most enums that were Booleans in old versions still accept Boolean keywords.
    for words in (_TRUE, _FALSE):
        if text in words and words[0] in setting.choices:
            return words[0]
    raise ValueError(
        f'invalid value for parameter "{setting.name}": "{value}". Available values: {", ".join(setting.choices)}.'
    )


def _format_number(number: float) -> str:
    return str(int(number)) if math.isfinite(number) and number == int(number) else str(number)
