"""What PgBouncer reads. That it takes it so was tried on the real one; see decision 31."""

from __future__ import annotations

import configparser

from steersman_databases.features.pooler.pgbouncer import PgBouncerSettings, files


def settings(pooling: PgBouncerSettings) -> dict[str, str]:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(files(pooling)["pgbouncer.ini"])
    return dict(parser["pgbouncer"])


def test_user_parameters_override_only_allowed_ones() -> None:
    parameters = {
        "default_pool_size": "7",
        "max_client_conn": "50",
        "auth_type": "any",
        "client_tls_sslmode": "disable",
    }
    told = settings(PgBouncerSettings(host="orders-rw", mode="session", parameters=parameters))
    assert (told["default_pool_size"], told["max_client_conn"], told["pool_mode"]) == ("7", "50", "session")
    assert (told["auth_type"], told["client_tls_sslmode"], told["server_tls_sslmode"]) == (
        "hba",
        "require",
        "verify-full",
    )


def test_operator_roles_and_console_are_protected() -> None:
    rules = files(PgBouncerSettings(host="orders-rw", mode="transaction"))["hba.conf"].split("\n")
    console = [r for r in rules if " pgbouncer " in r]
    assert console == [
        "local pgbouncer postgres peer",
        "hostssl pgbouncer steersman_operator all cert",
        "host pgbouncer all all reject",
    ]
    everybody = rules.index("hostssl all all all scram-sha-256")
    for account in ("postgres", "operator", "superuser", "replication", "rewind", "pooler"):
        name = account if account == "postgres" else f"steersman_{account}"
        assert rules.index(f"host all {name} all reject") < everybody
    assert rules.index(console[-1]) < everybody


def test_clear_text_only_if_declared() -> None:
    pooling = PgBouncerSettings(host="orders-rw", mode="transaction", tls_required=False)
    assert settings(pooling)["client_tls_sslmode"] == "allow"
    assert "host all all all scram-sha-256" in files(pooling)["hba.conf"]
    assert "hostssl pgbouncer steersman_operator all cert" in files(pooling)["hba.conf"]


def test_failover_timeouts_are_bounded() -> None:
    told = settings(PgBouncerSettings(host="orders-rw", mode="transaction", parameters={"query_wait_timeout": "300"}))
    assert (told["server_login_retry"], told["server_connect_timeout"]) == ("0.2", "5")
    assert int(told["tcp_keepidle"]) + int(told["tcp_keepintvl"]) * int(told["tcp_keepcnt"]) == 30
    assert told["tcp_user_timeout"] == "30000"
    # Upgrades promise two minutes, to those who log in meanwhile, too.
    assert (told["query_wait_timeout"], told["client_login_timeout"]) == ("300", "120")
    assert settings(PgBouncerSettings(host="orders-rw", mode="transaction"))["query_wait_timeout"] == "120"
