"""``kubectl steersman tuning``."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.unit.plugin import KEY, call, reached, server
from steersman.client import Client, MergePatch
from steersman_databases.api import PostgreSQLCluster
from steersman_testing import InMemoryApiServer

__all__ = ["reached", "server"]

RECOMMENDED = {
    "parameter": "max_wal_size",
    "rule": "CheckpointsRequested",
    "current": "1GB",
    "value": "2GB",
    "evidence": "9 of 10 checkpoints were requested",
    "effect": "Less WAL",
    "restart": False,
}
STATUS = {"observedSince": "2030-01-01T00:00:00Z", "recommendations": [RECOMMENDED]}
TEXT = """\
CheckpointsRequested: max_wal_size = 2GB, now 1GB
  Evidence: 9 of 10 checkpoints were requested.
  Effect: Less WAL.

Trial of work_mem = 8MB: Ended, Worse
  more bytes.

Observed since 2030-01-01 00:00 UTC.
"""


def change(server: InMemoryApiServer, status: Any = None, **spec: Any) -> None:
    """Patch the cluster, and its tuning in the status."""

    async def patch() -> None:
        client = Client(server)
        await client.patch(PostgreSQLCluster, KEY, MergePatch({"spec": spec}))
        await client.patch(PostgreSQLCluster, KEY, MergePatch({"status": {"tuning": status}}), subresource="status")

    asyncio.run(patch())


def cluster(server: InMemoryApiServer) -> PostgreSQLCluster:
    """The cluster as stored."""
    found = server.read(PostgreSQLCluster, KEY)
    assert found is not None
    return found


def test_show_prints_evidence_and_trial(server: InMemoryApiServer) -> None:
    trial = {"parameter": "work_mem", "value": "8MB", "state": "Ended", "verdict": "Worse", "message": "more bytes"}
    change(server, {**STATUS, "trial": trial}, tuning={})
    shown = call("tuning", "show", "shop")
    assert (shown.exit_code, shown.stdout) == (0, TEXT)


def test_show_without_tuning_says_how_to_declare_it(server: InMemoryApiServer) -> None:
    shown = call("tuning", "show", "shop")
    assert shown.exit_code == 0 and shown.stdout == "No recommendations.\n"
    assert "does not declare spec.tuning" in shown.stderr


def test_try_declares_the_recommended_value_for_a_time(server: InMemoryApiServer) -> None:
    change(server, STATUS, tuning={})
    before = datetime.now(UTC)
    assert call("tuning", "try", "shop", "max_wal_size", "--for", "3h").exit_code == 0
    tuning = cluster(server).spec.tuning
    assert tuning is not None and tuning.trial is not None
    assert (tuning.trial.parameter, tuning.trial.value) == ("max_wal_size", "2GB")
    assert timedelta(hours=2.9) < tuning.trial.until - before < timedelta(hours=3.1)


def test_keep_declares_the_value_and_removes_the_trial(server: InMemoryApiServer) -> None:
    assert call("tuning", "try", "shop", "work_mem", "8MB").exit_code == 0
    assert call("tuning", "keep", "shop").exit_code == 0
    spec = cluster(server).spec
    assert spec.postgresql.parameters["work_mem"] == "8MB"
    assert spec.tuning is not None and spec.tuning.trial is None


def test_stop_removes_the_trial_only(server: InMemoryApiServer) -> None:
    assert call("tuning", "try", "shop", "work_mem", "8MB").exit_code == 0
    assert call("tuning", "stop", "shop").exit_code == 0
    spec = cluster(server).spec
    assert "work_mem" not in spec.postgresql.parameters
    assert spec.tuning is not None and spec.tuning.trial is None


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("try", "shop", "shared_buffers", "1GB"), 2, "parameter shared_buffers cannot be tried. Choose one of"),
        (("try", "shop", "work_mem"), 2, "there is no recommendation for work_mem in prod/shop. Add a value"),
        (
            ("try", "shop", "work_mem", "lots"),
            1,
            "the value is a number, for max_wal_size and work_mem with the unit",
        ),
        (("try", "shop", "max_wal_size", "2"), 1, "such as 64MB"),
        (("try", "shop", "work_mem", "8MB", "--for", "5m"), 2, "--for: 5m is not from 30m to 168h"),
        (("try", "shop", "work_mem", "8MB", "--for", "long"), 2, "--for: 'long' is not a duration"),
        (("keep", "shop"), 1, "cluster prod/shop has no trial"),
        (("stop", "shop"), 1, "cluster prod/shop has no trial"),
    ],
)
def test_impossible_request_is_refused(
    server: InMemoryApiServer, arguments: tuple[str, ...], code: int, message: str
) -> None:
    refused = call("tuning", *arguments)
    assert refused.exit_code == code and message in refused.stderr
    assert cluster(server).spec.tuning is None


def test_disabled_tuning_refuses_a_trial(server: InMemoryApiServer) -> None:
    change(server, tuning={"mode": "Disabled"})
    refused = call("tuning", "try", "shop", "work_mem", "8MB")
    assert refused.exit_code == 1 and "is Disabled. Set it to Recommend" in refused.stderr
