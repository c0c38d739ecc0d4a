"""The status of a ``Database``, for what came of a reconcile."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from steersman.meta import ObjectMeta
from steersman_databases.api import Database, DatabaseSpec
from steersman_databases.api.references import ClusterKind, ClusterReference
from steersman_databases.controllers.outcome import Outcome, status_of
from steersman_databases.engines import Endpoint

NOW = datetime(2026, 11, 26, tzinfo=UTC)
DONE = Outcome(phase="Ready", reason="DatabaseReady", message="it is there")


@pytest.mark.parametrize(("kind", "engine"), [("PostgreSQLCluster", "postgresql"), ("MySQLCluster", "mysql")])
def test_it_tells_the_engine_that_only_the_cluster_says(kind: ClusterKind, engine: str) -> None:
    spec = DatabaseSpec(cluster_ref=ClusterReference(name="main", kind=kind))
    database = Database(metadata=ObjectMeta(name="orders", namespace="shop"), spec=spec)
    assert status_of(database, DONE, Endpoint("main-rw", 1), "db", NOW).engine == engine
