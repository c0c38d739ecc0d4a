"""The operator is killed, replaced and upgraded: all is done in the end, and no database is disturbed."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import API, ClusterUnderTest, NamespaceClient, writing
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from devcluster import wheels
from devcluster.errors import CommandFailed
from devcluster.images import CHECKOUT, ensure, load, operator_recipe, tag
from devcluster.images import MYSQL as MYSQL_IMAGE
from devcluster.images import POSTGRESQL as POSTGRESQL_IMAGE
from devcluster.operator import DEPLOYMENT, NAMESPACE, install
from devcluster.progress import Progress
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("operator-restarts"), pytest.mark.disruptive, EACH_ENGINE]

Record = Callable[[str, object], None]
KILLS = 2
"""How often the operator is killed in each change."""
RESTARTING: Mapping[EngineCommands, tuple[str, str]] = {
    POSTGRESQL: ("max_connections", "60"),
    MYSQL: ("innodb_read_io_threads", "2"),
}
"""A parameter that needs a restart, and a value."""
WORKING: Mapping[EngineCommands, tuple[str, str]] = {
    POSTGRESQL: ("work_mem", "5MB"),
    MYSQL: ("sort_buffer_size", "1048576"),
}
"""One that needs none."""
IMAGES: Mapping[EngineCommands, str] = {POSTGRESQL: POSTGRESQL_IMAGE.reference, MYSQL: MYSQL_IMAGE.reference}
"""What the operator has its servers run."""


def with_one_more(engine: EngineCommands, name: str, value: str) -> dict[str, Any]:
    """The part of a spec that declares a parameter beside those of a small cluster."""
    return {engine.settings: {"parameters": {**engine.small[engine.settings]["parameters"], name: value}}}


@pytest.mark.requirement("overview/level-3-lifecycle")
def test_operator_killed_during_cluster_lifecycle_recovers(
    cluster: Target, place: NamespaceClient, of: EngineCommands, record_property: Record
) -> None:
    dice = random.Random(7)
    three = ClusterUnderTest(place, spec=dict(of.small), engine=of)

    def kill() -> None:
        for _ in range(KILLS):
            time.sleep(dice.uniform(0, 8))  # the moment of the fault, not a wait for something
            e2e_operator.kill(cluster)

    three.apply()
    place.apply("Database", "shop", three.reference(deletionPolicy="Delete"))
    kill()
    three.wait_ready(seconds=400)
    place.wait_reason("database", "shop", "DatabaseReady", seconds=120)
    first, began = three.pods(), three.processes()
    with writing(three, "shop-app") as seen:
        three.namespace_client.kubectl("scale", three.kind, three.name, "--replicas=4")
        kill()
        three.wait_ready(4, seconds=400)
        assert {name: pod for name, pod in three.pods().items() if name in first} == first
        assert {each: pid for each, pid in three.processes().items() if each in began} == began

        former = three.primary
        three.annotate("switchover", "any")
        kill()
        three.until("another leads", lambda: three.primary not in ("", former), 120)
        three.wait_ready(4)

        # What is declared goes through its webhook.
        e2e_operator.rolled_out(cluster)
        name, value = RESTARTING[of]
        place.patch(three.kind, three.name, {"spec": with_one_more(of, name, value)})
        kill()
        three.until("all servers have it", lambda: three.server_values(name) == {value}, 240)
        three.wait_ready(4, seconds=400)

        three.namespace_client.kubectl("scale", three.kind, three.name, "--replicas=3")
        kill()
        three.wait_ready(3, seconds=400)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 1))
        assert seen.lost_rows() == 0
    assert not any(any(restarts) for _, restarts in three.pods().values())
    assert {name: pod for name, pod in three.pods().items() if name in first}.items() <= first.items()


CLERKS = [f"clerk{number}" for number in range(8)]
"""So many users that whenever it is killed, it is in the midst of one of them."""
OVERLAP = 30
LONG_AGO = "2000-01-01T00:00:00Z"
COUNT: Mapping[EngineCommands, str] = {
    POSTGRESQL: "SELECT COUNT(*) FROM pg_roles WHERE rolname LIKE 'clerk%'",
    MYSQL: "SELECT COUNT(*) FROM mysql.user WHERE User LIKE 'clerk%'",
}
REFUSED = ("password authentication failed", "not permitted to log in", "Access denied")
Login = Mapping[str, str]


def clerk(three: ClusterUnderTest, name: str) -> Mapping[str, Any]:
    grants = [{"database": "shop", "privileges": ["CONNECT" if three.engine is POSTGRESQL else "ALL"]}]
    spec = three.reference(user=name, grants=grants, rotation={"every": "720h", "overlap": f"{OVERLAP}s"})
    return {"apiVersion": API, "kind": "DatabaseUser", "metadata": {"name": name}, "spec": spec}


def let_in(three: ClusterUnderTest, login: Login) -> bool:
    try:
        return three.namespace_client.log_in(f"{three.leader}-0", login, "SELECT 1", three.engine.settings) == "1"
    except CommandFailed as refusal:
        if any(words in str(refusal) for words in REFUSED):
            return False
        raise


def test_operator_killed_during_user_lifecycle_recovers(cluster: Target, three: ClusterUnderTest) -> None:
    """What a Secret says is let in all along, and what it no longer says is not."""
    place, dice = three.namespace_client, random.Random(7)
    e2e_operator.rolled_out(cluster)

    def kill() -> None:
        for longest in (0.5, 8):
            time.sleep(dice.uniform(0, longest))  # the moment of the fault, not a wait for something
            e2e_operator.kill(cluster)

    def logins() -> dict[str, Login]:
        found: dict[str, Login] = {}
        for name in CLERKS:
            found[name] = place.secret(f"{name}-user")
            assert let_in(three, found[name]), f"the Secret of {name} does not open the server"
        return found

    def rotated(former: Mapping[str, Login]) -> bool:
        return all(login["password"] != former[name]["password"] for name, login in logins().items())

    place.create(*(clerk(three, name) for name in CLERKS))
    kill()
    for name in CLERKS:
        place.wait_reason("databaseuser", name, "ProvisionSucceeded", seconds=120)
    first = place.until("all are let in", logins, 30)

    due = json.dumps({"stringData": {"rotated-at": LONG_AGO}})
    place.kubectl("patch", "secret", *(f"{name}-user" for name in CLERKS), "--type=merge", f"--patch={due}")
    kill()
    place.until("all are rotated", lambda: rotated(first), 120)
    e2e_operator.kill(cluster)
    place.until("all are let in", logins, 30)
    ended = "the former passwords have ended"
    place.until(ended, lambda: not any(let_in(three, login) for login in first.values()), OVERLAP + 90)
    place.until("all are let in", logins, 30)

    e2e_operator.rolled_out(cluster)
    place.kubectl("delete", "databaseuser", *CLERKS, "--wait=false")
    kill()
    gone = "no object is left, and no Secret"
    place.until(gone, lambda: not [n for n in place.names("databaseusers,secrets") if "clerk" in n], 120)
    assert three.sql(COUNT[three.engine]) == "0"


def without_it(three: ClusterUnderTest) -> dict[str, Any]:
    """What must not change when nothing but the operator does."""
    return {"pods": three.pods(), "servers": three.processes(), "primary": three.leader}


@pytest.fixture
def next_operator(cluster: Target, of: EngineCommands, tmp_path: Path) -> Iterator[str]:
    """Another version of the operator, whose own part of an instance's pod is another, and whose image of servers.

    Afterwards the former. The other image is the same by another name; test_minor_upgrade.py has different ones.
    """
    if not cluster.is_devcluster:
        pytest.skip("loads an image into the devcluster")
    checkout = tmp_path / "checkout"
    wheels.copy(wheels.sources(CHECKOUT), CHECKOUT, checkout)
    part = checkout / f"operators/databases/src/steersman_databases/engines/{of.settings}/pod.py"
    part.write_text(part.read_text().replace("failures=21600", "failures=21599"))
    versions = checkout / "operators/databases/src/steersman_databases/engines/versions.py"
    versions.write_text(versions.read_text().replace(f'"{IMAGES[of]}"', f'"{IMAGES[of]}-newer"'))
    tag(IMAGES[of], f"{IMAGES[of]}-newer")
    image = ensure(operator_recipe("steersman.dev/databases-operator:next", checkout), Progress())
    load(image)
    yield image.reference
    install(cluster, Progress())


def upgrade(cluster: Target, image: str) -> None:
    """The operator's own."""
    cluster.kubectl("set", "image", f"deployment/{DEPLOYMENT}", f"manager={image}", f"--namespace={NAMESPACE}")
    e2e_operator.rolled_out(cluster)


@pytest.mark.requirement("overview/level-2-upgrades", "pattern/image")
def test_operator_upgrade_restarts_no_database(
    cluster: Target, three: ClusterUnderTest, next_operator: str, record_property: Record
) -> None:
    before = without_it(three)
    with writing(three, "shop-app") as seen:
        upgrade(cluster, next_operator)

        def declared() -> bool:
            instances = [three.namespace_client.get("statefulset", instance) for instance in three.nodes()]
            probes = [s["spec"]["template"]["spec"]["containers"][0]["startupProbe"] for s in instances]
            return all(probe["failureThreshold"] == 21599 for probe in probes)

        three.until("it declares its own pods", declared, 120)
        three.wait_ready()
        three.namespace_client.wait_reason("database", "shop", "DatabaseReady")
        seen.wait_for_writes(time.time() + 10)
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 2))
        assert seen.errors == []
        assert seen.lost_rows() == 0
    assert without_it(three) == before


def test_operator_restart_causes_no_write_error(
    cluster: Target, three: ClusterUnderTest, record_property: Record
) -> None:
    before = without_it(three)
    with writing(three, "shop-app") as seen:
        e2e_operator.replace(cluster)
        e2e_operator.rolled_out(cluster)
        name, value = WORKING[three.engine]
        three.apply(**with_one_more(three.engine, name, value))
        three.until("it works", lambda: three.server_values(name) == {value}, 120)
        three.wait_ready()
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 2))
        assert seen.errors == []
    assert without_it(three) == before


def test_operator_new_image_is_taken_on_request(
    cluster: Target, three: ClusterUnderTest, next_operator: str, record_property: Record
) -> None:
    former, newer = three.status["image"], f"{IMAGES[three.engine]}-newer"
    upgrade(cluster, next_operator)
    three.namespace_client.wait_reason(three.kind, three.name, "MinorUpgradeAvailable", "UpToDate", seconds=120)
    assert three.status["availableImage"] == newer and three.status["image"] == former
    three.wait_ready()
    primary = three.primary
    with writing(three, "shop-app") as seen:
        three.namespace_client.patch(
            three.kind, three.name, {"spec": {"maintenance": {"minorUpgrades": "Automatic"}}}
        )
        three.namespace_client.wait_reason(three.kind, three.name, "Current", "UpToDate", seconds=400)
        three.wait_ready(seconds=400)
        seen.wait_for_writes(time.time())
        record_property("longest gap in writes, in seconds", round(seen.longest_gap, 2))
        assert seen.lost_rows() == 0
    pods = [three.pod(member["name"]) for member in three.status["members"]]
    assert {pod["spec"]["containers"][0]["image"] for pod in pods} == {newer}
    assert three.status["image"] == newer and three.primary != primary, "replicas first, then the primary hands over"
