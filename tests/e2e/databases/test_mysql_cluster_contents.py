"""Databases, users and grants on a MySQL cluster: made, narrowed, healed, and a password that changes unnoticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from cluster_engines import ON_MYSQL
from cluster_under_test import Client, ClusterUnderTest
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("mysql-cluster-contents"), pytest.mark.timeout(600), ON_MYSQL]

HEALED_WITHIN = 30.0
LONG_AGO = {"stringData": {"rotated-at": "2000-01-01T00:00:00Z"}}
TABLES = """
CREATE TABLE parts (id int PRIMARY KEY, name varchar(40), price int);
CREATE TABLE hidden (id int PRIMARY KEY);
CREATE PROCEDURE count_parts() SELECT COUNT(*) FROM parts;
INSERT INTO parts VALUES (1, 'bolt', 7);
"""


def declare(three: ClusterUnderTest, name: str, *grants: dict[str, Any], **more: Any) -> None:
    three.place.declare("DatabaseUser", name, three.reference(user=name, grants=list(grants), **more))
    three.place.wait_reason("databaseuser", name, "ProvisionSucceeded")


@pytest.fixture(scope="module")
def shop(three: ClusterUnderTest) -> ClusterUnderTest:
    """With something in its database."""
    three.sql(TABLES, "shop")
    return three


def logged_in(cluster: ClusterUnderTest, user: str) -> Client:
    made = Client(cluster, f"{user}-user", name=f"client-{user}")
    made.start()
    return made


def test_grants_are_what_they_say_and_no_more(shop: ClusterUnderTest) -> None:
    """On the server, a database, a table, columns and a routine; by a role; and so often an hour."""
    parts = {"database": "shop", "tables": ["parts"]}
    declare(shop, "readers", {**parts, "privileges": ["SELECT"]}, login=False)
    declare(
        shop,
        "clerk",
        {"database": "*", "privileges": ["PROCESS"]},
        {**parts, "columns": ["name"], "privileges": ["UPDATE"]},
        {"database": "shop", "functions": ["count_parts"], "privileges": ["EXECUTE"]},
        roles=[{"name": "readers"}],
        limits={"updates": 20},
        connectionLimit=5,
    )
    client = logged_in(shop, "clerk")
    assert client.sql("SELECT name FROM parts") == "bolt"
    assert client.sql("CALL count_parts()") == "1"
    client.sql("UPDATE parts SET name = 'nut' WHERE id = 1")
    for statement, words in (
        ("UPDATE parts SET price = 0", "denied"),
        ("SELECT * FROM hidden", "denied"),
        ("DELETE FROM parts", "denied"),
        ("CREATE USER other@'%'", "denied"),
        ("SET GLOBAL super_read_only = OFF", "denied"),
    ):
        with pytest.raises(CommandFailed, match=words):
            client.sql(statement)
    with pytest.raises(CommandFailed, match="max_updates"):
        client.sql("".join(f"UPDATE parts SET name = 'n{n}' WHERE id = 1;" for n in range(25)))
    client.stop()
    shop.place.kubectl("delete", "databaseuser", "clerk", "readers", "--timeout=60s", seconds=70)
    assert shop.sql("SELECT COUNT(*) FROM mysql.user WHERE User IN ('clerk', 'readers')") == "0"


def test_what_was_changed_behind_our_back_is_healed(
    shop: ClusterUnderTest, record_property: Callable[[str, object], None]
) -> None:
    declare(shop, "reader", {"database": "shop", "privileges": ["SELECT"]})
    shop.sql("CREATE DATABASE elsewhere")
    grants = (
        "SELECT GROUP_CONCAT(PRIVILEGE_TYPE) FROM information_schema.SCHEMA_PRIVILEGES WHERE GRANTEE LIKE '%reader%'"
    )
    assert shop.sql(grants) == "SELECT"
    of_server = (
        "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE GRANTEE LIKE '%reader%'"
        " AND PRIVILEGE_TYPE = 'PROCESS'"
    )
    harm = {
        "revoked": ("REVOKE SELECT ON shop.* FROM reader", grants, "SELECT", "Granted"),
        "granted": ("GRANT DELETE ON shop.* TO reader", grants, "SELECT", "GrantRevoked"),
        "granted elsewhere": ("GRANT DELETE ON elsewhere.* TO reader", grants, "SELECT", "GrantRevoked"),
        "granted on the server": ("GRANT PROCESS ON *.* TO reader", of_server, "0", "GrantRevoked"),
        "dropped": ("DROP USER reader", grants, "SELECT", "UserCreated"),
    }
    for what, (statement, question, wanted, reason) in harm.items():
        with shop.place.telling("reader", reason):
            shop.sql(statement)
            began = time.monotonic()
            shop.until(f"{what} is healed", lambda q=question, w=wanted: shop.sql(q) == w, HEALED_WITHIN)
            record_property(f"{what}: seconds until it is healed", round(time.monotonic() - began, 1))
    for name, told_of in (("reader", "reader"), ("root", shop.name)):
        verifier = f"SELECT HEX(authentication_string) FROM mysql.user WHERE User = '{name}' AND Host = '%'"
        with shop.place.telling(told_of, "PasswordReset"):
            shop.sql(f"ALTER USER {name}@'%' IDENTIFIED BY 'elsewhere'")
            changed, began = shop.sql(verifier), time.monotonic()
            shop.until("the password is healed", lambda q=verifier, c=changed: shop.sql(q) != c, HEALED_WITHIN)
            record_property(f"password of {name}: seconds until it is healed", round(time.monotonic() - began, 1))
    shop.sql("DROP DATABASE elsewhere")
    shop.place.kubectl("delete", "databaseuser", "reader", "--timeout=60s", seconds=70)


def test_a_table_that_is_granted_and_gone_is_told(shop: ClusterUnderTest) -> None:
    table = "CREATE TABLE brief (id int PRIMARY KEY)"
    shop.sql(table, "shop")
    declare(shop, "finder", {"database": "shop", "tables": ["brief"], "privileges": ["SELECT"]})
    with shop.place.telling("finder", ("ProvisionFailed", "table shop.brief is not there yet")):
        shop.sql("DROP TABLE brief", "shop")
        shop.place.wait_reason("databaseuser", "finder", "ProvisionFailed", seconds=HEALED_WITHIN)
    shop.sql(table, "shop")
    shop.place.wait_reason("databaseuser", "finder", "ProvisionSucceeded", seconds=HEALED_WITHIN)
    shop.sql("DROP TABLE brief", "shop")
    shop.place.kubectl("delete", "databaseuser", "finder", "--timeout=60s", seconds=70)


def test_a_password_rotates_and_the_former_one_goes_on(shop: ClusterUnderTest) -> None:
    """One name with two passwords: who has the former logs in until the overlap is over."""
    rotation = {"every": "720h", "overlap": "45s"}
    declare(shop, "report", {"database": "shop", "privileges": ["SELECT"]}, rotation=rotation)
    former = logged_in(shop, "report")
    before = shop.place.secret("report-user")
    assert former.sql("SELECT COUNT(*) FROM parts") == "1"
    began = time.time()
    shop.place.patch("secret", "report-user", LONG_AGO)
    shop.until("it is rotated", lambda: shop.place.secret("report-user")["password"] != before["password"], 60)
    assert shop.place.secret("report-user")["user"] == before["user"]
    assert former.sql("SELECT COUNT(*) FROM parts") == "1", "with the password that its pod was started with"
    former.stop()
    latter = logged_in(shop, "report")
    assert latter.sql("SELECT COUNT(*) FROM parts") == "1"
    both = "SELECT COUNT(*) FROM mysql.user WHERE User = 'report' AND User_attributes->>'$.additional_password' <> ''"
    shop.until("the former one ends", lambda: shop.sql(both) == "0", 120)
    assert time.time() - began > 40, "not before its time"
    assert latter.sql("SELECT COUNT(*) FROM parts") == "1"
    latter.stop()
    shop.place.kubectl("delete", "databaseuser", "report", "--timeout=60s", seconds=70)


def test_databases_come_and_go(shop: ClusterUnderTest) -> None:
    for policy, left in (("Retain", "1"), ("Delete", "0")):
        shop.place.declare("Database", "stock", shop.reference(deletionPolicy=policy, adopt=True))
        shop.place.wait_reason("database", "stock", "DatabaseReady")
        client = Client(shop, "stock-app", name="client-stock")
        client.start()
        client.sql("CREATE TABLE IF NOT EXISTS kept (n int PRIMARY KEY)")
        client.stop()
        shop.place.kubectl("delete", "database", "stock", "--timeout=120s", seconds=130)
        there = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'stock'"
        assert shop.sql(there) == left
