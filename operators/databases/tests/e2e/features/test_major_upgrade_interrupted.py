"""PostgreSQL 15 becomes 17, although who carries it out is ended in the middle: the Job's pod, and the operator."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient
from devcluster.target import Target

ROWS = 2000
# What is indexed is computed anew with 17 only: the Job stays in the middle of its work for as long as that takes,
# when the index is rebuilt and when statistics are gathered.
DATA = f"""
CREATE FUNCTION public.slow(t text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  IF current_setting('server_version_num')::int >= 170000 THEN PERFORM pg_sleep(10); END IF;
  RETURN t;
END $$;
CREATE TABLE held (t text COLLATE "de-x-icu");
INSERT INTO held VALUES ('Ö');
CREATE INDEX held_slow ON held (public.slow(t));
CREATE TABLE entry AS SELECT i AS id, md5(i::text) AS sum FROM generate_series(1, {ROWS}) i
"""
WHOLE = "SELECT count(*) FROM entry WHERE sum = md5(id::text)"
IN_THE_MIDDLE = "REINDEX INDEX public.held_slow"


@pytest.fixture
def single(place_of_15: NamespaceClient) -> ClusterUnderTest:
    """One instance of 15 with data."""
    spec = {**SMALL_SPEC, "version": "15", "instances": 1, "storage": {"size": "1Gi"}}
    made = ClusterUnderTest(place_of_15, "single", spec)
    made.apply()
    made.wait_ready()
    made.sql(DATA)
    return made


def jobs_pods(single: ClusterUnderTest) -> dict[str, dict[str, Any]]:
    """Those of the Job that upgrades, by their names, without those on their way out."""
    found = single.namespace_client.all("pods", "--selector=batch.kubernetes.io/job-name=single-upgrade")
    return {pod["metadata"]["name"]: pod for pod in found if "deletionTimestamp" not in pod["metadata"]}


def working(single: ClusterUnderTest) -> str:
    """The pod that is in the middle of the upgrade."""

    def found() -> str | None:
        for name, pod in jobs_pods(single).items():
            if pod["status"]["phase"] == "Running" and IN_THE_MIDDLE in single.namespace_client.kubectl("logs", name):
                return name
        return None

    return single.until("the Job is in the middle", found, 300)


def delete_by_force(single: ClusterUnderTest, pod: str) -> None:
    single.namespace_client.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--wait=false")
    single.until("the Job has another pod", lambda: set(jobs_pods(single)) - {pod}, 120)


def ends_well(single: ClusterUnderTest) -> None:
    """17 serves all that 15 did, and nothing of the upgrade is left but what can be returned to."""
    single.namespace_client.wait_reason(single.kind, single.name, "Current", "UpToDate", seconds=400)
    single.wait_ready()
    assert str(single.status["version"]).startswith("17.")
    assert single.sql("SELECT current_setting('server_version_num')::int / 10000") == "17"
    assert single.sql(WHOLE) == str(ROWS)
    assert single.sql("SET enable_seqscan = off; SELECT t FROM held WHERE slow(t) = 'Ö'") == "Ö"
    volume = single.execute(single.primary, "ls", "-A", "/var/lib/steersman/data").split()
    assert {name for name in volume if name.startswith(("pgdata", "former"))} == {"pgdata", "former-15"}


@pytest.mark.timeout(1200)
def test_upgrade_pod_force_deleted_is_retried(single: ClusterUnderTest) -> None:
    single.apply(version="17")
    delete_by_force(single, working(single))
    ends_well(single)


@pytest.mark.disruptive
@pytest.mark.timeout(1200)
def test_operator_killed_during_each_upgrade_stage(cluster: Target, single: ClusterUnderTest) -> None:
    def job() -> dict[str, Any]:
        return single.namespace_client.get("job", "single-upgrade")

    single.apply(version="17")
    single.until("the image is looked at", lambda: single.namespace_client.get("job", "single-upgrade-check"), 120)
    e2e_operator.kill(cluster)
    single.until("the Job is made", job, 180)
    e2e_operator.kill(cluster)
    pod = working(single)
    e2e_operator.kill(cluster)
    # The next one begins anew: it is not at its end before the operator is away.
    delete_by_force(single, pod)
    with e2e_operator.operator_stopped(cluster):
        single.until("the data are upgraded", lambda: job().get("status", {}).get("succeeded"), 300)
    # From here on it is told by the claim, and 17 is started.
    single.until("the Job is over for the operator", lambda: not job(), 180)
    e2e_operator.kill(cluster)
    ends_well(single)
