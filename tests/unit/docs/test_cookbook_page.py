"""Run each recipe of the cookbook with its declared permissions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Load, Pages, documented_files
from steersman.api.apps_v1 import Deployment
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, ResourceQuota, Secret, Service
from steersman.api.events_v1 import Event
from steersman.client import Client, JsonPatch, MergePatch
from steersman.errors import Invalid
from steersman.manager import Manager, ManagerOptions
from steersman.meta import Condition, Object, ObjectKey, ObjectMeta, Quantity, find_condition
from steersman.webhook import WebhookServerOptions
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime, virtual_time
from steersman_testing.conversions import assert_round_trips
from steersman_testing.webhooks import serve_webhooks
from steersman_testing.workloads import complete_workloads

PAGE = "how-to/cookbook.md"
OPERATOR = "system:serviceaccount:default:cookbook"
KEY = ObjectKey("default", "blue")
METADATA = ObjectMeta(name=KEY.name, namespace=KEY.namespace)


@pytest.fixture
def recipe(pages: Pages) -> Load:
    """Imports a file of the cookbook."""
    return pages(PAGE)


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer(virtual_runtime())


@asynccontextmanager
async def running(
    server: InMemoryApiServer, setup: Callable[..., Any], *arguments: Any, workloads: bool = False
) -> AsyncGenerator[Client]:
    """Run the operator of a recipe; fail on missing permissions."""
    operator = Manager(server.as_user(OPERATOR), ManagerOptions(name="cookbook"), server.runtime)
    setup(operator, *arguments)
    server.grant(OPERATOR, cluster_role("cookbook", operator.permissions))
    managers = [operator]
    if workloads:
        managers.append(Manager(server, ManagerOptions(name="workloads"), server.runtime))
        complete_workloads(managers[-1])
    tasks = [asyncio.create_task(manager.run()) for manager in managers]
    yield Client(server, field_manager="user")
    for manager in managers:
        manager.stop()
    await asyncio.gather(*tasks)
    assert server.rbac_denials == []


async def condition(client: Client, kind: type[Any], kind_of: str = "Ready", key: ObjectKey = KEY) -> Condition:
    await asyncio.sleep(1)
    found = find_condition((await client.get(kind, key)).status.conditions, kind_of)
    assert found is not None
    return found


def names(server: InMemoryApiServer, kind: type[Object], namespace: str = "") -> list[str]:
    return sorted(found.metadata.name for found in server.read_all(kind, namespace))


def test_cookbook_each_recipe_has_a_test() -> None:
    recipes = [name.removesuffix(".py") for name in documented_files(PAGE) if name.endswith(".py")]
    tests = {name for name in globals() if name.startswith("test_recipe_")}
    assert len(recipes) >= 15
    for name in recipes:
        assert any(test.startswith(f"test_recipe_{name.removeprefix('test_')}_") for test in tests), name
    assert (DOCS / PAGE).read_text().count("\n**Why:** ") == len(recipes)


def test_recipe_buckets_documented_test_passes(recipe: Load, server: InMemoryApiServer) -> None:
    server.register(recipe("buckets").Bucket)
    recipe("test_buckets").test_bucket_is_repaired_and_deleted(server)


@virtual_time
async def test_recipe_buckets_crash_before_status_keeps_one(recipe: Load, server: InMemoryApiServer) -> None:
    buckets, api = recipe("buckets"), recipe("test_buckets").FakeBuckets()
    server.register(buckets.Bucket)
    server.fail_next(lambda request: request.path.endswith("/status"), 500, times=3)
    async with running(server, buckets.setup, api) as client:
        await client.create(buckets.Bucket(metadata=METADATA, spec=buckets.BucketSpec(region="eu")))
        assert (await condition(client, buckets.Bucket)).status == "True"
        assert len(api.names) == 1


@virtual_time
async def test_recipe_imports_job_completes_then_old_one_goes(recipe: Load, server: InMemoryApiServer) -> None:
    imports = recipe("imports")
    server.register(imports.Import)
    async with running(server, imports.setup) as client:
        await client.create(imports.Import(metadata=METADATA, spec=imports.ImportSpec(image="import:1")))
        assert (await condition(client, imports.Import)).reason == "Progressing"
        await finish_job(client, "blue-1", "Complete")
        assert (await condition(client, imports.Import)).status == "True"
        await client.patch(imports.Import, KEY, MergePatch({"spec": {"revision": 2}}))
        assert (await condition(client, imports.Import)).reason == "Progressing"
        assert names(server, Job) == ["blue-1", "blue-2"]
        await finish_job(client, "blue-2", "Complete")
        assert (await condition(client, imports.Import)).status == "True"
        assert names(server, Job) == ["blue-2"]


@virtual_time
async def test_recipe_imports_failed_jobs_are_reported_and_pruned(recipe: Load, server: InMemoryApiServer) -> None:
    imports = recipe("imports")
    server.register(imports.Import)
    async with running(server, imports.setup) as client:
        await client.create(imports.Import(metadata=METADATA, spec=imports.ImportSpec(image="import:1")))
        await asyncio.sleep(1)
        for revision in (1, 2):
            await client.patch(imports.Import, KEY, MergePatch({"spec": {"revision": revision}}))
            await asyncio.sleep(1)
            await finish_job(client, f"blue-{revision}", "Failed")
            assert (await condition(client, imports.Import)).reason == "Failed"
        await client.patch(imports.Import, KEY, MergePatch({"spec": {"revision": 3}}))
        await asyncio.sleep(1)
        await finish_job(client, "blue-3", "Complete")
        assert (await condition(client, imports.Import)).status == "True"
        assert names(server, Job) == ["blue-3"]


async def finish_job(client: Client, name: str, result: str) -> None:
    status = {"conditions": [{"type": result, "status": "True", "message": "done"}]}
    await client.patch(Job, ObjectKey(KEY.namespace, name), MergePatch({"status": status}), subresource="status")


@virtual_time
async def test_recipe_gateways_waits_for_certificate(recipe: Load, server: InMemoryApiServer) -> None:
    gateways = recipe("gateways")
    server.register(gateways.Gateway)
    async with running(server, gateways.setup) as client:
        await client.create(gateways.Gateway(metadata=METADATA, spec=gateways.GatewaySpec(certificate="web")))
        assert (await condition(client, gateways.Gateway)).reason == "WaitingForCertificate"
        server.register(gateways.Certificate)
        web = ObjectMeta(name="web", namespace="default")
        certificate = await client.create(gateways.Certificate(metadata=web, spec=gateways.Spec()))
        await asyncio.sleep(60)
        outdated = Condition(type="Ready", status="True", reason="Issued", observed_generation=0)
        await client.apply_status(certificate, gateways.Status(conditions=(outdated,)))
        assert (await condition(client, gateways.Gateway)).reason == "WaitingForCertificate"
        current = Condition(type="Ready", status="True", reason="Issued", observed_generation=1)
        await client.apply_status(certificate, gateways.Status(conditions=(current,)))
        assert (await condition(client, gateways.Gateway)).reason == "Configured"


@virtual_time
async def test_recipe_scrapes_changes_its_annotation_only(recipe: Load, server: InMemoryApiServer) -> None:
    scrapes = recipe("scrapes")
    server.register(scrapes.Scrape)
    port = "prometheus.io/port"
    async with running(server, scrapes.setup) as client:
        await client.create(scrapes.Scrape(metadata=METADATA, spec=scrapes.ScrapeSpec(port=9090)))
        assert (await condition(client, scrapes.Scrape)).reason == "NoService"
        owner = Client(server, field_manager="owner")
        await owner.apply(service(scrapes, {"team": "a"}))
        assert (await condition(client, scrapes.Scrape)).reason == "Annotated"
        assert (await client.get(Service, KEY)).metadata.annotations == {"team": "a", port: "9090"}
        await owner.apply(service(scrapes, {"team": "b"}))
        await client.delete(scrapes.Scrape, KEY)
        await asyncio.sleep(1)
        assert (await client.get(Service, KEY)).metadata.annotations == {"team": "b"}
        assert server.read(scrapes.Scrape, KEY) is None


@virtual_time
async def test_recipe_scrapes_foreign_annotation_is_kept(recipe: Load, server: InMemoryApiServer) -> None:
    scrapes = recipe("scrapes")
    server.register(scrapes.Scrape)
    owner = Client(server, field_manager="owner")
    await owner.apply(service(scrapes, {"prometheus.io/port": "80"}))
    async with running(server, scrapes.setup) as client:
        await client.create(scrapes.Scrape(metadata=METADATA, spec=scrapes.ScrapeSpec(port=9090)))
        ready = await condition(client, scrapes.Scrape)
        assert ready.reason == "FieldConflict"
        assert "owner" in ready.message
        await client.delete(scrapes.Scrape, KEY)
        await asyncio.sleep(1)
        assert server.read(scrapes.Scrape, KEY) is None
        assert (await client.get(Service, KEY)).metadata.annotations == {"prometheus.io/port": "80"}


def service(scrapes: Any, annotations: dict[str, str]) -> Any:
    metadata = scrapes.meta.ObjectMeta(name=KEY.name, namespace=KEY.namespace, annotations=annotations)
    spec = scrapes.core.ServiceSpec(ports=[scrapes.core.ServicePort(port=80)])
    return scrapes.core.Service(metadata=metadata, spec=spec)


@virtual_time
async def test_recipe_notices_copies_follow_the_namespaces(recipe: Load, server: InMemoryApiServer) -> None:
    notices = recipe("notices")
    server.register(notices.Notice)
    for namespace in ("one", "two", "three"):
        server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "other", "namespace": "one"}})

    def copies() -> list[str]:
        return sorted(c.metadata.namespace for c in server.read_all(ConfigMap) if c.metadata.name == "blue")

    async with running(server, notices.setup) as client:
        spec = notices.NoticeSpec(text="Hello", namespaces=("one", "two"))
        await client.create(notices.Notice(metadata=METADATA, spec=spec))
        await asyncio.sleep(1)
        assert copies() == ["one", "two"]
        await client.delete(ConfigMap, ObjectKey("one", "blue"))
        await asyncio.sleep(1)
        assert copies() == ["one", "two"]
        await client.patch(notices.Notice, KEY, MergePatch({"spec": {"namespaces": ["two", "three"]}}))
        await asyncio.sleep(1)
        assert copies() == ["three", "two"]
        await client.delete(notices.Notice, KEY)
        await asyncio.sleep(1)
        assert copies() == []
        assert server.read(notices.Notice, KEY) is None
        assert server.read(ConfigMap, ObjectKey("one", "other")) is not None


@virtual_time
async def test_recipe_notices_foreign_config_map_is_kept(recipe: Load, server: InMemoryApiServer) -> None:
    notices = recipe("notices")
    server.register(notices.Notice)
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "mine"}})
    async with running(server, notices.setup) as client:
        spec = notices.NoticeSpec(text="Hello", namespaces=("default",))
        await client.create(notices.Notice(metadata=METADATA, spec=spec))
        assert (await condition(client, notices.Notice)).reason == "NameConflict"
        assert (await client.get(ConfigMap, KEY)).data == {"text": "mine"}
        await client.delete(ConfigMap, KEY)
        await asyncio.sleep(60)
        assert (await condition(client, notices.Notice)).reason == "Copied"
        assert (await client.get(ConfigMap, KEY)).data == {"text": "Hello"}


@virtual_time
async def test_recipe_teams_owns_namespace_and_quota(recipe: Load, server: InMemoryApiServer) -> None:
    teams = recipe("teams")
    server.register(teams.Team)
    key, quota = ObjectKey("", "red"), ObjectKey("team-red", "team")
    async with running(server, teams.setup) as client:
        team = await client.create(teams.Team(metadata=ObjectMeta(name="red"), spec=teams.TeamSpec(pods=3)))
        assert (await condition(client, teams.Team, key=key)).status == "True"
        found = await client.get(ResourceQuota, quota)
        assert found.spec is not None
        assert found.spec.hard == {"pods": "3"}
        assert found.is_controlled_by(team)
        await client.delete(ResourceQuota, quota)
        await asyncio.sleep(1)
        assert server.read(ResourceQuota, quota) is not None
        await client.delete(teams.Team, key)
        await asyncio.sleep(60)
        namespace = server.read(Namespace, ObjectKey("", "team-red"))
        assert namespace is None or namespace.metadata.deletion_timestamp is not None


def test_recipe_reports_runs_at_local_time(recipe: Load, server: InMemoryApiServer) -> None:
    reports = recipe("reports")
    server.register(reports.Report)
    spec = reports.ReportSpec(schedule="30 9 * * *", time_zone="Europe/Berlin", image="report:1")

    async def two_days() -> None:
        async with running(server, reports.setup) as client:
            await client.create(reports.Report(metadata=METADATA, spec=spec))
            await asyncio.sleep(2 * 86400)

    run_virtual(two_days(), start=datetime(2030, 3, 30, tzinfo=UTC))
    # Daylight saving time begins on the second day.
    assert [f"{time:%d %H:%M}" for time in run_times(server)] == ["30 08:30", "31 07:30"]


@virtual_time
async def test_recipe_reports_downtime_runs_once(recipe: Load, server: InMemoryApiServer) -> None:
    reports = recipe("reports")
    server.register(reports.Report)
    spec = reports.ReportSpec(schedule="0 * * * *", image="report:1")
    async with running(server, reports.setup) as client:
        await client.create(reports.Report(metadata=METADATA, spec=spec))
        await asyncio.sleep(3700)
    await asyncio.sleep(5 * 3600)
    async with running(server, reports.setup):
        await asyncio.sleep(3600)
    assert len(run_times(server)) == 3


def run_times(server: InMemoryApiServer) -> list[datetime]:
    jobs = server.read_all(Job)
    return sorted(datetime.fromtimestamp(int(job.metadata.name.rpartition("-")[2]), UTC) for job in jobs)


class FakeContacts:
    """An API with errors to raise, and the times of its calls."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.times: list[float] = []

    async def put(self, email: str) -> None:
        self.times.append(asyncio.get_running_loop().time())
        if self.errors:
            raise self.errors.pop(0)


@virtual_time
async def test_recipe_contacts_backs_off_and_waits(recipe: Load, server: InMemoryApiServer) -> None:
    contacts = recipe("contacts")
    server.register(contacts.Contact)
    api = FakeContacts(RuntimeError("a"), RuntimeError("b"), RuntimeError("c"), contacts.Throttled(40))
    async with running(server, contacts.setup, api) as client:
        await client.create(contacts.Contact(metadata=METADATA, spec=contacts.ContactSpec(email="a@example.com")))
        await asyncio.sleep(10)
        assert (await condition(client, contacts.Contact)).reason == "Throttled"
        await asyncio.sleep(60)
        assert (await condition(client, contacts.Contact)).reason == "Stored"
    delays = [later - earlier for earlier, later in zip(api.times, api.times[1:4], strict=False)]
    assert [round(delay) for delay in delays] == [1, 2, 4]
    assert 40 <= api.times[4] - api.times[3] < 42


@virtual_time
async def test_recipe_contacts_limits_all_objects(recipe: Load, server: InMemoryApiServer) -> None:
    contacts, api = recipe("contacts"), FakeContacts()
    server.register(contacts.Contact)
    for number in range(20):
        metadata = ObjectMeta(name=f"c{number}", namespace="default")
        server.load(contacts.Contact(metadata=metadata, spec=contacts.ContactSpec(email=f"{number}@example.com")))
    async with running(server, contacts.setup, api):
        await asyncio.sleep(3.1)
        assert 10 <= len(api.times) <= 12
        await asyncio.sleep(60)
        assert len(api.times) >= 20


@virtual_time
async def test_recipe_tills_old_client_keeps_the_port(recipe: Load, server: InMemoryApiServer) -> None:
    tills = recipe("tills")
    manager = Manager(server, runtime=server.runtime)
    tills.setup(manager)
    serve_webhooks(server, manager)
    serving = manager.webhooks.conversion_webhook(WebhookServerOptions(service="webhooks", namespace="default"))
    server.load(definition(tills.Till, tills.OldTill, conversion=serving))
    client = Client(server)
    await client.create(tills.Till(metadata=METADATA, spec=tills.TillSpec(address="a.example.com", port=80)))
    assert (await client.get(tills.OldTill, KEY)).spec.host == "a.example.com"
    await client.patch(tills.OldTill, KEY, MergePatch({"spec": {"host": "b.example.com"}}))
    assert (await client.get(tills.Till, KEY)).spec == tills.TillSpec(address="b.example.com", port=80)


def test_recipe_tills_versions_round_trip(recipe: Load) -> None:
    assert_round_trips(recipe("tills").TILLS, examples=10)


@virtual_time
async def test_recipe_volumes_are_checked_against_pool(recipe: Load, server: InMemoryApiServer) -> None:
    volumes = recipe("volumes")
    server.register(volumes.Pool, volumes.Volume)
    client = webhook_client(server, volumes.setup)
    large = volumes.Volume(metadata=METADATA, spec=volumes.VolumeSpec(pool="ssd", size=Quantity("2Gi")))
    with pytest.raises(Invalid, match="Pool ssd does not exist"):
        await client.create(large)
    pool = volumes.Pool(metadata=ObjectMeta(name="ssd"), spec=volumes.PoolSpec(max_size=Quantity("1Gi")))
    await client.create(pool)
    with pytest.raises(Invalid, match="allows at most 1Gi"):
        await client.create(large)
    small = volumes.Volume(metadata=METADATA, spec=volumes.VolumeSpec(pool="ssd", size=Quantity("512Mi")))
    await client.create(small)
    await client.delete(volumes.Pool, pool.key)
    await client.patch(volumes.Volume, KEY, MergePatch({"metadata": {"labels": {"a": "b"}}}))
    assert server.rbac_denials == []


def webhook_client(server: InMemoryApiServer, setup: Callable[[Manager], None]) -> Client:
    manager = Manager(server.as_user(OPERATOR), ManagerOptions(name="cookbook"), server.runtime)
    setup(manager)
    server.grant(OPERATOR, cluster_role("cookbook", manager.permissions))
    serve_webhooks(server, manager)
    return Client(server)


@virtual_time
async def test_recipe_apps_changed_secret_rolls_out(recipe: Load, server: InMemoryApiServer) -> None:
    apps = recipe("apps")
    server.register(apps.App)
    secret = ObjectKey("default", "login")

    async def version(client: Client) -> str:
        await asyncio.sleep(30)
        deployment = await client.get(Deployment, KEY)
        assert deployment.spec is not None
        assert deployment.spec.template.metadata is not None
        return deployment.spec.template.metadata.annotations["example.com/secret-version"]

    async with running(server, apps.setup, workloads=True) as client:
        await client.create(apps.App(metadata=METADATA, spec=apps.AppSpec(image="app:1", secret="login")))
        await asyncio.sleep(10)
        assert server.read(Deployment, KEY) is None
        metadata = {"name": secret.name, "namespace": secret.namespace}
        server.load({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": {"password": "eA=="}})
        first = await version(client)
        assert (await condition(client, apps.App)).status == "True"
        assert await version(client) == first
        await client.patch(Secret, secret, MergePatch({"data": {"password": "eQ=="}}))
        assert await version(client) != first
        await client.patch(Secret, secret, MergePatch({"data": {"password": None}}))
        assert (await condition(client, apps.App)).reason == "NoKey"


@virtual_time
async def test_recipe_licenses_expiry_emits_one_event(recipe: Load, server: InMemoryApiServer) -> None:
    licenses = recipe("licenses")
    server.register(licenses.License)
    spec = licenses.LicenseSpec(expires=datetime(2030, 1, 2, tzinfo=UTC))
    async with running(server, licenses.setup) as client:
        await client.create(licenses.License(metadata=METADATA, spec=spec))
        assert (await condition(client, licenses.License, "Valid")).status == "True"
        await asyncio.sleep(86400)
        expired = await condition(client, licenses.License, "Valid")
        assert (expired.status, expired.reason) == ("False", "Expired")
        assert "2030-01-02 00:00" in expired.message
        await asyncio.sleep(86400)
        events = [(event.type, event.reason) for event in server.read_all(Event)]
        assert sorted(events) == [("Normal", "NotExpired"), ("Warning", "Expired")]


@virtual_time
async def test_recipe_fleets_status_counts_deployments(recipe: Load, server: InMemoryApiServer) -> None:
    fleets = recipe("fleets")
    server.register(fleets.Fleet)
    spec = fleets.FleetSpec(image="app:1", regions=("eu", "us", "asia"))
    async with running(server, fleets.setup) as client:
        await client.create(fleets.Fleet(metadata=METADATA, spec=spec))
        assert (await condition(client, fleets.Fleet)).reason == "Progressing"
        status = {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1}
        eu = ObjectKey("default", "blue-eu")
        await client.patch(Deployment, eu, MergePatch({"status": status}), subresource="status")
        await asyncio.sleep(1)
        found = (await client.get(fleets.Fleet, KEY)).status
        assert (found.ready, found.total, found.not_ready) == (1, 3, ("blue-us", "blue-asia"))
    async with running(server, fleets.setup, workloads=True) as client:
        await client.patch(fleets.Fleet, KEY, MergePatch({"spec": {"regions": ["eu", "us"]}}))
        await asyncio.sleep(10)
        found = (await client.get(fleets.Fleet, KEY)).status
        assert (found.ready, found.total, found.not_ready) == (2, 2, ())
        assert names(server, Deployment) == ["blue-eu", "blue-us"]


@virtual_time
async def test_recipe_carts_default_comes_from_namespace(recipe: Load, server: InMemoryApiServer) -> None:
    carts = recipe("carts")
    server.register(carts.Cart)
    client = webhook_client(server, carts.setup)
    await client.patch(Namespace, ObjectKey("", "default"), MergePatch({"metadata": {"labels": {"team": "red"}}}))
    created = await client.create(carts.Cart(metadata=METADATA, spec=carts.CartSpec()))
    assert created.spec.team == "red"
    other = carts.Cart(metadata=ObjectMeta(name="other", namespace="default"), spec=carts.CartSpec(team="blue"))
    assert (await client.create(other)).spec.team == "blue"
    assert server.rbac_denials == []


class FakeTickets:
    """A ticket system with a feed that fails once."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.feed: list[str] = []
        self.errors = [ConnectionError("feed")]

    async def state(self, number: str) -> str:
        return self.states.get(number, "open")

    async def changes(self, cursor: str) -> tuple[list[str], str]:
        if self.errors:
            raise self.errors.pop()
        start = int(cursor or 0)
        return self.feed[start:], str(len(self.feed))


@virtual_time
async def test_recipe_tickets_change_is_found_by_feed(recipe: Load, server: InMemoryApiServer) -> None:
    tickets, api = recipe("tickets"), FakeTickets()
    server.register(tickets.Ticket)

    async def state(client: Client) -> str | None:
        return (await client.get(tickets.Ticket, KEY)).status.state

    async with running(server, tickets.setup, api) as client:
        await client.create(tickets.Ticket(metadata=METADATA, spec=tickets.TicketSpec(number="7")))
        await asyncio.sleep(1)
        assert await state(client) == "open"
        api.states["7"] = "closed"
        api.feed += ["8", "7"]
        await asyncio.sleep(90)
        assert await state(client) == "closed"
        # Missing in the feed.
        api.states["7"] = "reopened"
        await asyncio.sleep(3600)
        assert await state(client) == "reopened"


@virtual_time
async def test_recipe_disks_old_field_is_moved(recipe: Load, server: InMemoryApiServer) -> None:
    disks = recipe("disks")
    server.register(disks.Disk)
    server.load(disks.Disk(metadata=METADATA, spec=disks.DiskSpec(size=3)))
    new = ObjectMeta(name="new", namespace="default")
    server.load(disks.Disk(metadata=new, spec=disks.DiskSpec(capacity=5)))
    server.fail_next(lambda request: request.method == "PATCH", 409)
    async with running(server, disks.setup) as client:
        await asyncio.sleep(10)
        assert (await client.get(disks.Disk, KEY)).spec == disks.DiskSpec(capacity=3)
        assert (await client.get(disks.Disk, ObjectKey("default", "new"))).spec == disks.DiskSpec(capacity=5)
        with pytest.raises(Invalid, match="exactly one"):
            await client.patch(disks.Disk, KEY, JsonPatch([{"op": "add", "path": "/spec/size", "value": 4}]))
