"""The condition WebhooksDisabled of each kind with admission webhooks."""

from __future__ import annotations

import pytest

from database_support.unit.backup_stores import CREDENTIALS, StoresHarness, secret, store
from database_support.unit.cluster_harness import ClusterHarness
from database_support.unit.group_harness import GroupHarness
from database_support.unit.users_harness import UsersHarness
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, find_condition
from steersman_databases.api import Database
from steersman_databases.main import setup
from steersman_testing import InMemoryApiServer, virtual_time

TYPE = "WebhooksDisabled"


@virtual_time
async def test_database_and_user_without_webhooks_report_it() -> None:
    world = UsersHarness(serve_webhooks=False)

    def reported() -> list[bool]:
        database, user = world.server.read(Database, ObjectKey("default", "shop")), world.read()
        assert database is not None and user is not None
        return [find_condition(each.status.conditions, TYPE) is not None for each in (database, user)]

    async with world.operator():
        await world.user()
        await world.database()
        await world.ready()
        await world.until("database ready", lambda: world.database_reason("shop") == "DatabaseReady")
        assert reported() == [True, True]
        user = world.read()
        assert user is not None
        condition = find_condition(user.status.conditions, TYPE)
        assert condition is not None and (condition.status, condition.reason) == ("True", "NotServed")
        assert "rights of users" in condition.message
        version = world.server.resource_version
        await world.runtime.clock.sleep(600)
        assert world.server.resource_version == version, "ten quiet minutes change no object"
    world.serve_webhooks = True
    async with world.operator():
        await world.until("removed", lambda: reported() == [False, False])
        await world.ready()


@virtual_time
async def test_backup_store_without_webhooks_reports_it() -> None:
    harness = StoresHarness(serve_webhooks=False)
    async with harness.operator():
        await harness.client.create(secret("credentials", CREDENTIALS))
        await harness.client.create(store())
        await harness.until("ready", lambda: harness.reason() == "Reachable")
        assert harness.reason(TYPE) == "NotServed"
    harness.serve_webhooks = True
    async with harness.operator():
        await harness.until("removed", lambda: harness.condition(TYPE) is None)
        assert harness.reason() == "Reachable"
        assert harness.reason("EncryptionKeyExported") == "NotExported"


@pytest.mark.parametrize("harness", [ClusterHarness, GroupHarness])
@virtual_time
async def test_cluster_without_webhooks_reports_it(harness: type[ClusterHarness]) -> None:
    world = harness(serve_webhooks=False)
    async with world.operator():
        await world.create(instances=3)
        await world.ready(3)
        assert world.condition(TYPE) == "True/NotServed"
        assert world.condition("Ready") == "True/AllInstancesReady"
    world.serve_webhooks = True
    async with world.operator():
        await world.until("removed", lambda: world.condition(TYPE) == "")
        assert world.condition("Ready") == "True/AllInstancesReady"


@pytest.mark.parametrize("served", [True, False])
@virtual_time
async def test_operator_without_webhooks_logs_it(served: bool, caplog: pytest.LogCaptureFixture) -> None:
    setup(Manager(InMemoryApiServer(), ManagerOptions(serve_webhooks=served)))
    assert ("webhooks are disabled" in caplog.text) is not served
