"""What writing a parameter means: nothing, a reload, a restart, or that the server would not take it.

PostgreSQL itself is asked by its view ``pg_settings``. That is needed before Patroni gets the value: it drops a name
it does not know and a value of the wrong type, and clamps to the bounds, with no more than a line in its log.

Source: PostgreSQL 17 documentation, 19.1 "Setting Parameters" and 52.25 "pg_settings".
"""

from __future__ import annotations

import math
import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from steersman_databases.engines.cluster import Setting, SettingCatalog, Verdict

LOWERED_ON_THE_PRIMARY_FIRST = frozenset(
    {
        "max_connections",
        "max_worker_processes",
        "max_wal_senders",
        "max_prepared_transactions",
        "max_locks_per_transaction",
    }
)
"""A standby with less of these than its primary had does not start. Source: documentation, 26.4.3 "Hot Standby"."""

NOT_WAITING = frozenset({"off", "local", "false", "no", "0"})
"""Values of ``synchronous_commit`` with which no commit waits for a standby."""

_OURS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("listen_addresses", "port", "unix_socket_directories", "unix_socket_group", "unix_socket_permissions"),
            *("bonjour", "bonjour_name"),
        ),
        "the operator decides where the server listens",
    ),
    **dict.fromkeys(
        (
            *("data_directory", "config_file", "hba_file", "ident_file", "external_pid_file"),
            *("log_directory", "log_filename", "logging_collector", "stats_temp_directory"),
        ),
        "the image decides where files are",
    ),
    **dict.fromkeys(
        (
            *("ssl", "ssl_cert_file", "ssl_key_file", "ssl_ca_file", "ssl_crl_file", "ssl_crl_dir"),
            *("ssl_passphrase_command", "ssl_passphrase_command_supports_reload", "ssl_dh_params_file"),
            *("krb_server_keyfile", "db_user_namespace"),
        ),
        "the operator keeps the certificates; use spec.tls",
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
        "the operator keeps replication; use spec.instances and spec.postgresql.synchronous",
    ),
    **dict.fromkeys(
        ("archive_mode", "archive_command", "archive_library", "archive_cleanup_command"),
        "archives are the operator's",
    ),
    **dict.fromkeys(
        (
            *("restore_command", "recovery_end_command", "recovery_target", "recovery_target_name"),
            *("recovery_target_time", "recovery_target_xid", "recovery_target_lsn", "recovery_target_inclusive"),
            *("recovery_target_timeline", "recovery_target_action"),
        ),
        "recovery is the operator's",
    ),
    **dict.fromkeys(("fsync", "full_page_writes"), "without it a crash loses the database"),
    **dict.fromkeys(
        ("transaction_deferrable", "transaction_isolation", "transaction_read_only"),
        "it is a transaction's own; set the parameter that begins with default_",
    ),
    "shared_preload_libraries": "use spec.postgresql.sharedPreloadLibraries",
    **dict.fromkeys(
        ("session_preload_libraries", "local_preload_libraries"),
        "a session ends where one cannot be loaded; use spec.postgresql.sharedPreloadLibraries",
    ),
    "password_encryption": "passwords are kept as SCRAM-SHA-256 only",
    "allow_alter_system": "what ALTER SYSTEM sets would outrank what is declared",
}

# A server's own names have no dot, an extension's one: of SET's "a.b.c" and "a.b$c" a file makes a syntax error.
# Source: src/backend/utils/misc/guc-file.l, ID and QUALIFIED_ID.
_NAME = re.compile(r"[a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)?")
_LINE_ENDS = re.compile(r"[\r\n\0]")
_DESTINATION = r'\s*("?)(?:stderr|csvlog|jsonlog|syslog)\{}\s*'
_DESTINATIONS = re.compile(rf"\s*|{_DESTINATION.format(1)}(?:,{_DESTINATION.format(2)})*", re.IGNORECASE)
_TRUE, _FALSE = ("on", "true", "yes", "1"), ("off", "false", "no", "0")
_NUMBER = re.compile(r"\s*([+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))\s*([A-Za-z]*)\s*")
_MEMORY: Mapping[str, float] = {"B": 1, "kB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_TIME: Mapping[str, float] = {"us": 1e-3, "ms": 1, "s": 1e3, "min": 6e4, "h": 3.6e6, "d": 8.64e7}
_NOT_ELLIPTIC = frozenset({"X25519", "X448"})
_UNIT = re.compile(r"(\d*)([A-Za-z]+)")


def refused(name: str, value: str) -> str | None:
    """Why a user may not set this at all, whatever the server is; None if he may."""
    folded = name.lower()
    if reason := _unreadable(folded, value):
        return reason
    if folded == "wal_level" and value.strip().lower() not in ("replica", "logical"):
        return "replicas need wal_level replica or logical"
    return _OURS.get(folded) or _unknown_to_openssl(folded, value)


def _unreadable(name: str, value: str) -> str | None:
    """Of a file with it a server reads nothing at all, and it does not start with it."""
    if _NAME.fullmatch(name) is None:
        return 'names are lower-case letters, digits and "_", with at most one "." in between'
    if _LINE_ENDS.search(value):
        return "one line, since a file of parameters takes no other: remove line breaks"
    if name == "default_table_access_method" and not value:
        return "it cannot be empty"
    if name == "log_destination" and _DESTINATIONS.fullmatch(value) is None:
        return "it is of stderr, csvlog, jsonlog and syslog, with commas between"
    return None


def _unknown_to_openssl(name: str, value: str) -> str | None:
    """A server that reads it again goes on with what it had, and does not start with it the next time."""
    if name == "ssl_ciphers":
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(value)
        except ssl.SSLError:
            return "no server starts with it: OpenSSL knows none of these ciphers of TLS 1.2"
    if name == "ssl_ecdh_curve":
        if value in _NOT_ELLIPTIC:
            return "no server starts with it: it is no curve that ECDSA knows; set one such as prime256v1"
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve(value)
        except ValueError:
            return "no server starts with it: OpenSSL knows no curve of this name"
        except ssl.SSLError:
            # It knows the curve, which is none of TLS's groups: a server starts with that, and does without.
            return None
    return None


def at_odds(values: Mapping[str, str]) -> Iterator[tuple[Sequence[str], str]]:
    """The parameters with which no server starts because of each other, and why; each is taken by itself."""
    lowest, highest = (values.get(f"ssl_{end}_protocol_version", "") for end in ("min", "max"))
    if highest and highest.lower() < (lowest or "TLSv1.2").lower():
        words = f"{highest} is before {lowest or 'TLSv1.2'}, ssl_min_protocol_version: no server starts with that"
        yield ("ssl_max_protocol_version", "ssl_min_protocol_version"), words
    whole, *parts = [f"log_{what}_stats" for what in ("statement", "parser", "planner", "executor")]
    others = [name for name in parts if _meant(values.get(name, "off"))]
    if _meant(values.get(whole, "off")) and others:
        words = f"no server starts with {whole} and {', '.join(others)}: turn one of both off"
        yield (whole, *others), words


def is_ours(name: str) -> bool:
    """Whether the parameter of this name, in lower case, is the operator's alone."""
    return name in _OURS


_SHARED_BUFFERS = Setting(name="shared_buffers", value="", unit="8kB", kind="integer")
_BLOCK = 8192


def held(name: str, value: str) -> int | None:
    """Bytes that a server takes for this parameter, whoever is connected; None for others and for no number."""
    if name != _SHARED_BUFFERS.name:
        return None
    try:
        return int(_number(_SHARED_BUFFERS, value.strip())) * _BLOCK
    except (OverflowError, ValueError):
        return None


def judge(name: str, value: str, catalog: SettingCatalog) -> Verdict:
    """What giving the parameter this value means on the server whose ``pg_settings`` is ``catalog``.

    Names with a dot are an extension's, which need not be loaded: they are taken as they are.
    """
    if reason := refused(name, value):
        return Verdict(kind="Refused", reason=f"{name}: {reason}")
    known = catalog.get(name.lower()) or next(
        (one for one in catalog.values() if one.name.lower() == name.lower()), None
    )
    if known is None:
        if "." in name:
            return Verdict(kind="Reload")
        return Verdict(kind="Refused", reason=f'unrecognized configuration parameter "{name}"')
    if known.context == "internal":
        return Verdict(kind="Refused", reason=f'parameter "{name}" cannot be changed')
    try:
        wanted = _parsed(known, value)
    except ValueError as error:
        return Verdict(kind="Refused", reason=str(error))
    if reason := _too_few_segments(known, wanted, catalog):
        return Verdict(kind="Refused", reason=reason)
    if wanted == _parsed_own(known):
        return Verdict(kind="Same")
    return Verdict(kind=_kind(known, wanted))


def _too_few_segments(known: Setting, wanted: object, catalog: SettingCatalog) -> str | None:
    """A server takes it when it reads it again, and does not start with it the next time."""
    segment = catalog.get("wal_segment_size")
    if known.name not in ("min_wal_size", "max_wal_size") or segment is None or not isinstance(wanted, float):
        return None
    least = 2 * float(segment.value) / _MEMORY[known.unit or "B"]
    if wanted >= least:
        return None
    return f'"{known.name}" must be at least {_plain(least)}{known.unit}: two WAL segments'


def shown_instead(name: str, value: str, catalog: SettingCatalog) -> str | None:
    """What the server shows in place of ``value``, with its unit; None where it has that, or where nobody can tell.

    That is so for what the session that asked has of its own; for texts that a session may set, whose form the server
    changes (``iso`` is shown as ``ISO, MDY``); and for numbers up to 0, which often let the server choose.
    """
    known = catalog.get(name)
    if known is None or known.of_session or (known.kind == "string" and known.context == "user"):
        return None
    if judge(name, value, catalog).kind in ("Same", "Refused"):
        return None
    wanted = _parsed(known, value)
    if isinstance(wanted, float) and wanted <= 0:
        return None
    return f"{known.value} (in {known.unit})" if known.unit else known.value


def _kind(known: Setting, wanted: object) -> Literal["Reload", "Restart", "Lowering"]:
    if known.context != "postmaster":
        return "Reload"
    if known.name in LOWERED_ON_THE_PRIMARY_FIRST and isinstance(wanted, float) and wanted < float(known.value):
        return "Lowering"
    return "Restart"


def _parsed_own(known: Setting) -> object:
    """The server's value, which is in its own unit, in the form of `_parsed`."""
    match known.kind:
        case "integer" | "real":
            return _octal(known.value)
        case "bool":
            return known.value == "on"
        case "enum":
            return known.value.lower()
        case "string":
            return known.value


def _parsed(known: Setting, value: str) -> object:
    """The value as a number in the server's unit, a truth value, or text. Raises ValueError in the server's words."""
    match known.kind:
        case "integer" | "real":
            number = _number(known, value)
            lowest, highest = float(known.minimum or "-inf"), float(known.maximum or "inf")
            if not lowest <= number <= highest:
                unit = f" {known.unit}" if known.unit else ""
                raise ValueError(
                    f'{_plain(number)}{unit} is outside the valid range for parameter "{known.name}" '
                    f"({known.minimum} .. {known.maximum})"
                )
            return number
        case "bool":
            return _truth(known, value)
        case "enum":
            return _choice(known, value)
        case "string":
            return value


def _number(known: Setting, value: str) -> float:
    found = _NUMBER.fullmatch(value)
    if found is None:
        raise ValueError(f'invalid value for parameter "{known.name}": "{value}"')
    digits, unit = found.groups()
    number = float(int(digits, 0)) if "x" in digits.lower() else float(_octal(digits))
    if unit:
        number *= _factor(known, unit, value)
    # As the server does it: the nearest, and of two the even one.
    return float(round(number)) if known.kind == "integer" else number


def _octal(digits: str) -> float:
    """C's way to write integers: a leading zero makes them octal."""
    return float(int(digits, 8)) if re.fullmatch(r"[+-]?0[0-7]+", digits) else float(digits)


def _factor(known: Setting, unit: str, value: str) -> float:
    """How many of the server's units one of the user's is."""
    base = _UNIT.fullmatch(known.unit or "")
    for units in (_MEMORY, _TIME):
        if base is not None and base[2] in units:
            if unit in units:
                return units[unit] / (units[base[2]] * int(base[1] or 1))
            raise ValueError(
                f'invalid value for parameter "{known.name}": "{value}". Valid units are {", ".join(units)}.'
            )
    raise ValueError(f'invalid value for parameter "{known.name}": "{value}" (it has no unit)')


def _truth(known: Setting, value: str) -> bool:
    """Any beginning of a word that only one of both has."""
    if (meant := _meant(value)) is None:
        raise ValueError(f'parameter "{known.name}" requires a Boolean value')
    return meant


def _meant(value: str) -> bool | None:
    text = value.strip().lower()
    for words, truth in ((_TRUE, True), (_FALSE, False)):
        if text and text != "o" and any(word.startswith(text) for word in words):
            return truth
    return None


def _choice(known: Setting, value: str) -> str:
    text = value.strip().lower()
    if text in (choice.lower() for choice in known.choices):
        return text
    # Most of those that were switches once still take a switch's words.
    for words in (_TRUE, _FALSE):
        if text in words and words[0] in known.choices:
            return words[0]
    raise ValueError(
        f'invalid value for parameter "{known.name}": "{value}". Available values: {", ".join(known.choices)}.'
    )


def _plain(number: float) -> str:
    return str(int(number)) if math.isfinite(number) and number == int(number) else str(number)
