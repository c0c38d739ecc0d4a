"""The path of the demo and one fault, required for every change."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from database_support.e2e.database import DatabaseUnderTest
from devcluster.images import CHECKOUT
from devcluster.target import Target

DEMO = Path("operators/databases/demo")


@pytest.mark.smoke
def test_demo_succeeds() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)],
        cwd=CHECKOUT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=840,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All steps succeeded." in done.stdout
    for told in ("row: a client", "0 errors", "0 failed", "0 rows lost"):
        assert told in done.stdout


@pytest.mark.smoke
def test_killed_server_restarts_with_its_data(cluster: Target, namespace: str) -> None:
    database = DatabaseUnderTest(cluster, namespace, "orders", "postgresql")
    database.apply(deletionPolicy="Delete")
    database.wait_ready()
    database.client_sql("CREATE TABLE t (n INT)")
    database.client_sql("INSERT INTO t VALUES (1)")
    cluster.kubectl(
        "delete", "pod", database.pod, f"--namespace={namespace}", "--force", "--grace-period=0", seconds=60
    )
    database.eventually("the row is there", lambda: database.client_sql("SELECT n FROM t") == "1", seconds=120)
    database.wait_ready()
    database.delete()
    database.eventually("nothing is left", lambda: not database.objects(), seconds=60)
