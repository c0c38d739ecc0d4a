"""What writing a parameter means, over every parameter of PostgreSQL 15 and 17."""

from __future__ import annotations

from dataclasses import replace

import pytest

from database_support.setting_catalogs import CATALOGS
from steersman_databases.engines.cluster import SettingCatalog
from steersman_databases.engines.postgresql.parameters import judge, refused


@pytest.fixture(params=CATALOGS)
def settings(request: pytest.FixtureRequest) -> SettingCatalog:
    return CATALOGS[request.param]


def test_each_value_that_a_server_has_is_the_same(settings: SettingCatalog) -> None:
    for one in settings.values():
        if not refused(one.name, one.value) and one.context != "internal":
            assert judge(one.name, one.value, settings).kind == "Same", one


def test_the_context_tells_a_restart_from_a_reload(settings: SettingCatalog) -> None:
    for one in settings.values():
        if one.kind != "integer" or refused(one.name, one.value) or one.maximum == one.value:
            continue
        verdict = judge(one.name, one.maximum or "", settings)
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
        ("synchronous_commit", "TRUE", "Same", ""),
        ("synchronous_commit", "remote_apply", "Reload", ""),
        ("synchronous_commit", "perhaps", "Refused", "Available values: local, remote_write"),
        ("autovacuum", "f", "Reload", ""),
        ("autovacuum", "o", "Refused", "requires a Boolean value"),
        ("random_page_cost", "1.1", "Reload", ""),
        ("checkpoint_timeout", "1h", "Reload", ""),
        ("no_such_thing", "1", "Refused", "unrecognized configuration parameter"),
        ("pg_stat_statements.max", "10", "Reload", ""),
        ("fsync", "off", "Refused", "loses the database"),
        ("port", "5433", "Refused", "where the server listens"),
        ("archive_command", "true", "Refused", "the operator's"),
        ("server_version", "18", "Refused", "cannot be changed"),
        ("shared_preload_libraries", "x", "Refused", "sharedPreloadLibraries"),
        ("session_preload_libraries", "x", "Refused", "a session ends where one cannot be loaded"),
        ("min_wal_size", "31MB", "Refused", '"min_wal_size" must be at least 32MB: two WAL segments'),
        ("min_wal_size", "32MB", "Reload", ""),
        ("max_wal_size", "16MB", "Refused", "must be at least 32MB"),
        ("ssl_ciphers", "TLS_AES_256_GCM_SHA384", "Refused", "OpenSSL knows none of these ciphers of TLS 1.2"),
        ("ssl_ecdh_curve", "P-256", "Refused", "OpenSSL knows no curve of this name"),
        ("ssl_ecdh_curve", "X25519", "Refused", "no curve that ECDSA knows"),
        ("log_line_prefix", "a\nb", "Refused", "log_line_prefix: one line"),
        ("log_line_prefix", "a\r", "Refused", "log_line_prefix: one line"),
        ("log_line_prefix", "a\0", "Refused", "log_line_prefix: one line"),
        ("work_mem", "64MB\n", "Refused", "work_mem: one line"),
        ("rum.fuzzy_limit", "1", "Reload", ""),
        ("rum.fuzzy.limit", "1", "Refused", 'names are lower-case letters, digits and "_"'),
        ("rum.", "1", "Refused", "names are"),
        ("rum..limit", "1", "Refused", "names are"),
        (".limit", "1", "Refused", "names are"),
        ("rum.2limit", "1", "Refused", "names are"),
        ("default_table_access_method", "", "Refused", "cannot be empty"),
        ("default_table_access_method", "columnar", "Reload", ""),
        ("log_destination", "stderr, CSVLog", "Reload", ""),
        ("log_destination", '"jsonlog",syslog', "Reload", ""),
        ("log_destination", "eventlog", "Refused", "it is of stderr, csvlog, jsonlog and syslog"),
        ("log_destination", "stderr,", "Refused", "with commas between"),
        ("log_destination", '"stderr', "Refused", "with commas between"),
        ("log_destination", "stderr csvlog", "Refused", "it is of stderr, csvlog, jsonlog and syslog"),
    ],
)
def test_verdicts(settings: SettingCatalog, name: str, value: str, kind: str, words: str) -> None:
    verdict = judge(name, value, settings)
    assert (verdict.kind, words in verdict.reason) == (kind, True), verdict


def test_what_openssl_takes_is_left_to_the_server() -> None:
    assert refused("ssl_ciphers", "HIGH:!aNULL:unknown") is None
    assert refused("ssl_ecdh_curve", "secp384r1") is None
    assert refused("ssl_ecdh_curve", "prime239v1") is None, "a server does without"
    assert refused("SSL_Ciphers", "unknown") is not None


def test_what_a_server_reads_and_will_not_start_with_is_refused_where_it_has_it_already() -> None:
    known = CATALOGS["17"]
    read = {**known, "min_wal_size": replace(known["min_wal_size"], value="17")}
    assert judge("min_wal_size", "17MB", read).kind == "Refused"
