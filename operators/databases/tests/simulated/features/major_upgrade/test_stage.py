"""A cluster whose declared version is higher than its data's: looked at, stopped, upgraded, or as it was."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec import structs

from database_support.unit.cluster_harness import KEY, NAMES, ClusterHarness
from database_support.unit.database_harness import CuttableTransport
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, PersistentVolumeClaim, Pod, Secret
from steersman.client import HttpRequest, HttpResponse, MergePatch
from steersman.errors import ConnectionFailed, Invalid
from steersman.meta import FrozenDict, to_builtins
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.cluster.state import MAJOR_LABEL, is_retired
from steersman_databases.engines.cluster_engine import UpgradeInventory
from steersman_databases.features.major_upgrade import stage as major_upgrade_stage
from steersman_databases.features.major_upgrade.specs import JOB_LABEL
from steersman_testing import InMemoryApiServer, matching, virtual_time


def majors(world: ClusterHarness) -> dict[str, str]:
    """The version of each claim's data, of those in use."""
    claims = world.server.read_all(PersistentVolumeClaim)
    return {c.metadata.name: c.metadata.labels[MAJOR_LABEL] for c in claims if not is_retired(c)}


def images(world: ClusterHarness) -> set[str | None]:
    return {p.spec.containers[0].image for p in world.pods().values()}


async def on_15(world: ClusterHarness, instances: int = 3) -> None:
    await world.create_ready(instances, instances=instances, version="15")


@pytest.mark.requirement("pattern/old-version")
@virtual_time
async def test_primary_is_upgraded_and_replicas_cloned() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.ready(3)
        assert world.condition("UpToDate") == "True/Current"
        assert world.status.version == "17.6" and world.status.primary == "orders-0"
        assert majors(world) == dict.fromkeys(("data-orders-0", "data-orders-3", "data-orders-4"), "17")
        assert images(world) == {"steersman.dev/postgresql:17"}
        assert world.hosts.systems == 1 and world.hosts.unreadable == []
        await world.until("the Jobs are gone", lambda: not world.server.read_all(Job))
        assert "Upgraded" in world.events() and "Failover" not in world.events()


@pytest.mark.parametrize("replaced", ["OnRequest", "Automatic"])
@virtual_time
async def test_undeletable_old_data_starts_no_server(replaced: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, version="15", replace_failed_instances=replaced)
        for name in ("orders-1", "orders-2"):
            world.server.fail_next(matching("DELETE", f"/statefulsets/{name}"), 503, times=2)
        await world.change(version="17")
        await world.ready(3)
        assert world.hosts.unreadable == []
        assert world.statefulsets() == ["orders-0", "orders-3", "orders-4"]
        assert majors(world) == dict.fromkeys(("data-orders-0", "data-orders-3", "data-orders-4"), "17")
        assert "InstanceReplaced" not in world.events(), "nothing failed"


class CountingTransport(CuttableTransport):
    """Counts the objects that are read one by one, by their paths."""

    def __init__(self, server: InMemoryApiServer) -> None:
        super().__init__(server)
        self.reads: Counter[str] = Counter()

    async def request(self, request: HttpRequest) -> HttpResponse:
        if request.method == "GET":
            self.reads[request.path] += 1
        return await super().request(request)


@virtual_time
async def test_no_upgrade_no_job_requests() -> None:
    world = ClusterHarness()
    transport = CountingTransport(world.server)
    async with world.operator(transport):
        await on_15(world, instances=1)
        await world.wait(15)
        transport.reads.clear()
        await world.wait(60)
        assert not [path for path in transport.reads if "/jobs/" in path]


@virtual_time
@pytest.mark.parametrize("claim", ["data-orders-0", "wal-orders-0"])
async def test_upgrade_interrupted_between_volumes_continues(claim: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, version="15", wal_storage=VolumeSettings())
        world.server.fail_next(
            matching("PATCH", f"/persistentvolumeclaims/{claim}"), ConnectionFailed("cut"), times=1
        )
        await world.change(version="17")
        await world.ready(1)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_administrator_secret_lost_during_upgrade_is_recreated() -> None:
    """Between the Job and the new server's first start nobody has written down whose data they are."""
    world = ClusterHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("it writes", lambda: writing(world))
        world.server.fail_next(matching("PATCH", "/statefulsets/orders-0"), 503, times=10)
        world.hosts.upgrade_hangs = False
        await world.until("committed", lambda: majors(world) == {"data-orders-0": "17"})
        assert world.pods() == {}, "the new server has not started"
        former = world.secret("orders-admin")
        await world.client.delete(Secret, NAMES.administrator_secret)
        await world.ready(1)
        assert world.status.version == "17.6" and world.hosts.systems == 1
        assert world.secret("orders-admin").keys() == former.keys() and world.secret("orders-admin") != former
        assert "AdministratorSecretMissing" not in world.events()


@virtual_time
async def test_upgrade_blocker_is_reported_and_nothing_stops() -> None:
    world = ClusterHarness(inventory=UpgradeInventory(problems=["prepared transaction 'x' is open"], size=1))
    async with world.operator():
        await on_15(world)
        before = world.uids()
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/PreCheckFailed")
        assert "prepared transaction 'x' is open" in world.message("UpToDate")
        await world.wait(60)
        assert world.uids() == before and world.condition("Available") == "True/PrimaryAvailable"
        assert world.condition("Ready") == "False/Degraded"
        world.inventory = UpgradeInventory(extensions=["postgis"])
        world.hosts.missing_programs = "extension postgis is not in the image for PostgreSQL 17"
        await world.until("told", lambda: "postgis" in world.message("UpToDate"))
        assert world.condition("UpToDate") == "False/PreCheckFailed" and world.uids() == before
        world.hosts.missing_programs = ""
        world.inventory = UpgradeInventory()
        await world.ready(3)
        assert world.status.version == "17.6"


@pytest.mark.requirement("overview/upgrade-and-rollback")
@virtual_time
async def test_failed_upgrade_rolls_back_and_waits_for_change() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "pg_upgrade: Your installation contains a joke"
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/RolledBack")
        assert "contains a joke" in world.message("UpToDate")
        await world.until("serves", lambda: world.status.ready_instances == 3)
        before = world.uids()
        await world.wait(120)
        assert world.uids() == before and set(majors(world).values()) == {"15"}
        assert world.condition("Ready") == "False/Degraded" and world.condition("UpToDate") == "False/RolledBack"
        world.hosts.upgrade_fails = ""
        await world.change(shmSize="64Mi")
        await world.until("renewed", lambda: not world.uids().items() & before.items())
        await world.wait(120)
        assert world.status.version == "15.6" and world.condition("UpToDate") == "False/RolledBack"
        await world.client.delete(Job, NAMES.upgrade_job)
        await world.ready(3)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_untested_settings_are_reported_to_new_server() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_hangs = True
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create_ready(1, instances=1, version="15")
        former = world.stored_parameters()
        await world.change(version="17")
        await world.until("it writes", lambda: writing(world))
        parameters = FrozenDict({"shared_buffers": "700MB", "work_mem": "8MB"})
        settings = PostgreSQLSettings(parameters=parameters, shared_preload_libraries=("pg_stat_statements",))
        await world.change(postgresql=to_builtins(settings))
        await world.wait(60)
        assert world.stored_parameters() == former
        world.hosts.upgrade_hangs = False
        await world.until("refused", lambda: world.condition("ParametersApplied") == "False/ParameterRejected")
        await world.until("serves", lambda: world.condition("Available") == "True/PrimaryAvailable")
        assert world.status.version == "17.6" and world.stored_parameters()["work_mem"] == "8MB"
        assert world.stored_parameters()["shared_preload_libraries"] == "pg_stat_statements"


@virtual_time
async def test_server_is_not_stopped_before_reload_is_confirmed() -> None:
    world = ClusterHarness()
    read: list[bool] = []
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("begun", lambda: world.server.read(Job, NAMES.upgrade_job) is not None)
        began = world.runtime.clock.monotonic()
        await world.change(postgresql={"parameters": {"work_mem": "8MB"}})
        await world.until("stops", lambda: not world.pods())
        read.append(world.runtime.clock.monotonic() - began >= 6)
        assert read == [True] and world.stored_parameters()["work_mem"] == "8MB"
        await world.ready(1)
        assert world.status.version == "17.6"


@virtual_time
async def test_other_upgrade_image_is_tried() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "no"
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/RolledBack")
        world.hosts.upgrade_fails = ""
        ran: set[str | None] = set()
        await world.change(upgradeImage="example.org/upgrade:17")

        def is_upgraded() -> bool:
            ran.update(c.image for job in world.server.read_all(Job) for c in job.spec.template.spec.containers)
            return world.status.version == "17.6"

        await world.until("upgraded", is_upgraded)
        assert "example.org/upgrade:17" in ran
        await world.ready(1)


@virtual_time
async def test_operator_upgrade_does_not_retry_failed_upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "no"
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/RolledBack")
        await world.until("serves", lambda: world.status.ready_instances == 1)
    before = world.uids()

    def other_image(*asked: str) -> str:
        return "operator.example/upgrade:next"

    monkeypatch.setattr(major_upgrade_stage, "upgrade_image", other_image)
    async with world.operator():
        await world.wait(120)
        assert world.uids() == before and world.condition("UpToDate") == "False/RolledBack"


@virtual_time
async def test_cancelled_upgrade_waits_for_job_deletion() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("it writes", lambda: writing(world))
        await world.change(version="15")
        await world.wait(120)
        assert world.pods() == {} and writing(world)
        assert world.condition("Available") == "False/Upgrading" and "may still write" in world.message("UpToDate")
        world.hosts.upgrade_hangs = False
        await world.ready(3)
        assert world.condition("UpToDate") == "True/Current" and not world.server.read_all(Job)


@virtual_time
async def test_deleted_job_is_waited_for() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_hangs = True
    async with world.operator():
        await on_15(world)
        await world.change(version="17")
        await world.until("it writes", lambda: writing(world))
        await world.client.delete(Job, NAMES.upgrade_job)
        await world.wait(60)
        assert world.pods() == {} and "may still write" in world.message("UpToDate")
        world.hosts.upgrade_hangs = False
        await world.ready(3)
        assert world.status.version == "17.6"


@virtual_time
async def test_check_job_is_deleted_with_cancellation() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 1)
        world.hosts.missing_programs = "extension postgis is not in the image for PostgreSQL 17"
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/PreCheckFailed")
        assert world.server.read(Job, NAMES.upgrade_check_job) is not None
        await world.change(version="15")
        await world.until("the Jobs are gone", lambda: not world.server.read_all(Job))


@virtual_time
async def test_foreign_pod_message_starts_no_upgrade() -> None:
    """A new object finds data of 15, and somebody else's pod that bears the labels of a primary."""
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 1)
        stranger = world.pods()["orders-0"]
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None and not world.pods())
        metadata = structs.replace(
            stranger.metadata, uid="", resource_version="", owner_references=(), creation_timestamp=None
        )
        pod = await world.client.create(Pod(metadata=metadata, spec=stranger.spec))
        await world.client.patch(
            Pod, pod.key, MergePatch({"status": to_builtins(stranger.status)}), subresource="status"
        )
        store = {"metadata": {"annotations": {"leader": "orders-0-0"}}}
        await world.client.patch(ConfigMap, NAMES.dcs_leader, MergePatch(store))
        await world.create(instances=1, version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/RetainedDataMismatch")
        await world.wait(60)
        assert not world.server.read_all(Job) and set(majors(world).values()) == {"15"}


def writing(world: ClusterHarness) -> list[Pod]:
    """The pods of the Job that upgrades."""
    labels = [p for p in world.server.read_all(Pod) if p.metadata.labels.get(JOB_LABEL) == NAMES.upgrade_job.name]
    return [p for p in labels if p.status.phase not in ("Succeeded", "Failed")]


@virtual_time
async def test_rolled_back_version_can_be_declared_again() -> None:
    world = ClusterHarness()
    world.hosts.upgrade_fails = "no"
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/RolledBack")
        await world.change(version="15")
        await world.ready(1)
        assert world.condition("UpToDate") == "True/Current"
        await world.until("the Jobs are gone", lambda: not world.server.read_all(Job))


@pytest.mark.requirement("overview/level-2-versions")
@virtual_time
@pytest.mark.parametrize("version", ["15", "16", "19"])
async def test_unsupported_upgrade_path_is_rejected(version: str) -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1)
        with pytest.raises(Invalid, match=r"version (can|is not supported)"):
            await world.change(version=version)


@virtual_time
async def test_image_of_old_version_is_rejected() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(1, instances=1, version="15", image="example.org/mine:15")
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/PreCheckFailed")
        assert "spec.image" in world.message("UpToDate") and images(world) == {"example.org/mine:15"}
        await world.change(image="example.org/mine:17")
        await world.ready(1)
        assert images(world) == {"example.org/mine:17"} and world.hosts.unreadable == []


@virtual_time
async def test_upgrade_waits_for_hibernation_and_pause() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 1)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.condition("Available") == "False/Hibernated" and not world.pods())
        await world.change(version="17")
        await world.until("told", lambda: world.condition("UpToDate") == "False/Upgrading")
        assert "waits until the cluster is healthy" in world.message("UpToDate")
        await world.wait(60)
        assert set(majors(world).values()) == {"15"}
        await world.annotate(paused="true")
        await world.change(hibernated=False)
        await world.wait(60)
        assert world.pods() == {}
        await world.annotate(paused=None)
        await world.ready(1)
        assert world.status.version == "17.6"


@virtual_time
async def test_hibernation_during_upgrade_is_deferred() -> None:
    world = ClusterHarness()
    async with world.operator():
        await on_15(world, 2)
        await world.change(version="17")
        await world.until("begun", lambda: world.server.read(Job, NAMES.upgrade_job) is not None)
        await world.change(hibernated=True)
        await world.until("asleep", lambda: world.condition("Available") == "False/Hibernated" and not world.pods())
        await world.change(hibernated=False)
        await world.ready(2)
        assert world.status.version == "17.6" and world.hosts.unreadable == []


@virtual_time
async def test_deletion_during_upgrade_completes() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(2, instances=2, version="15", deletion_policy="Delete")
        await world.change(version="17")
        await world.until("begun", lambda: world.server.read(Job, NAMES.upgrade_job) is not None)
        await world.client.delete(PostgreSQLCluster, KEY)
        await world.until("gone", lambda: world.cluster is None)
        await world.until("nothing is left", lambda: not world.pvc_names() and not world.server.read_all(Job))
        assert not world.server.read_all(Pod) and world.server.read(ConfigMap, NAMES.dcs_config) is None


@virtual_time
async def test_minor_image_rolls_replicas_first() -> None:
    world = ClusterHarness()
    async with world.operator():
        await world.create_ready(3, image="example.org/mine:17.6")
        renewed: list[str] = []
        former = world.uids()
        await world.change(image="example.org/mine:17.7")

        def all_are_new() -> bool:
            for name, uid in world.uids().items():
                if uid != former[name] and name not in renewed:
                    renewed.append(name)
            return len(renewed) == 3

        await world.until("all are new", all_are_new)
        await world.ready(3)
        assert renewed[-1] == "orders-0", "the former primary is the last"
        assert world.status.primary != "orders-0" and world.events().count("Switchover") == 1
        assert images(world) == {"example.org/mine:17.7"}


@virtual_time
async def test_foreign_job_blocks_only_the_upgrade() -> None:
    world = ClusterHarness()
    key = NAMES.upgrade_job
    pod = {"restartPolicy": "Never", "containers": [{"name": "theirs", "image": "theirs"}]}
    labels = {JOB_LABEL: key.name}
    for kind, version, spec in (
        ("Job", "batch/v1", {"template": {"metadata": {"labels": labels}, "spec": pod}}),
        ("Pod", "v1", pod),
    ):
        metadata = {"name": key.name, "namespace": key.namespace, "labels": labels}
        world.server.load({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec})
    async with world.operator():
        await on_15(world, 1)
        await world.change(version="17")
        await world.until("told", lambda: world.condition("Ready") == "False/NameConflict")
        assert world.message("Ready") == (
            "Job orders-upgrade exists and does not belong to this cluster. Delete or rename one of the two. "
            "The operator retries within 30 s"
        )
        assert world.message("UpToDate").startswith("Job orders-upgrade exists")
        assert world.condition("Available") == "True/PrimaryAvailable" and set(majors(world).values()) == {"15"}
        await world.client.delete(Job, key)
        await world.ready(1)
        assert world.status.version == "17.6" and world.condition("UpToDate") == "True/Current"
