"""Servers that do not run: told with the words of Kubernetes, until something else is declared."""

from __future__ import annotations

from typing import Any

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.database_harness import VERSIONS, DatabaseHarness
from database_support.unit.group_harness import GroupHarness
from steersman_databases.engines import image
from steersman_testing import virtual_time

ENDS: dict[str, Any] = {
    "restartCount": 4,
    "ready": False,
    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container"}},
    "lastState": {"terminated": {"exitCode": 1, "reason": "Error", "message": "steersman: no such thing\n"}},
}
UNPULLED: dict[str, Any] = {
    "restartCount": 0,
    "ready": False,
    "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}},
}
UNMADE: dict[str, Any] = {
    "restartCount": 0,
    "ready": False,
    "state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "orders-tls" not found'}},
}
BROKEN = "registry.test/postgresql:broken"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (ENDS, "the server in pod orders-0-0 restarted 4 times (last: Error, exit code 1, steersman: no such thing)"),
        (UNMADE, 'pod orders-0-0 cannot start: secret "orders-tls" not found'),
    ],
)
@virtual_time
async def test_crashing_first_instance_is_reported_and_recreated(said: dict[str, Any], words: str) -> None:
    world = ClusterHarness()
    world.hosts.crashing[BROKEN] = said
    async with world.operator():
        await world.create(instances=1, image=BROKEN)
        await world.until("told", lambda: world.condition("Ready") == "False/InstanceCrashing")
        assert world.message("Ready").startswith(f"{words}. Read the logs of the instance")
        assert world.status.phase == "Failed"
        assert world.condition("Available") == "False/NoPrimary"
        await world.wait(420)
        assert world.events().count("InstanceCrashing") == 1
        assert world.statefulsets() == ["orders-0"]
        await world.change(image=None)
        await world.ready(1)


@pytest.mark.parametrize(("said", "reason"), [(ENDS, "InstanceCrashing"), (UNPULLED, "ImageUnavailable")])
@virtual_time
async def test_failing_image_is_tried_by_one_instance_only(said: dict[str, Any], reason: str) -> None:
    world = ClusterHarness()
    world.hosts.crashing[BROKEN] = said
    async with world.operator():
        await world.create_ready(3)
        before = world.uids()
        await world.change(image=BROKEN)
        await world.until("told", lambda: world.condition("Ready") == f"False/{reason}")
        assert world.condition("Available") == "True/PrimaryAvailable"
        await world.wait(420)
        assert world.condition("Ready") == f"False/{reason}"
        assert world.status.primary == "orders-0"
        changed = [name for name, uid in world.uids().items() if before.get(name) != uid]
        assert len(changed) == 1 and "orders-0" not in changed
        await world.change(image=None)
        await world.ready(3)
        assert {pod.spec.containers[0].image for pod in world.pods().values()} == {image("postgresql", "17")}
        assert world.uids()["orders-0"] == before["orders-0"], "what runs is left alone"


@virtual_time
async def test_unavailable_image_is_replaced_by_operator_image() -> None:
    world = ClusterHarness()
    world.hosts.crashing[BROKEN] = UNPULLED
    async with world.operator():
        await world.create_ready(1, instances=1)
        await world.change(image=BROKEN)
        await world.until("told", lambda: world.condition("Ready") == "False/ImageUnavailable")
        await world.change(image=None)
        await world.ready(1)


@pytest.mark.parametrize(
    ("world_of", "before", "change"),
    [
        (ClusterHarness, {}, {"imagePullSecrets": [{"name": "registry"}]}),
        (GroupHarness, {"image_pull_policy": "Never"}, {"imagePullPolicy": "IfNotPresent"}),
    ],
)
@virtual_time
async def test_image_pull_change_recreates_waiting_pod(
    world_of: type[ClusterHarness], before: dict[str, Any], change: dict[str, Any]
) -> None:
    world = world_of()
    world.hosts.crashing[BROKEN] = UNPULLED
    async with world.operator():
        await world.create(instances=1, image=BROKEN, **before)
        await world.until("told", lambda: world.condition("Ready") == "False/ImageUnavailable")
        assert "imagePullSecrets" in world.message("Ready")
        former = world.uids()
        await world.wait(420)
        assert world.uids() == former, "nothing else is declared"
        world.hosts.crashing.clear()
        await world.change(**change)
        await world.ready(1)
        (pod,) = world.pods().values()
        declared = world.cluster.spec
        assert pod.spec.image_pull_secrets == declared.image_pull_secrets
        assert pod.spec.containers[0].image_pull_policy == declared.image_pull_policy


@virtual_time
async def test_image_pull_change_keeps_running_pods() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2)
        before = world.uids()
        await world.change(imagePullSecrets=[{"name": "registry"}], imagePullPolicy="Always")
        await world.wait(600)
        await world.ready(2)
        assert world.uids() == before


@pytest.mark.parametrize("engine", VERSIONS)
@virtual_time
async def test_database_reports_crash_of_its_cluster(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = DatabaseHarness(engine)
    variable = f"STEERSMAN_IMAGE_{engine.upper()}_{VERSIONS[engine].replace('.', '_')}"
    monkeypatch.setenv(variable, BROKEN)
    world.machines.fake_hosts.crashing[BROKEN] = ENDS
    async with world.operator():
        await world.create()
        await world.until("told", lambda: world.reason == "ServerCrashing")
        assert "the server in pod orders-0-0 restarted 4 times" in world.message
        assert world.database and world.database.status.phase == "Failed"
        monkeypatch.setenv(variable, "registry.test/mended")
        await world.ready()
