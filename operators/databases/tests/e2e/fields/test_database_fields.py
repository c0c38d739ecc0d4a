"""Scenario 18: every field of a Database's spec is set, changed and removed, and the server on a cluster follows.

``simulated/api/test_field_cases.py`` checks that each field has a case or another test.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, ON_POSTGRESQL, EngineCommands
from database_support.fields.cluster import nested, stage, wait_for_stage
from database_support.fields.database import FIELDS, DatabaseFields
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("database-fields"), pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def its(of: EngineCommands) -> DatabaseFields:
    """The fields on the engine."""
    return FIELDS[of]


@pytest.fixture(scope="module")
def orders(shared: NamespaceClient, of: EngineCommands, its: DatabaseFields) -> ClusterUnderTest:
    """A cluster of one with roles who may own something."""
    made = ClusterUnderTest(shared, spec={**of.small, "instances": 1}, engine=of)
    made.apply()
    roles = ("keeper_one", "keeper_two", "holder_one", "holder_two")
    for role in roles:
        spec = made.reference(user=role, login=False)
        shared.apply("DatabaseUser", role.replace("_", "-"), spec)
    made.wait_ready()
    for role in roles:
        shared.wait_reason("databaseuser", role.replace("_", "-"), "ProvisionSucceeded")
    for statement, database in its.template:
        made.sql(statement, database)
    return made


def declare(orders: ClusterUnderTest, name: str, **spec: Any) -> None:
    """Declares a database, and waits until it is as declared."""
    orders.namespace_client.apply("Database", name, orders.reference(**spec))
    orders.namespace_client.wait_current("database", name, "DatabaseReady")


def drop(orders: ClusterUnderTest, name: str) -> None:
    orders.namespace_client.kubectl("delete", "database", name, "--timeout=60s", seconds=70)


@ON_POSTGRESQL
def test_fields_set_changed_and_removed_take_effect(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for number in range(3):
        declare(orders, "stock", **stage(its.cases, {"deletionPolicy": "Delete"}, number))
        wait_for_stage(orders, its.cases, number, 60)
    drop(orders, "stock")


@EACH_ENGINE
def test_owner(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """Without one there is a user of the database's name again, and its Secret."""
    cases = {"owner": its.owner}
    for number in range(3):
        declare(orders, "owned", **stage(cases, {"deletionPolicy": "Delete"}, number))
        wait_for_stage(orders, cases, number, 60)
        assert bool(orders.namespace_client.secret("owned-app")) == (number == 2)
    drop(orders, "owned")


@EACH_ENGINE
def test_creation_fields_are_immutable(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for name, given in its.creation.items():
        declare(orders, name, **{**given.spec, "deletionPolicy": "Delete"})
        assert orders.sql(given.statement, given.database) == given.expected
    for path, kept in its.immutable.items():
        field = path.split(".")[0]
        given = orders.namespace_client.get("database", kept.object_name)["spec"]
        for change in (nested({path: kept.other_value}), *([{field: None}] if field in given else ())):
            with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*immutable"):
                orders.namespace_client.patch("database", kept.object_name, {"spec": change})
    for name, given in its.creation.items():
        drop(orders, name)
        assert orders.sql(its.exists.format(given.database)) == "0"


@EACH_ENGINE
def test_creation_fields_cannot_be_added_later(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    declare(orders, "plain", deletionPolicy="Delete")
    for path, kept in its.immutable.items():
        field = path.split(".")[0]
        if field != "clusterRef":
            with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*immutable"):
                orders.namespace_client.patch("database", "plain", {"spec": {field: kept.other_value}})
    drop(orders, "plain")


@EACH_ENGINE
def test_unsupported_field_is_rejected_by_name(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for field, (value, words) in its.rejected.items():
        with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*{words}"):
            orders.namespace_client.apply("Database", "wrong", orders.reference(**{field: value}))
    assert not orders.namespace_client.get("database", "wrong")


@EACH_ENGINE
def test_adopt(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """What is there already is taken with it alone, and kept without it from then on."""
    orders.sql(its.created)
    orders.sql("CREATE TABLE kept (n int PRIMARY KEY)", "found")
    spec: Mapping[str, Any] = {"username": "finder", "deletionPolicy": "Delete"}
    for without in ({}, {"adopt": False}):
        orders.namespace_client.apply("Database", "found", orders.reference(**spec, **without))
        orders.namespace_client.wait_current("database", "found", "AlreadyExists")
    declare(orders, "found", **spec, adopt=True)
    owner = orders.namespace_client.secret("found-app")
    assert orders.namespace_client.log_in(f"{orders.primary}-0", owner, "SELECT 1", owner["type"]) == "1"
    declare(orders, "found", **spec)
    assert orders.sql("SELECT COUNT(*) FROM kept", "found") == "0", "it is the one that was there"
    drop(orders, "found")
    assert orders.sql(its.exists.format("found")) == "0"


@EACH_ENGINE
def test_deletion_policy(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """The one at the end counts. Database and owner are of one name."""
    for former, latter, left in (("Retain", "Delete", "0"), ("Delete", "Retain", "2"), ("Delete", None, "2")):
        name = f"ends{former}{latter}".lower()
        declare(orders, name, deletionPolicy=former)
        assert orders.sql(its.exists.format(name)) == "2"
        declare(orders, name, **({} if latter is None else {"deletionPolicy": latter}))
        drop(orders, name)
        assert orders.sql(its.exists.format(name)) == left
        assert bool(orders.namespace_client.secret(f"{name}-app")) == (left == "2"), "it opens what is left"
