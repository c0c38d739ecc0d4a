"""All that a user's object can say, on a cluster and on a MySQL server: passwords that rotate, grants, roles."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from database_support.e2e.cluster import SMALL_SPEC, ClusterUnderTest, NamespaceClient
from database_support.e2e.database import DatabaseUnderTest
from database_support.e2e.engines import MYSQL
from devcluster.errors import CommandFailed

pytestmark = pytest.mark.xdist_group("user-accounts")

Record = Callable[[str, object], None]
Login = Mapping[str, str]
HEALED_WITHIN = 30.0
OVERLAP = 30
LONG_AGO = "2000-01-01T00:00:00Z"
REFUSALS = (
    "authentication failed",
    "Access denied",
    "too many connections for role",
    "permission denied",
    "denied to",
)


@dataclass
class Served:
    """A server with the database ``orders``."""

    place: NamespaceClient
    engine: str
    pod: str
    cluster: ClusterUnderTest
    on: Mapping[str, Any]

    def user(self, name: str, **spec: Any) -> None:
        """Declares one, and waits until it is as declared."""
        self.place.apply("DatabaseUser", name, {**self.on, "user": name, **spec})
        generation = self.place.get("databaseuser", name)["metadata"]["generation"]

        def provisioned() -> bool:
            ready = self.place.condition("databaseuser", name)
            return ready.get("reason") == "ProvisionSucceeded" and ready["observedGeneration"] == generation

        self.place.until(f"{name} is as declared", provisioned, 90, about=("databaseuser", name))

    def login(self, name: str) -> dict[str, str]:
        return self.place.secret(f"{name}-user")

    def ask(self, login: Login, statement: str) -> str:
        return self.place.log_in(self.pod, login, statement, self.engine)

    def refuses(self, login: Login, statement: str = "SELECT 1") -> str:
        """The server's words against it; empty where it does as it is told."""
        try:
            self.ask(login, statement)
        except CommandFailed as refusal:
            assert any(words in str(refusal) for words in REFUSALS), refusal
            return str(refusal)
        return ""


@pytest.fixture(scope="module")
def shop(shared: NamespaceClient) -> ClusterUnderTest:
    """A cluster of one that logs all statements, for all tests of the module."""
    parameters = {**SMALL_SPEC["postgresql"]["parameters"], "log_statement": "all"}
    spec = {**SMALL_SPEC, "instances": 1, "postgresql": {"parameters": parameters}}
    made = ClusterUnderTest(shared, "shop", spec)
    made.apply()
    shared.apply("Database", "orders", {"clusterRef": {"name": "shop"}, "deletionPolicy": "Delete"})
    shared.wait_reason("database", "orders", "DatabaseReady", seconds=240)
    return made


@pytest.fixture(scope="module")
def mysql(shared: NamespaceClient) -> DatabaseUnderTest:
    """A MySQL server, for all tests of the module."""
    made = DatabaseUnderTest(shared.target, shared.namespace, "blog", "mysql")
    made.apply(databaseName="orders", username="orders", deletionPolicy="Delete")
    made.wait_ready(240)
    return made


@pytest.fixture
def served(request: pytest.FixtureRequest, shared: NamespaceClient, engine: str) -> Served:
    """A server of each engine in turn."""
    if engine == "postgresql":
        return Served(shared, engine, "shop-0-0", request.getfixturevalue("shop"), {"clusterRef": {"name": "shop"}})
    server = {
        "service": {"name": "blog-primary"},
        "administrator": {"name": "blog-admin"},
        "tls": {"mode": "Require"},
    }
    request.getfixturevalue("mysql")
    made = ClusterUnderTest(shared, "blog", engine=MYSQL)
    return Served(shared, engine, "blog-0-0", made, {"engine": engine, "serverRef": server})


on_postgresql = pytest.mark.parametrize("engine", ["postgresql"])
on_mysql = pytest.mark.parametrize("engine", ["mysql"])


def test_password_rotation_fails_no_login(served: Served, record_property: Record) -> None:
    place, postgresql = served.place, served.engine == "postgresql"
    grants: list[dict[str, Any]] = [{"database": "orders", "privileges": ["CONNECT"] if postgresql else ["ALL"]}]
    if postgresql:
        grants += [{"database": "orders", "schema": "public", "privileges": ["USAGE", "CREATE"]}]
    served.user("clerk", grants=grants, rotation={"every": "720h", "overlap": f"{OVERLAP}s"})
    first = served.login("clerk")
    served.ask(first, "CREATE TABLE owned (n INT); INSERT INTO owned VALUES (1)")

    place.patch("secret", "clerk-user", {"stringData": {"rotated-at": LONG_AGO}})
    began = time.monotonic()
    while (current := served.login("clerk"))["password"] == first["password"]:
        assert served.refuses(current) == ""
        assert time.monotonic() - began < HEALED_WITHIN
    record_property("seconds until there is a new password", round(time.monotonic() - began, 1))
    switched = time.monotonic()
    assert (served.refuses(current), served.refuses(first)) == ("", ""), "both open it meanwhile"
    assert (current["previous-username"], current["previous-password"]) == (first["user"], first["password"])
    assert current["user"] == ("clerk~" if postgresql else "clerk")

    while served.refuses(first) == "":
        assert served.refuses(served.login("clerk")) == ""
        assert time.monotonic() - switched < OVERLAP + HEALED_WITHIN
    record_property("seconds until the former one ended", round(time.monotonic() - switched, 1))
    place.until("the Secret has one only", lambda: "previous-password" not in served.login("clerk"), HEALED_WITHIN)
    assert served.ask(served.login("clerk"), "INSERT INTO owned VALUES (2); SELECT COUNT(*) FROM owned").endswith("2")
    rotated = place.get("databaseuser", "clerk")["status"]["lastRotationTime"]
    assert rotated == served.login("clerk")["rotated-at"].replace("+00:00", "Z")
    if postgresql:
        log = place.kubectl("logs", served.pod, "--all-containers")
        # The statements with the passwords are there, and so the passwords could be.
        assert 'CREATE ROLE "clerk" ' in log and 'ALTER ROLE "clerk~" PASSWORD \'SCRAM-SHA-256$' in log
        assert 'CREATE ROLE "orders" ' in log
        for login in (first, current, place.secret("shop-admin"), place.secret("orders-app")):
            assert login["password"] not in log
    place.kubectl("delete", "databaseuser", "clerk", "--timeout=60s", seconds=70)
    assert served.refuses(current) != ""
    # What it owned is the database's owner's now, and all of it is there.
    owner = place.secret("orders-app" if postgresql else "blog-app")
    assert served.ask(owner, "SELECT COUNT(*) FROM owned").endswith("2")


@on_mysql
def test_statement_log_contains_no_password(served: Served) -> None:
    """The owner has another one set, and a user is made: both are in the log."""
    place, sql = served.place, served.cluster.sql
    former = place.secret("blog-app")
    sql("SET GLOBAL log_output = 'TABLE'; SET GLOBAL general_log = ON")
    try:
        place.kubectl("delete", "secret", "blog-app")

        def is_back() -> bool:
            login = place.secret("blog-app")
            return login.get("password", former["password"]) != former["password"] and not served.refuses(login)

        place.until("the owner's Secret is back, and opens", is_back, HEALED_WITHIN)
        served.user("logged", grants=[{"database": "orders", "privileges": ["ALL"]}])
        log = sql("SELECT argument FROM mysql.general_log") + place.kubectl("logs", served.pod, "--all-containers")
    finally:
        sql("SET GLOBAL general_log = OFF; SET GLOBAL log_output = DEFAULT")
    # The statements with the passwords are there, and so the passwords could be.
    assert "ALTER USER `orders`@`%` IDENTIFIED" in log and "CREATE USER IF NOT EXISTS `logged`@`%` IDENTIFIED" in log
    for login in (served.login("logged"), place.secret("blog-app"), place.secret("blog-admin")):
        assert login["password"] not in log
    place.kubectl("delete", "databaseuser", "logged", "--timeout=60s", seconds=70)


def test_rotation_set_changed_and_removed(served: Served) -> None:
    """Whatever changes, what the Secret says is let in. Without it nothing is, and in the end one opens."""
    place, name = served.place, "drummer"
    grants = [{"database": "orders", "privileges": ["CONNECT"] if served.engine == "postgresql" else ["ALL"]}]

    def declare(**rotation: str) -> Login:
        served.user(name, grants=grants, **({"rotation": rotation} if rotation else {}))
        login = served.login(name)
        assert served.refuses(login) == ""
        return login

    def rotated() -> str:
        return place.get("databaseuser", name)["status"].get("lastRotationTime", "")

    def say_rotated(moment: str) -> None:
        """Writes when it last was, and waits until the operator has seen it, and done what is due by that."""
        before = rotated()
        place.patch("secret", f"{name}-user", {"stringData": {"rotated-at": moment}})
        place.until("it is looked at", lambda: rotated() != before, HEALED_WITHIN)

    def another_than(former: Login) -> Login:
        def is_another() -> Login | None:
            return None if (login := served.login(name))["password"] == former["password"] else login

        login = place.until("there is a new password", is_another, HEALED_WITHIN)
        assert (served.refuses(login), served.refuses(former)) == ("", ""), "both open it meanwhile"
        return login

    first = declare()
    assert "rotated-at" not in first
    assert declare(every="720h")["password"] == first["password"], "it is new as it is"
    place.patch("secret", f"{name}-user", {"stringData": {"rotated-at": LONG_AGO}})
    second = another_than(first)

    # An overlap that is on ends as is declared by then.
    assert declare(every="720h", overlap="5s")["password"] == second["password"]
    place.until("the former has ended", lambda: served.refuses(first), HEALED_WITHIN)
    place.until("the Secret has one only", lambda: "previous-password" not in served.login(name), HEALED_WITHIN)

    say_rotated(f"{datetime.now(UTC) - timedelta(minutes=10):%Y-%m-%dT%H:%M:%SZ}")
    assert served.login(name)["password"] == second["password"], "not due before 720h have passed"
    served.user(name, grants=grants, rotation={"every": "5m", "overlap": "2m"})
    third = another_than(second)

    assert declare()["password"] == third["password"]
    assert served.refuses(second) == "", "it was told until when it is valid"
    place.until("the former has ended", lambda: served.refuses(second), 120 + HEALED_WITHIN)
    place.until("the Secret has one only", lambda: "previous-password" not in served.login(name), HEALED_WITHIN)
    say_rotated(LONG_AGO)
    last = served.login(name)
    assert last["password"] == third["password"] and "next-password" not in last, "it is rotated no more"
    assert served.refuses(last) == ""
    place.kubectl("delete", "databaseuser", name, "--timeout=60s", seconds=70)
    assert served.refuses(last) != ""


BOOKS = """
SET ROLE orders;
CREATE SCHEMA books;
CREATE TABLE books.visits (at int, who text);
INSERT INTO books.visits VALUES (7, 'jane');
CREATE SEQUENCE books.numbers;
CREATE SEQUENCE books.others;
CREATE FUNCTION books.total(int) RETURNS int LANGUAGE sql AS 'SELECT $1 + 1';
CREATE FUNCTION books.total(text) RETURNS text LANGUAGE sql AS 'SELECT $1';
REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA books FROM PUBLIC;
"""


@on_postgresql
def test_all_grant_kinds_through_a_role_apply(served: Served, shop: ClusterUnderTest) -> None:
    shop.sql(BOOKS, "orders")
    inside: dict[str, Any] = {"database": "orders", "schema": "books"}
    grants = [
        {"database": "orders", "privileges": ["CONNECT"]},
        {**inside, "privileges": ["USAGE"]},
        {**inside, "tables": ["visits"], "columns": ["at"], "privileges": ["SELECT"]},
        {**inside, "sequences": ["numbers"], "privileges": ["USAGE"]},
        {**inside, "functions": ["total(integer)"], "privileges": ["EXECUTE"]},
        {**inside, "sequences": ["*"], "privileges": ["SELECT"], "future": True},
    ]
    served.user("reporting", login=False, grants=grants)
    assert not served.place.get("secret", "reporting-user")
    tomorrow, yesterday = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (1, -1))
    roles = {"database": "orders", "roles": [{"name": "reporting"}]}
    served.user("jane", **roles, connectionLimit=3, validUntil=tomorrow)
    jane = served.login("jane")

    for statement, answer in (
        ("SELECT at FROM books.visits", "7"),
        ("SELECT nextval('books.numbers')", "1"),
        ("SELECT books.total(1)", "2"),
        ("SELECT last_value FROM books.others", "1"),
    ):
        assert served.ask(jane, statement) == answer
    for statement in (
        "SELECT who FROM books.visits",
        "SELECT nextval('books.others')",
        "SELECT books.total('x'::text)",
        "CREATE TABLE books.mine (n int)",
        "SELECT * FROM pg_authid",
    ):
        assert "permission denied" in served.refuses(jane, statement)
    shop.sql("SET ROLE orders; CREATE SEQUENCE books.later", "orders")
    assert served.ask(jane, "SELECT last_value FROM books.later") == "1", "as soon as it is there"

    limit = "SELECT rolconnlimit, rolvaliduntil > now() FROM pg_roles WHERE rolname = 'jane'"
    assert shop.sql(limit) == "3|t"
    served.user("jane", **roles, connectionLimit=0, validUntil=tomorrow)
    assert "too many connections for role" in served.refuses(jane)
    served.user("jane", **roles, validUntil=yesterday)
    assert "authentication failed" in served.refuses(jane)
    served.user("jane", **roles)
    assert served.refuses(jane) == ""
    # A membership that is declared no more is none any more, and a table that is not there yet is waited for.
    unborn = [
        grants[0],
        {**inside, "privileges": ["USAGE"]},
        {**inside, "tables": ["unborn"], "privileges": ["SELECT"]},
    ]
    served.place.apply("DatabaseUser", "jane", {**served.on, "user": "jane", "database": "orders", "grants": unborn})
    served.place.wait_for_columns("dbu", "jane", "False", "ProvisionFailed", "unborn")
    assert "permission denied" in served.refuses(jane, "SELECT at FROM books.visits")
    shop.sql("SET ROLE orders; CREATE TABLE books.unborn AS SELECT 1", "orders")
    served.place.until("it is granted", lambda: served.ask(jane, "SELECT * FROM books.unborn") == "1", HEALED_WITHIN)
    served.place.wait_for_columns("dbu", "jane", "True", "ProvisionSucceeded")


@on_mysql
def test_column_and_routine_grants_apply(served: Served, mysql: DatabaseUnderTest) -> None:
    mysql.client_sql("CREATE TABLE visits (at INT, who TEXT); INSERT INTO visits VALUES (7, 'jim')")
    for name in ("total", "other"):
        mysql.client_sql(f"CREATE PROCEDURE {name} (n INT) SELECT n + 1")
    grants = [
        {"database": "orders", "tables": ["visits"], "columns": ["at"], "privileges": ["SELECT"]},
        {"database": "orders", "functions": ["total"], "privileges": ["EXECUTE"]},
    ]
    served.user("jim", grants=grants)
    jim = served.login("jim")
    assert served.ask(jim, "SELECT at FROM visits") == "7"
    assert served.ask(jim, "CALL total(1)") == "2"
    for statement in ("SELECT who FROM visits", "UPDATE visits SET at = 8", "CALL other(1)", "DROP PROCEDURE total"):
        assert "denied" in served.refuses(jim, statement)

    mysql.admin_sql("REVOKE SELECT (at) ON orders.visits FROM jim; REVOKE EXECUTE ON PROCEDURE orders.total FROM jim")
    mysql.admin_sql("GRANT SELECT (who) ON orders.visits TO jim")
    place = served.place
    place.until("columns are healed", lambda: served.ask(jim, "SELECT at FROM visits") == "7", HEALED_WITHIN)
    place.until("routines are healed", lambda: served.ask(jim, "CALL total(1)") == "2", HEALED_WITHIN)
    place.until("no others are left", lambda: served.refuses(jim, "SELECT who FROM visits"), HEALED_WITHIN)


CHANGE = {
    "postgresql": "ALTER ROLE {} CREATEDB; ALTER DATABASE {} CONNECTION LIMIT 7",
    "mysql": "ALTER USER {} WITH MAX_QUERIES_PER_HOUR 7000; ALTER DATABASE {} CHARACTER SET latin1",
}
USER = {
    "postgresql": "SELECT concat(rolcreatedb::int, ' ', greatest(rolconnlimit, 0)) FROM pg_roles "
    "WHERE rolname = '{}'",
    "mysql": "SELECT CONCAT(max_questions > 0, ' ', max_user_connections) FROM mysql.user WHERE User = '{}'",
}
"""Whether it is changed, and how many of its connections are let in."""
DATABASE = {
    "postgresql": "SELECT (datconnlimit = 7)::int FROM pg_database WHERE datname = '{}'",
    "mysql": "SELECT DEFAULT_CHARACTER_SET_NAME = 'latin1' FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{}'",
}
"""Whether it is changed."""


def test_paused_user_is_not_changed(served: Served) -> None:
    """Neither what is declared is made so, nor what somebody changed is undone, while others' is."""
    place, sql = served.place, served.cluster.sql
    change, users, databases = (statements[served.engine] for statements in (CHANGE, USER, DATABASE))
    for name in ("quiet", "other"):
        served.user(name)
    place.apply("Database", "still", served.cluster.reference(deletionPolicy="Delete"))
    place.wait_reason("database", "still", "DatabaseReady")

    def pause(kind: str, name: str, value: str | None) -> None:
        place.patch(kind, name, {"metadata": {"annotations": {"databases.steersman.dev/paused": value}}})

    pause("databaseuser", "quiet", "true")
    pause("database", "still", "true")
    place.wait_reason("databaseuser", "quiet", "ByAnnotation", "Paused")
    place.wait_reason("database", "still", "Paused")
    sql(change.format("quiet", "still"))
    place.patch("databaseuser", "quiet", {"spec": {"connectionLimit": 2}})
    sql(change.format("other", "orders"))
    place.until("the other's is undone", lambda: sql(users.format("other")) == "0 0", HEALED_WITHIN)
    place.until("the other's is undone", lambda: sql(databases.format("orders")) == "0", HEALED_WITHIN)
    assert (sql(users.format("quiet")), sql(databases.format("still"))) == ("1 0", "1")

    pause("databaseuser", "quiet", None)
    pause("database", "still", None)
    place.until("it is as declared", lambda: sql(users.format("quiet")) == "0 2", HEALED_WITHIN)
    place.until("it is as declared", lambda: sql(databases.format("still")) == "0", HEALED_WITHIN)
    place.wait_reason("databaseuser", "quiet", "ProvisionSucceeded")
    place.wait_reason("database", "still", "DatabaseReady")
    assert not place.condition("databaseuser", "quiet", "Paused")
    # The next engine has others of these names.
    for each in ("databaseuser/quiet", "databaseuser/other", "database/still"):
        place.kubectl("delete", each, "--timeout=60s", seconds=70)


def test_blocked_deletion_is_forced(served: Served, record_property: Record) -> None:
    """It is the last: nothing is left of the cluster."""
    place, cluster = served.place, served.cluster
    served.user("stuck")
    place.apply("Database", "caught", cluster.reference(deletionPolicy="Delete"))
    place.wait_reason("database", "caught", "DatabaseReady")
    cluster.annotate("fenced-instances", "*")
    cluster.wait_reason("Fenced", "Available")

    def forced(kind: str, name: str, waits: str) -> None:
        place.kubectl("delete", kind, name, "--wait=false")
        place.until(f"{kind} {name} waits", lambda: waits in place.condition(kind, name).get("message", ""), 60)
        place.patch(kind, name, {"metadata": {"annotations": {"databases.steersman.dev/force-delete": "true"}}})
        place.until(f"{kind} {name} is gone", lambda: not place.get(kind, name), 60)

    advice = "annotate it with databases.steersman.dev/force-delete=true"
    forced("databaseuser", "stuck", advice)
    forced("database", "caught", advice)
    # A pod that never ends, as on a node that is lost.
    place.patch("pod", served.pod, {"metadata": {"finalizers": ["e2e.steersman.dev/held"]}})
    # One that a Database made is deleted by way of it.
    owned = served.engine == "mysql"
    try:
        began = time.monotonic()
        forced("database" if owned else cluster.kind, cluster.name, f"waiting for {served.pod} to stop")
        assert time.monotonic() - began < 120, "it is given up after three minutes otherwise"
        record_property("seconds until the cluster was gone", round(time.monotonic() - began, 1))
        assert place.get("pod", served.pod) and not place.get(cluster.kind, cluster.name)
    finally:
        place.patch("pod", served.pod, {"metadata": {"finalizers": None}})
    place.until("its data are gone", lambda: not place.get("pvc", f"data-{cluster.name}-0"), 60)
