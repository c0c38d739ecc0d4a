"""The status of a ``Database``, for what came of a reconcile."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from steersman.meta import ObjectMeta
from steersman_databases.api import Database, DatabaseSpec
from steersman_databases.api.references import ClusterKind, ClusterReference
from steersman_databases.controllers.outcome import Outcome, status_of, with_next_step
from steersman_databases.engines import Endpoint
from steersman_databases.engines.errors import (
    AccessRefused,
    AlreadyExists,
    CertificateRefused,
    EngineError,
    ServerUnreachable,
)

NOW = datetime(2026, 11, 26, tzinfo=UTC)
DONE = Outcome(phase="Ready", reason="DatabaseReady", message="it is there")


@pytest.mark.parametrize(("kind", "engine"), [("PostgreSQLCluster", "postgresql"), ("MySQLCluster", "mysql")])
def test_it_tells_the_engine_that_only_the_cluster_says(kind: ClusterKind, engine: str) -> None:
    spec = DatabaseSpec(cluster_ref=ClusterReference(name="main", kind=kind))
    database = Database(metadata=ObjectMeta(name="orders", namespace="shop"), spec=spec)
    assert status_of(database, DONE, Endpoint("main-rw", 1), "db", NOW).engine == engine


def _kinds(kind: type[EngineError]) -> Iterator[type[EngineError]]:
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


@pytest.mark.parametrize("kind", list(_kinds(EngineError)), ids=lambda kind: kind.__name__)
def test_whatever_a_server_refuses_is_told_with_what_to_do(kind: type[EngineError]) -> None:
    error = kind.__new__(kind)
    error.args = ("it went wrong",)
    told = with_next_step(error)
    assert told.startswith("it went wrong: ") or kind.next_step == ""


def test_what_an_error_says_itself_is_not_said_twice() -> None:
    told = with_next_step(AlreadyExists("role", "clerk"))
    assert told == str(AlreadyExists("role", "clerk")) and "set spec.adopt" in told


def test_a_certificate_that_is_refused_is_no_question_of_networks() -> None:
    endpoint = Endpoint("db.example.com", 5432)
    assert with_next_step(ServerUnreachable(endpoint, "no answer")).endswith("its address, and network policies")
    assert with_next_step(CertificateRefused(endpoint, "no trust")).endswith("within three minutes")


def test_who_is_refused_by_access_rules_is_told_where_they_stand() -> None:
    told = with_next_step(AccessRefused(Endpoint("db.example.com", 5432), "pg_hba.conf rejects connection"))
    assert "postgresql.pgHba" in told and "pg_hba.conf of another server" in told
    assert "network policies" not in told
