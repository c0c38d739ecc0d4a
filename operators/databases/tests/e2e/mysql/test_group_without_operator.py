"""What a MySQL cluster does by itself: its parts are made by hand, and no operator looks after it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.e2e.mysql_cluster import MySQLPods
from devcluster.images import MYSQL, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target, wait_until

NAMESPACE = "e2e-mysql-members"
# Of copies and crash recovery side by side, on a machine that does other things.
PATIENCE = 300

pytestmark = [pytest.mark.xdist_group("mysql-members"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(bare_cluster: Target) -> Generator[MySQLPods]:
    """Three members, whose first bootstrap is interrupted wherever it is."""
    if not bare_cluster.is_devcluster:
        pytest.skip("loads an image into the devcluster")
    image = ensure(MYSQL, Progress())
    load(image)
    bare_cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=180s", seconds=200)
    bare_cluster.kubectl("create", "namespace", NAMESPACE)
    cluster = MySQLPods(bare_cluster, NAMESPACE, image.reference)
    cluster.apply()
    yield cluster
    bare_cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=180s", seconds=200)


@pytest.fixture
def leader(cluster: MySQLPods) -> str:
    return wait_until("all are online", cluster.settled, seconds=PATIENCE)


def write(cluster: MySQLPods, pod: str) -> int:
    cluster.sql(pod, "CREATE DATABASE IF NOT EXISTS shop; CREATE TABLE IF NOT EXISTS shop.kept (id SERIAL)")
    cluster.sql(pod, "INSERT INTO shop.kept VALUES (), (), ()")
    return kept(cluster, pod)


def kept(cluster: MySQLPods, pod: str) -> int:
    return int(cluster.sql(pod, "SELECT COUNT(*) FROM shop.kept"))


def another(cluster: MySQLPods, than: str) -> str:
    def found() -> str | None:
        leader = cluster.leader()
        return leader if leader != than else None

    return wait_until("another leads", found, seconds=PATIENCE)


def test_bootstrap_with_killed_pods_forms_one_group(cluster: MySQLPods) -> None:
    first = cluster.pod(0)
    wait_until("the first one begins", lambda: cluster.members().get(first, {}).get("state"), seconds=PATIENCE)
    cluster.kubectl("delete", "pod", first, "--force", "--grace-period=0")
    wait_until("a group was founded", lambda: cluster.group().get("epoch"), seconds=PATIENCE)
    cluster.kubectl("delete", "pod", cluster.pod(1), "--force", "--grace-period=0")
    leader = wait_until("all are online", cluster.settled, seconds=PATIENCE)
    assert leader == first and cluster.group()["epoch"] in (1, 2)
    write(cluster, leader)


def test_pod_force_deleted_is_succeeded(cluster: MySQLPods, leader: str) -> None:
    rows = write(cluster, leader)
    cluster.kubectl("delete", "pod", leader, "--force", "--grace-period=0")
    assert kept(cluster, another(cluster, leader)) == rows


def test_pod_deleted_switches_over(cluster: MySQLPods, leader: str) -> None:
    rows = write(cluster, leader)
    cluster.kubectl("delete", "pod", leader, "--wait=false")
    successor = another(cluster, leader)
    assert kept(cluster, successor) == rows
    assert cluster.sql(successor, "SELECT @@hostname", host=f"{cluster.name}-rw") == successor


def test_all_pods_deleted_recover_without_loss(cluster: MySQLPods, leader: str) -> None:
    rows, epoch = write(cluster, leader), cluster.group()["epoch"]
    names = [cluster.pod(number) for number in range(cluster.instances)]
    cluster.kubectl("delete", "pod", *names, "--force", "--grace-period=0")
    wait_until("a group is founded", lambda: cluster.group()["epoch"] > epoch, seconds=PATIENCE)
    assert kept(cluster, wait_until("all are online", cluster.settled, seconds=PATIENCE)) == rows
