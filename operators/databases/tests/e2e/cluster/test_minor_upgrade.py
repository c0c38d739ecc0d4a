"""PostgreSQL 15 as Debian released it becomes 15 as it is now: another minor version, and no stand-in for one."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient, writing
from database_support.nodes.lost_nodes import number_of
from devcluster import containers, layout
from devcluster.images import POSTGRESQL_15, ensure, load
from devcluster.progress import Progress
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("minor-upgrade"), pytest.mark.timeout(1500)]

OLDER, NEWER = "steersman.dev/postgresql-older:15", POSTGRESQL_15.reference
MOVED = "steersman.dev/postgresql-moved:15"
"""A tag that means one of them on some nodes, and the other on others."""
ALL_SUITES = "s/trixie/bookworm/g"
DATA = "CREATE TABLE entry AS SELECT i AS id, digest(i::text, 'sha256') AS sum FROM generate_series(1, 5000) i"
SOUND = "SELECT count(*) FROM entry WHERE sum = digest(id::text, 'sha256')"


@pytest.fixture(scope="module")
def versions(cluster: Target, shared: NamespaceClient, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What the two images have, in the nodes by now. The older one is made without the suite of security updates."""
    if not cluster.is_devcluster:
        pytest.skip("loads images into the devcluster")
    text = POSTGRESQL_15.containerfile.read_text()
    assert text.count(ALL_SUITES) == 1
    containerfile = tmp_path_factory.mktemp("older") / "Containerfile"
    containerfile.write_text(text.replace(ALL_SUITES, f"-e {ALL_SUITES} -e /-security/d"))
    for recipe in (replace(POSTGRESQL_15, reference=OLDER, containerfile=containerfile), POSTGRESQL_15):
        load(ensure(recipe, Progress()))
    older, newer = version_in(shared, "older", OLDER), version_in(shared, "newer", NEWER)
    if older == newer:
        pytest.skip(f"no older minor is to be had: Debian bookworm and its security updates both have {newer}")
    return older, newer


def version_in(place: NamespaceClient, name: str, image: str) -> str:
    """What an image's server says that it is, "15.18"."""
    place.kubectl("run", name, f"--image={image}", "--restart=Never", "--command", "--", "postgres", "--version")
    place.until(f"{image} has told", lambda: place.get("pod", name)["status"]["phase"] == "Succeeded", 60)
    # postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)
    return place.kubectl("logs", name).split()[2]


@pytest.fixture(scope="module")
def three(shared: NamespaceClient, versions: tuple[str, str]) -> ClusterUnderTest:
    """Three instances of the older one, with a database, an extension and a user who reads."""
    made = ClusterUnderTest(shared, spec={**SMALL_SPEC, "version": "15", "image": OLDER})
    made.apply()
    extensions = [{"name": "pgcrypto"}]
    shared.apply("Database", "shop", made.reference(deletionPolicy="Delete", extensions=extensions))
    grants: list[dict[str, Any]] = [
        {"database": "shop", "privileges": ["CONNECT"]},
        {"database": "shop", "schema": "public", "privileges": ["USAGE"]},
        {"database": "shop", "schema": "public", "tables": ["*"], "privileges": ["SELECT"], "future": True},
    ]
    shared.apply("DatabaseUser", "reader", made.reference(user="reader", grants=grants))
    made.wait_ready()
    shared.wait_reason("database", "shop", "DatabaseReady")
    shared.wait_reason("databaseuser", "reader", "ProvisionSucceeded")
    assert made.status["version"] == versions[0]
    return made


def running(three: ClusterUnderTest) -> dict[str, str]:
    """The version of each instance's server, as itself tells it."""
    return {name: three.sql("SHOW server_version", instance=name).split()[0] for name in three.nodes()}


def renewed_in_order(three: ClusterUnderTest, before: dict[str, Any]) -> list[str]:
    """The instances whose pods were made anew, once that are all of them."""
    order: list[str] = []

    def all_are() -> bool:
        now = three.pods()
        order.extend(pod for pod in sorted(now) if now[pod][0] != before[pod][0] and pod not in order)
        return len(order) == len(before)

    three.until("all are new", all_are, 400)
    return [pod.removesuffix("-0") for pod in order]


@pytest.mark.requirement("design/operations", "overview/level-2-upgrades")
def test_minor_upgrade_replicas_first_one_switchover(
    three: ClusterUnderTest, versions: tuple[str, str], record_property: Callable[[str, object], None]
) -> None:
    older, newer = versions
    record_property("from and to", f"{older} {newer}")
    three.sql(f"SET ROLE shop; {DATA}", "shop")
    assert set(running(three).values()) == {older} and three.status["version"] == older
    former, timeline, before = three.primary, three.status["timeline"], three.pods()
    secret, extension = (
        three.namespace_client.secret("reader-user"),
        three.sql("SELECT extversion FROM pg_extension", "shop"),
    )
    assert three.namespace_client.log_in(f"{former}-0", secret, SOUND) == "5000"
    with writing(three, "shop-app") as seen:
        three.apply(image=NEWER)
        assert renewed_in_order(three, before)[-1] == former, "the primary is the last"
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 2))
        assert seen.lost_rows() == 0
    assert set(running(three).values()) == {newer}
    assert (three.status["version"], three.status["image"]) == (newer, NEWER)
    assert three.primary != former and three.status["timeline"] == timeline + 1, "one switchover"
    assert three.status["lastSwitchover"]["outcome"] == "Succeeded"
    assert not three.namespace_client.events("orders", "Failover")
    assert three.namespace_client.secret("reader-user") == secret
    for instance in three.nodes():
        assert three.sql(SOUND, "shop", instance=instance) == "5000"
    assert three.namespace_client.log_in(f"{three.primary}-0", secret, SOUND) == "5000"
    assert three.sql("SELECT extversion FROM pg_extension", "shop") == extension
    three.namespace_client.wait_current("database", "shop", "DatabaseReady")
    three.namespace_client.wait_current("databaseuser", "reader", "ProvisionSucceeded")


def test_two_minor_versions_under_one_tag_are_reported(three: ClusterUnderTest, versions: tuple[str, str]) -> None:
    """A node keeps the older image that had the tag before, and nobody is restarted over and over for that."""
    older, newer = versions
    behind = three.replicas[0]
    keeps = three.nodes()[behind]
    for node in layout.NODES:
        if node.name in set(three.nodes().values()):
            containers.tag(node, OLDER if number_of(keeps) == node.number else NEWER, MOVED)
    before = three.pods()
    three.apply(image=MOVED)
    renewed_in_order(three, before)
    three.wait_ready(seconds=400)
    found = running(three)
    assert found == {name: older if node == keeps else newer for name, node in three.nodes().items()}
    told = three.wait_reason("MinorVersionSkew", "UpToDate")
    by_version = (f"{v} in {', '.join(sorted(n for n in found if found[n] == v))}" for v in versions)
    assert told["message"].startswith(f"image {MOVED} is {' and '.join(by_version)}. Use an immutable tag")
    pods = three.pods()
    three.apply(maintenance={"minorUpgrades": "Automatic"})
    three.wait_ready()
    assert three.pods() == pods, "made anew, it would be the same"

    three.apply(image=NEWER)
    renewed_in_order(three, pods)
    three.wait_ready(seconds=400)
    assert set(running(three).values()) == {newer} and not three.namespace_client.condition(
        three.kind, three.name, "UpToDate"
    )
