"""The status of a ``Database``, for what came of a reconcile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from steersman.meta import ObjectMeta
from steersman_databases.api import Database, DatabaseSpec
from steersman_databases.api.references import ClusterKind, ClusterReference
from steersman_databases.core.outcome import DatabaseOutcome, error_with_advice, status_of
from steersman_databases.engines import ServerEndpoint
from steersman_databases.engines.errors import (
    AccessDenied,
    AlreadyExists,
    CertificateRefused,
    EngineError,
    ServerUnreachable,
)

NOW = datetime(2026, 11, 26, tzinfo=UTC)
DONE = DatabaseOutcome(phase="Ready", reason="DatabaseReady", message="it is there")


@pytest.mark.parametrize(("kind", "engine"), [("PostgreSQLCluster", "postgresql"), ("MySQLCluster", "mysql")])
def test_engine_of_cluster_is_shown_in_status(kind: ClusterKind, engine: str) -> None:
    spec = DatabaseSpec(cluster_ref=ClusterReference(name="main", kind=kind))
    database = Database(metadata=ObjectMeta(name="orders", namespace="shop"), spec=spec)
    assert status_of(database, DONE, ServerEndpoint("main-rw", 1), "db", NOW).engine == engine


def _kinds(kind: type[EngineError]) -> Iterator[type[EngineError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


@pytest.mark.parametrize("kind", list(_kinds(EngineError)), ids=lambda kind: kind.__name__)
def test_engine_errors_have_advice(kind: type[EngineError]) -> None:
    error = kind.__new__(kind)
    error.args = ("it went wrong",)
    told = error_with_advice(error)
    assert told.startswith("it went wrong. ") or kind.advice == ""


def test_advice_in_error_is_not_repeated() -> None:
    told = error_with_advice(AlreadyExists("role", "clerk"))
    assert told == str(AlreadyExists("role", "clerk")) and "Set spec.adopt" in told


def test_certificate_error_gives_no_network_advice() -> None:
    endpoint = ServerEndpoint("db.example.com", 5432)
    assert error_with_advice(ServerUnreachable(endpoint, "no response")).endswith("its address, and network policies")
    assert error_with_advice(CertificateRefused(endpoint, "no trust")).endswith("within 3 minutes")


def test_hba_rejection_names_where_rules_are() -> None:
    told = error_with_advice(AccessDenied(ServerEndpoint("db.example.com", 5432), "pg_hba.conf rejects connection"))
    assert "postgresql.pgHba" in told and "pg_hba.conf of another server" in told
    assert "network policies" not in told
