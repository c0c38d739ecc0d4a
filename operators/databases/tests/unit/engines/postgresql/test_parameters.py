"""Effect of a change of each parameter of PostgreSQL 15, 17 and 18."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.setting_catalogs import CATALOGS
from steersman_databases.engines.cluster_engine import SettingCatalog
from steersman_databases.engines.postgresql.config.parameters import classify, rejection_reason
from steersman_databases.engines.postgresql.config.setting_validation import slot_conflicts


@pytest.fixture(params=CATALOGS)
def settings(request: pytest.FixtureRequest) -> SettingCatalog:
    return CATALOGS[request.param]


def test_current_values_classify_as_same(settings: SettingCatalog) -> None:
    for one in settings.values():
        if not rejection_reason(one.name, one.value) and one.context != "internal":
            assert classify(one.name, one.value, settings).kind == "Same", one


def test_context_distinguishes_restart_from_reload(settings: SettingCatalog) -> None:
    for one in settings.values():
        if one.kind != "integer" or rejection_reason(one.name, one.value) or one.maximum == one.value:
            continue
        verdict = classify(one.name, one.maximum or "", settings)
        expected = {"internal": "Refused", "postmaster": "Restart"}.get(one.context, "Reload")
        assert verdict.kind == expected, (one, verdict)


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        ("work_mem", "16MB", "Reload", ""),
        ("WORK_MEM", "4096", "Same", ""),
        ("work_mem", "0.5GB", "Reload", ""),
        ("work_mem", "4096kB", "Same", ""),
        ("work_mem", "1kB", "Refused", "outside the valid range"),
        ("work_mem", "10 bananas", "Refused", "Valid units are B, kB, MB, GB, TB"),
        ("work_mem", "10s", "Refused", "Valid units"),
        ("work_mem", "much", "Refused", "invalid value"),
        ("shared_buffers", "256MB", "Restart", ""),
        ("max_connections", "200", "Restart", ""),
        ("max_connections", "20", "Lowering", ""),
        ("max_connections", "100 s", "Refused", "no unit"),
        ("max_wal_senders", "5", "Lowering", ""),
        ("wal_level", "logical", "Restart", ""),
        ("wal_level", "minimal", "Refused", "replicas need"),
        ("default_transaction_isolation", "Serializable", "Refused", "use ALTER ROLE"),
        ("default_transaction_isolation", "repeatable read", "Reload", ""),
        ("synchronous_commit", "TRUE", "Same", ""),
        ("synchronous_commit", "remote_apply", "Reload", ""),
        ("synchronous_commit", "perhaps", "Refused", "Available values: local, remote_write"),
        ("autovacuum", "f", "Reload", ""),
        ("autovacuum", "o", "Refused", "requires a Boolean value"),
        ("random_page_cost", "1.1", "Reload", ""),
        ("checkpoint_timeout", "1h", "Reload", ""),
        ("no_such_thing", "1", "Refused", "unrecognized configuration parameter"),
        ("pg_stat_statements.max", "10", "Reload", ""),
        ("fsync", "off", "Refused", "corrupts the database"),
        ("port", "5433", "Refused", "manages listen addresses"),
        ("archive_command", "true", "Refused", "use spec.backup"),
        ("archive_timeout", "30s", "Refused", "use spec.backup.archive.interval"),
        ("server_version", "18", "Refused", "cannot be changed"),
        ("shared_preload_libraries", "x", "Refused", "sharedPreloadLibraries"),
        ("session_preload_libraries", "x", "Refused", "a missing library ends each session"),
        ("min_wal_size", "31MB", "Refused", '"min_wal_size" must be at least 32MB: two WAL segments'),
        ("min_wal_size", "32MB", "Reload", ""),
        ("max_wal_size", "16MB", "Refused", "must be at least 32MB"),
        ("ssl_ciphers", "TLS_AES_256_GCM_SHA384", "Refused", "OpenSSL supports none of these TLS 1.2 ciphers"),
        ("ssl_ecdh_curve", "P-256", "Refused", "OpenSSL does not support this curve"),
        ("ssl_ecdh_curve", "X25519", "Refused", "ECDSA does not support this curve"),
        ("ssl_groups", "X25519:P-0", "Refused", "OpenSSL does not support 'P-0'"),
        ("ssl_tls13_ciphers", "HIGH", "Refused", "'HIGH' is not a TLS 1.3 cipher suite"),
        ("log_connections", "perhaps", "Refused", "it is on, off, or a list of receipt"),
        ("log_connections", "yes", "Reload", ""),
        ("io_method", "io_uring", "Refused", "use worker"),
        ("idle_replication_slot_timeout", "1h", "Refused", "would invalidate slots"),
        ("log_line_prefix", "a\nb", "Refused", "log_line_prefix: it cannot contain line breaks"),
        ("log_line_prefix", "a\r", "Refused", "log_line_prefix: it cannot contain line breaks"),
        ("log_line_prefix", "a\0", "Refused", "log_line_prefix: it cannot contain line breaks"),
        ("work_mem", "64MB\n", "Refused", "work_mem: it cannot contain line breaks"),
        ("rum.fuzzy_limit", "1", "Reload", ""),
        ("rum.fuzzy.limit", "1", "Refused", 'names consist of lower-case letters, digits and "_"'),
        ("rum.", "1", "Refused", "names consist of"),
        ("rum..limit", "1", "Refused", "names consist of"),
        (".limit", "1", "Refused", "names consist of"),
        ("rum.2limit", "1", "Refused", "names consist of"),
        ("default_table_access_method", "", "Refused", "cannot be empty"),
        ("default_table_access_method", "columnar", "Reload", ""),
        ("log_destination", "stderr, CSVLog", "Reload", ""),
        ("log_destination", '"jsonlog",syslog', "Reload", ""),
        ("log_destination", "eventlog", "Refused", "it is a list of stderr, csvlog, jsonlog and syslog"),
        ("log_destination", "stderr,", "Refused", "separated by commas"),
        ("log_destination", '"stderr', "Refused", "separated by commas"),
        ("log_destination", "stderr csvlog", "Refused", "it is a list of stderr, csvlog, jsonlog and syslog"),
    ],
)
def test_classification_matches_examples(
    settings: SettingCatalog, name: str, value: str, kind: str, words: str
) -> None:
    verdict = classify(name, value, settings)
    assert (verdict.kind, words in verdict.reason) == (kind, True), verdict


def test_openssl_strings_are_left_to_the_server() -> None:
    assert rejection_reason("ssl_ciphers", "HIGH:!aNULL:unknown") is None
    assert rejection_reason("ssl_ecdh_curve", "secp384r1") is None
    assert rejection_reason("ssl_ecdh_curve", "prime239v1") is None, "a server does without"
    for groups in ("X25519:prime256v1", "X25519MLKEM768:X25519"):
        assert rejection_reason("ssl_groups", groups) is None
    assert rejection_reason("ssl_tls13_ciphers", "TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256") is None
    assert rejection_reason("ssl_tls13_ciphers", "") is None
    assert rejection_reason("SSL_Ciphers", "unknown") is not None


def test_log_connections_of_18_is_a_list() -> None:
    assert classify("log_connections", "receipt, Authorization", CATALOGS["18"]).kind == "Reload"
    assert classify("log_connections", "receipt", CATALOGS["17"]).kind == "Refused"


def test_value_blocking_start_is_rejected_even_if_current() -> None:
    known = CATALOGS["17"]
    read = {**known, "min_wal_size": replace(known["min_wal_size"], value="17")}
    assert classify("min_wal_size", "17MB", read).kind == "Refused"


def test_slot_conflicts_name_slots() -> None:
    slots = {"cdc": True, "receiver": False}
    conflicts = slot_conflicts({"wal_level": "replica", "max_replication_slots": "1"}, slots)
    assert conflicts == {
        "wal_level": 'a server could not start with parameter "wal_level" = replica: its logical replication slots '
        "cdc need wal_level logical. Drop slots first",
        "max_replication_slots": 'a server could not start with parameter "max_replication_slots" = 1: it has 2 '
        "replication slots: cdc, receiver. Drop slots first",
    }
    assert slot_conflicts({"wal_level": " Logical", "max_replication_slots": "2"}, slots) == {}
    assert slot_conflicts({"wal_level": "replica"}, {"receiver": False}) == {}
    assert slot_conflicts({}, slots) == {}
