"""Scenario 18: every field of a Database's spec is set, changed and removed, and the server on a cluster follows.

The definition on the API server says which fields there are: one without a case here fails.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from database_support import explored_kinds, server_ref_fields
from database_support.cluster_engines import EACH, ON_POSTGRESQL, Engine
from database_support.cluster_fields import judge, known_fields, nested, stage
from database_support.cluster_under_test import ClusterUnderTest, Place
from database_support.database_fields import FIELDS, DatabaseFields
from devcluster.errors import CommandFailed
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("database-fields"), pytest.mark.timeout(900)]

OF_THEIR_OWN = {"owner": "test_owner", "adopt": "test_adopt", "deletionPolicy": "test_deletion_policy"}
"""Fields that a test here is about."""
OTHER_MODULES = {
    **server_ref_fields.TESTED,
    "version": "e2e/test_specs.py",
    "storageSize": "e2e/test_lifecycle.py",
}
"""Fields that another module is about, below ``tests``: they need other servers."""


@pytest.fixture(scope="module")
def its(of: Engine) -> DatabaseFields:
    """The fields on the engine."""
    return FIELDS[of]


@pytest.fixture(scope="module")
def orders(shared: Place, of: Engine, its: DatabaseFields) -> ClusterUnderTest:
    """A cluster of one with roles who may own something."""
    made = ClusterUnderTest(shared, spec={**of.small, "instances": 1}, engine=of)
    made.apply()
    roles = ("keeper_one", "keeper_two", "holder_one", "holder_two")
    for role in roles:
        spec = made.reference(user=role, login=False)
        shared.declare("DatabaseUser", role.replace("_", "-"), spec)
    made.wait_ready()
    for role in roles:
        shared.wait_reason("databaseuser", role.replace("_", "-"), "ProvisionSucceeded")
    for statement, database in its.mould:
        made.sql(statement, database)
    return made


def declare(orders: ClusterUnderTest, name: str, **spec: Any) -> None:
    """Declares a database, and waits until it is as declared."""
    orders.place.declare("Database", name, orders.reference(**spec))
    orders.place.wait_current("database", name, "DatabaseReady")


def drop(orders: ClusterUnderTest, name: str) -> None:
    orders.place.kubectl("delete", "database", name, "--timeout=60s", seconds=70)


def test_every_field_has_a_case(cluster: Target) -> None:
    ours = {path for each in FIELDS.values() for path in (*each.cases, *each.kept)}
    known = known_fields(cluster, "Database", lists=True)
    assert known == {*ours, *OF_THEIR_OWN, *OTHER_MODULES}
    assert all(name in globals() for name in OF_THEIR_OWN.values())
    tests = Path(__file__).parents[1]
    assert all((tests / module).exists() for module in OTHER_MODULES.values())


def test_what_is_explored_leaves_out_what_is_tested_here(cluster: Target) -> None:
    ours = {path for each in FIELDS.values() for path in (*each.cases, *each.kept)}
    tested = {re.split(r"[.\[]", path)[0] for path in (*ours, *OF_THEIR_OWN, *OTHER_MODULES)}
    assert {path.removeprefix("spec.") for path in explored_kinds.ELSEWHERE} <= tested


@ON_POSTGRESQL
def test_fields_are_set_changed_and_removed(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for number in range(3):
        declare(orders, "stock", **stage(its.cases, {"deletionPolicy": "Delete"}, number))
        judge(orders, its.cases, number, 60)
    drop(orders, "stock")


@EACH
def test_owner(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """Without one there is a user of the database's name again, and its Secret."""
    cases = {"owner": its.owner}
    for number in range(3):
        declare(orders, "owned", **stage(cases, {"deletionPolicy": "Delete"}, number))
        judge(orders, cases, number, 60)
        assert bool(orders.place.secret("owned-app")) == (number == 2)
    drop(orders, "owned")


@EACH
def test_what_is_given_once_stays(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for name, given in its.given.items():
        declare(orders, name, **{**given.spec, "deletionPolicy": "Delete"})
        assert orders.sql(given.statement, given.database) == given.answer
    for path, kept in its.kept.items():
        field = path.split(".")[0]
        given = orders.place.get("database", kept.of)["spec"]
        for change in (nested({path: kept.other}), *([{field: None}] if field in given else ())):
            with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*immutable"):
                orders.place.patch("database", kept.of, {"spec": change})
    for name, given in its.given.items():
        drop(orders, name)
        assert orders.sql(its.there.format(given.database)) == "0"


@EACH
def test_what_is_not_given_is_not_added_later(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    declare(orders, "plain", deletionPolicy="Delete")
    for path, kept in its.kept.items():
        field = path.split(".")[0]
        if field != "clusterRef":
            with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*immutable"):
                orders.place.patch("database", "plain", {"spec": {field: kept.other}})
    drop(orders, "plain")


@EACH
def test_what_is_not_for_it_is_refused_with_the_field(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    for field, (value, words) in its.refused.items():
        with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*{words}"):
            orders.place.declare("Database", "wrong", orders.reference(**{field: value}))
    assert not orders.place.get("database", "wrong")


@EACH
def test_adopt(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """What is there already is taken with it alone, and kept without it from then on."""
    orders.sql(its.made)
    orders.sql("CREATE TABLE kept (n int PRIMARY KEY)", "found")
    spec: Mapping[str, Any] = {"username": "finder", "deletionPolicy": "Delete"}
    for without in ({}, {"adopt": False}):
        orders.place.declare("Database", "found", orders.reference(**spec, **without))
        orders.place.wait_current("database", "found", "AlreadyExists")
    declare(orders, "found", **spec, adopt=True)
    owner = orders.place.secret("found-app")
    assert orders.place.log_in(f"{orders.primary}-0", owner, "SELECT 1", owner["type"]) == "1"
    declare(orders, "found", **spec)
    assert orders.sql("SELECT COUNT(*) FROM kept", "found") == "0", "it is the one that was there"
    drop(orders, "found")
    assert orders.sql(its.there.format("found")) == "0"


@EACH
def test_deletion_policy(orders: ClusterUnderTest, its: DatabaseFields) -> None:
    """The one at the end counts. Database and owner are of one name."""
    for former, latter, left in (("Retain", "Delete", "0"), ("Delete", "Retain", "2"), ("Delete", None, "2")):
        name = f"ends{former}{latter}".lower()
        declare(orders, name, deletionPolicy=former)
        assert orders.sql(its.there.format(name)) == "2"
        declare(orders, name, **({} if latter is None else {"deletionPolicy": latter}))
        drop(orders, name)
        assert orders.sql(its.there.format(name)) == left
        assert bool(orders.place.secret(f"{name}-app")) == (left == "2"), "it opens what is left"
