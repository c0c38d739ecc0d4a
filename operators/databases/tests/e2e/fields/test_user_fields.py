"""Scenario 18: every field of a DatabaseUser's spec is set, changed and removed, and the server on a cluster follows.

The definition on the API server says which fields there are: one without a case here fails.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, ON_POSTGRESQL, EngineCommands
from database_support.fields import server_ref
from database_support.fields.cluster import known_fields, stage, wait_for_stage
from database_support.fields.user import FIELDS, UserFields
from devcluster.errors import CommandFailed
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("user-fields"), pytest.mark.timeout(900)]

OF_THEIR_OWN = {
    "user": "test_creation_fields_are_immutable",
    "clusterRef.name": "test_creation_fields_are_immutable",
    "clusterRef.namespace": "test_creation_fields_are_immutable",
    "clusterRef.kind": "test_creation_fields_are_immutable",
    "secretName": "test_creation_fields_are_immutable",
    "engine": "test_engine",
    "login": "test_login",
    "undeclaredGrants": "test_undeclared_grants",
    "reassignTo": "test_reassign_to",
    "adopt": "test_adopt",
    "deletionPolicy": "test_deletion_policy",
}
"""Fields that a test here is about."""
OTHER_MODULES = {
    **server_ref.TESTED,
    "rotation.every": "e2e/sql/test_user_lifecycle.py",
    "rotation.overlap": "e2e/sql/test_user_lifecycle.py",
}
"""Fields that another module is about, below ``tests``."""
ROLES = ("role_one", "role_two", "role_three", "role_four", "role_five")


@pytest.fixture(scope="module")
def its(of: EngineCommands) -> UserFields:
    """The fields on the engine."""
    return FIELDS[of]


@pytest.fixture(scope="module")
def orders(shared: NamespaceClient, of: EngineCommands, its: UserFields) -> ClusterUnderTest:
    """A cluster of one with roles, databases, and what there is to grant in one of them."""
    made = ClusterUnderTest(shared, spec={**of.small, "instances": 1}, engine=of)
    made.apply()
    for role in ROLES:
        shared.apply("DatabaseUser", named(role), made.reference(user=role, login=False))
    for database in ("orders", "stock"):
        shared.apply("Database", database, made.reference(deletionPolicy="Delete"))
    made.wait_ready()
    for role in ROLES:
        shared.wait_reason("databaseuser", named(role), "ProvisionSucceeded")
    for database in ("orders", "stock"):
        shared.wait_reason("database", database, "DatabaseReady")
    made.sql(its.furnished, "orders")
    for chosen in ("one", "two"):
        words = [f"--from-literal={key}={chosen} {key}" for key in ("a", "b")]
        shared.kubectl("create", "secret", "generic", f"chosen-{chosen}", *words)
    return made


def named(user: str) -> str:
    """The object of a user."""
    return user.replace("_", "-")


def declare(orders: ClusterUnderTest, user: str, **spec: Any) -> None:
    """Declares one, and waits until it is as declared."""
    orders.namespace_client.apply("DatabaseUser", named(user), orders.reference(user=user, **spec))
    orders.namespace_client.wait_current("databaseuser", named(user), "ProvisionSucceeded")


def drop(orders: ClusterUnderTest, user: str) -> None:
    orders.namespace_client.kubectl("delete", "databaseuser", named(user), "--timeout=60s", seconds=70)


def opens(orders: ClusterUnderTest, secret: str) -> bool:
    """Whether what a Secret says is let in."""
    login = orders.namespace_client.secret(secret)
    try:
        return orders.namespace_client.log_in(f"{orders.primary}-0", login, "SELECT 1", login["type"]) == "1"
    except CommandFailed as refusal:
        assert any(words in str(refusal) for words in ("authentication failed", "not permitted", "Access denied"))
        return False


def test_fields_all_have_a_case(cluster: Target) -> None:
    ours = {path for each in FIELDS.values() for path in (*each.cases, *each.login, *each.refused)}
    known = known_fields(cluster, "DatabaseUser", lists=True)
    assert known == {*ours, *OF_THEIR_OWN, *OTHER_MODULES}
    assert all(name in globals() for name in OF_THEIR_OWN.values())
    tests = Path(__file__).parents[2]
    assert all((tests / module).exists() for module in OTHER_MODULES.values())


@pytest.mark.requirement("user/control-loop")
@EACH_ENGINE
def test_fields_set_changed_and_removed_take_effect(orders: ClusterUnderTest, its: UserFields) -> None:
    for number in range(3):
        declare(orders, "clerk", **stage(its.cases, {}, number))
        wait_for_stage(orders, its.cases, number, 60)
    drop(orders, "clerk")
    assert orders.sql(its.there.format("clerk")) == "0"


@pytest.mark.requirement("user/create-update-delete")
@EACH_ENGINE
def test_login_fields_set_changed_and_removed(orders: ClusterUnderTest, its: UserFields) -> None:
    grants = [{"database": database, "privileges": ["ALL"]} for database in ("stock", "orders")]
    for number in range(3):
        declare(orders, "reader", **stage(its.login, {"grants": grants}, number))
        wait_for_stage(orders, its.login, number, 60)
    drop(orders, "reader")
    assert not orders.namespace_client.secret("reader-user")


@EACH_ENGINE
def test_login(orders: ClusterUnderTest) -> None:
    """A role has no Secret, and who had one is let in by it no more."""
    grants = [{"database": "orders", "privileges": ["ALL"]}]
    declare(orders, "member", grants=grants, login=True)
    former = orders.namespace_client.secret("member-user")
    assert opens(orders, "member-user")
    orders.namespace_client.kubectl(
        "create", "secret", "generic", "kept", *(f"--from-literal={k}={former[k]}" for k in former)
    )
    declare(orders, "member", grants=grants, login=False)
    assert not orders.namespace_client.secret("member-user")
    assert not opens(orders, "kept")
    declare(orders, "member", grants=grants)
    assert opens(orders, "member-user")
    assert not opens(orders, "kept")
    drop(orders, "member")


@EACH_ENGINE
def test_creation_fields_are_immutable(orders: ClusterUnderTest, of: EngineCommands) -> None:
    grants = [{"database": "orders", "privileges": ["ALL"]}]
    declare(orders, "stays", grants=grants, secretName="elsewhere")
    declare(orders, "plain")
    assert opens(orders, "elsewhere")
    assert not orders.namespace_client.secret("stays-user")
    other = "PostgreSQLCluster" if of is MYSQL else "MySQLCluster"
    for name, field, value in (
        ("stays", "secretName", "other"),
        ("stays", "secretName", None),
        ("plain", "secretName", "other"),
        ("plain", "user", "other"),
        ("plain", "clusterRef", {"name": "other"}),
        ("plain", "clusterRef", {"namespace": "other"}),
        ("plain", "clusterRef", {"kind": other}),
        ("plain", "clusterRef", None),
    ):
        with pytest.raises(CommandFailed, match=rf"spec\.{field}\b.*immutable"):
            orders.namespace_client.patch("databaseuser", name, {"spec": {field: value}})
    with pytest.raises(CommandFailed, match=r"spec\.user: Required value"):
        orders.namespace_client.patch("databaseuser", "plain", {"spec": {"user": None}})
    drop(orders, "stays")
    drop(orders, "plain")
    assert not orders.namespace_client.secret("elsewhere")


@EACH_ENGINE
def test_engine(orders: ClusterUnderTest, of: EngineCommands) -> None:
    """Beside the label it says which kind is meant."""
    mine, other = ("mysql", "postgresql") if of is MYSQL else ("postgresql", "mysql")
    place, label = orders.namespace_client, {"target": orders.name}
    place.apply("DatabaseUser", "labelled", {"user": "labelled", "engine": mine}, labels=label)
    place.wait_current("databaseuser", "labelled", "ProvisionSucceeded")
    for value in (other, None):
        with pytest.raises(CommandFailed, match=r"spec\.engine\b.*immutable"):
            place.patch("databaseuser", "labelled", {"spec": {"engine": value}})
    drop(orders, "labelled")
    place.apply("DatabaseUser", "labelled", {"user": "labelled", "engine": other}, labels=label)
    place.wait_for_columns("dbu", "labelled", "False", "ProvisionFailed")
    with pytest.raises(CommandFailed, match=r"spec\.engine\b.*immutable"):
        place.patch("databaseuser", "labelled", {"spec": {"engine": mine}})
    drop(orders, "labelled")


@EACH_ENGINE
def test_unsupported_field_is_rejected_by_name(orders: ClusterUnderTest, its: UserFields) -> None:
    for path, (value, words) in its.refused.items():
        field = re.split(r"[.\[]", path)[0]
        with pytest.raises(CommandFailed, match=words) as refusal:
            orders.namespace_client.apply("DatabaseUser", "wrong", orders.reference(user="wrong", **{field: value}))
        assert field in str(refusal.value).split(": ", 1)[1]
    assert not orders.namespace_client.get("databaseuser", "wrong")


@EACH_ENGINE
def test_undeclared_grants(orders: ClusterUnderTest, its: UserFields) -> None:
    """What is kept is seen once something else has been undone in the same look."""
    for spec, left in (({"undeclaredGrants": "Keep"}, "2"), ({"undeclaredGrants": "Revoke"}, "0"), ({}, "0")):
        declare(orders, "guest", **spec)
        orders.sql(its.undeclared, "orders")
        orders.sql(its.limit[0])
        orders.until("the limit is undone", lambda: orders.sql(its.limit[1]) in ("f", "0"), 60)
        orders.until(f"{left} are left", lambda n=left: orders.sql(its.held, "orders") == n, 30)
    declare(orders, "guest", undeclaredGrants="Keep")
    orders.sql(its.undeclared, "orders")
    declare(orders, "guest")
    assert orders.sql(its.held, "orders") == "0", "revoked as soon as it is no more"
    drop(orders, "guest")


@ON_POSTGRESQL
def test_reassign_to(orders: ClusterUnderTest) -> None:
    """The one at the end counts."""
    for number, (former, latter, heir) in enumerate(
        (("role_one", "role_one", "role_one"), ("role_one", "role_two", "role_two"), ("role_one", None, "orders"))
    ):
        grants = [
            {"database": "orders", "privileges": ["CONNECT"]},
            {"database": "orders", "schema": "books", "privileges": ["USAGE", "CREATE"]},
        ]
        declare(orders, "author", grants=grants, reassignTo=former)
        login = orders.namespace_client.secret("author-user")
        orders.namespace_client.log_in(f"{orders.primary}-0", login, f"CREATE TABLE books.own{number} (n int)")
        declare(orders, "author", grants=grants, **({} if latter is None else {"reassignTo": latter}))
        drop(orders, "author")
        owner = f"SELECT relowner::regrole FROM pg_class WHERE oid = 'books.own{number}'::regclass"
        assert orders.sql(owner, "orders") == heir


@EACH_ENGINE
def test_adopt(orders: ClusterUnderTest, its: UserFields) -> None:
    """Who is there already is taken with it alone, and kept without it from then on."""
    orders.sql(its.made)
    spec: dict[str, Any] = {"grants": [{"database": "orders", "privileges": ["ALL"]}]}
    for without in ({}, {"adopt": False}):
        orders.namespace_client.apply("DatabaseUser", "found", orders.reference(user="found", **spec, **without))
        orders.namespace_client.wait_current("databaseuser", "found", "ProvisionFailed")
        assert "adopt" in orders.namespace_client.condition("databaseuser", "found")["message"]
        assert not opens(orders, "found-user")
    declare(orders, "found", **spec, adopt=True)
    assert opens(orders, "found-user")
    declare(orders, "found", **spec)
    assert opens(orders, "found-user")
    drop(orders, "found")
    assert orders.sql(its.there.format("found")) == "0"


@EACH_ENGINE
def test_deletion_policy(orders: ClusterUnderTest, its: UserFields) -> None:
    """The one at the end counts. Who is left is taken back by an object of the same name."""
    for former, latter, left in (("Delete", "Retain", "1"), ("Retain", "Delete", "0"), ("Retain", None, "0")):
        declare(orders, "leaver", deletionPolicy=former)
        declare(orders, "leaver", **({} if latter is None else {"deletionPolicy": latter}))
        drop(orders, "leaver")
        assert orders.sql(its.there.format("leaver")) == left
