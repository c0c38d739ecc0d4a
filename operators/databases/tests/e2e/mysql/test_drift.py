"""Databases, users and grants on a MySQL cluster: made, narrowed, healed, and a password that changes unnoticed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from database_support.e2e.cluster import ClusterUnderTest, SqlClient
from database_support.e2e.engines import ON_MYSQL
from database_support.e2e.sql_drift import RESTORED_WITHIN_SECONDS, SqlDrift, assert_reverted
from devcluster.errors import CommandFailed

pytestmark = [pytest.mark.xdist_group("mysql-cluster-contents"), pytest.mark.timeout(1200), ON_MYSQL]

Record = Callable[[str, object], None]
LONG_AGO = {"stringData": {"rotated-at": "2000-01-01T00:00:00Z"}}
TABLES = """
CREATE TABLE parts (id int PRIMARY KEY, name varchar(40), price int);
CREATE TABLE hidden (id int PRIMARY KEY);
CREATE PROCEDURE count_parts() SELECT COUNT(*) FROM parts;
INSERT INTO parts VALUES (1, 'bolt', 7);
"""


def declare(three: ClusterUnderTest, name: str, *grants: dict[str, Any], **more: Any) -> None:
    three.namespace_client.apply("DatabaseUser", name, three.reference(user=name, grants=list(grants), **more))
    three.namespace_client.wait_reason("databaseuser", name, "ProvisionSucceeded")


@pytest.fixture(scope="module")
def shop(three: ClusterUnderTest) -> ClusterUnderTest:
    """With something in its database."""
    three.sql(TABLES, "shop")
    return three


def logged_in(cluster: ClusterUnderTest, user: str) -> SqlClient:
    made = SqlClient(cluster, f"{user}-user", name=f"client-{user}")
    made.start()
    return made


def test_grants_match_the_declaration(shop: ClusterUnderTest) -> None:
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
    shop.namespace_client.kubectl("delete", "databaseuser", "clerk", "readers", "--timeout=60s", seconds=70)
    assert shop.sql("SELECT COUNT(*) FROM mysql.user WHERE User IN ('clerk', 'readers')") == "0"


ON_DATABASES = (
    "SELECT GROUP_CONCAT(PRIVILEGE_TYPE) FROM information_schema.SCHEMA_PRIVILEGES WHERE GRANTEE LIKE '%reader%'"
)
ON_SERVER = (
    "SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE GRANTEE LIKE '%reader%'"
    " AND PRIVILEGE_TYPE = 'PROCESS'"
)
COLUMNS = "SELECT GROUP_CONCAT(Column_name, ' ', Column_priv) FROM mysql.columns_priv WHERE User = 'reader'"
ROUTINES = "SELECT GROUP_CONCAT(Routine_name, ' ', Proc_priv) FROM mysql.procs_priv WHERE User = 'reader'"
MEMBERSHIPS = "SELECT GROUP_CONCAT(FROM_USER) FROM mysql.role_edges WHERE TO_USER = 'reader'"
ACTIVE = "SELECT GROUP_CONCAT(DEFAULT_ROLE_USER) FROM mysql.default_roles WHERE USER = 'reader'"
LIMITS = "SELECT CONCAT(max_updates, ' ', max_user_connections) FROM mysql.user WHERE User = 'reader'"
HARM_TO_A_USER = {
    "revoked": SqlDrift(
        "REVOKE SELECT ON shop.* FROM reader",
        ON_DATABASES,
        "SELECT",
        ("PrivilegesGranted", "SELECT on database shop"),
    ),
    "granted": SqlDrift(
        "GRANT DELETE ON shop.* TO reader", ON_DATABASES, "SELECT", ("GrantRevoked", "DELETE on database shop")
    ),
    "granted elsewhere": SqlDrift(
        "GRANT DELETE ON elsewhere.* TO reader",
        ON_DATABASES,
        "SELECT",
        ("GrantRevoked", "DELETE on database elsewhere"),
    ),
    "granted on the server": SqlDrift(
        "GRANT PROCESS ON *.* TO reader", ON_SERVER, "0", ("GrantRevoked", "PROCESS on the whole server")
    ),
    "revoked on a column": SqlDrift(
        "REVOKE UPDATE (name) ON shop.parts FROM reader",
        COLUMNS,
        "name Update",
        ("PrivilegesGranted", "UPDATE on column name of table shop.parts"),
    ),
    "granted on a column": SqlDrift(
        "GRANT UPDATE (price) ON shop.parts TO reader",
        COLUMNS,
        "name Update",
        ("GrantRevoked", "UPDATE on column price of table shop.parts"),
    ),
    "revoked on a routine": SqlDrift(
        "REVOKE EXECUTE ON PROCEDURE shop.count_parts FROM reader",
        ROUTINES,
        "count_parts Execute",
        ("PrivilegesGranted", "EXECUTE on function shop.count_parts"),
    ),
    "granted on a routine": SqlDrift(
        "GRANT ALTER ROUTINE ON PROCEDURE shop.count_parts TO reader",
        ROUTINES,
        "count_parts Execute",
        ("GrantRevoked", "ALTER ROUTINE on function shop.count_parts"),
    ),
    "a membership revoked": SqlDrift(
        "REVOKE readers FROM reader",
        MEMBERSHIPS,
        "readers",
        ("MembershipGranted", "granted membership in readers to reader"),
    ),
    "a membership given": SqlDrift(
        "GRANT writers TO reader",
        MEMBERSHIPS,
        "readers",
        ("MembershipRevoked", "revoked membership in writers from reader"),
    ),
    "a role put to rest": SqlDrift(
        "SET DEFAULT ROLE NONE TO reader", ACTIVE, "readers", ("UserAltered", "active from the login on: readers")
    ),
    "other limits": SqlDrift(
        "ALTER USER reader WITH MAX_UPDATES_PER_HOUR 7 MAX_USER_CONNECTIONS 9",
        LIMITS,
        "20 5",
        ("UserAltered", "altered the limits of user reader"),
    ),
    "dropped": SqlDrift("DROP USER reader", ON_DATABASES, "SELECT", ("UserCreated", "created user reader")),
}


def test_sql_drift_is_reverted(shop: ClusterUnderTest, record_property: Record) -> None:
    """Scenario 11: a grant is revoked behind the operator's back, and more."""
    for role in ("readers", "writers"):
        declare(shop, role, login=False)
    declare(
        shop,
        "reader",
        {"database": "shop", "privileges": ["SELECT"]},
        {"database": "shop", "tables": ["parts"], "columns": ["name"], "privileges": ["UPDATE"]},
        {"database": "shop", "functions": ["count_parts"], "privileges": ["EXECUTE"]},
        roles=[{"name": "readers"}],
        limits={"updates": 20},
        connectionLimit=5,
    )
    shop.sql("CREATE DATABASE elsewhere")
    assert shop.sql(ON_DATABASES) == "SELECT"
    assert_reverted(shop, "reader", HARM_TO_A_USER, "shop", record_property)
    for name, told_of in (("reader", "reader"), ("root", shop.name)):
        verifier = f"SELECT HEX(authentication_string) FROM mysql.user WHERE User = '{name}' AND Host = '%'"
        with shop.namespace_client.expecting_events(told_of, "PasswordReset"):
            # At once: it may be healed before anybody looks again.
            changed = shop.sql(f"ALTER USER {name}@'%' IDENTIFIED BY 'elsewhere'; {verifier}")
            began = time.monotonic()
            shop.until(
                "the password is healed", lambda q=verifier, c=changed: shop.sql(q) != c, RESTORED_WITHIN_SECONDS
            )
            record_property(f"password of {name}: seconds until it is healed", round(time.monotonic() - began, 1))
    shop.sql("DROP DATABASE elsewhere")
    shop.namespace_client.kubectl(
        "delete", "databaseuser", "reader", "readers", "writers", "--timeout=60s", seconds=70
    )


COLLATION = "SELECT DEFAULT_COLLATION_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'ledger'"
OWNING = "SELECT Drop_priv FROM mysql.db WHERE Db = 'ledger' AND User = 'ledger'"
HARM_TO_A_DATABASE = {
    "another character set": SqlDrift(
        "ALTER DATABASE ledger CHARACTER SET latin1",
        COLLATION,
        "utf8mb4_bin",
        ("DatabaseAltered", "altered database ledger (encoding utf8mb4, collation utf8mb4_bin)"),
    ),
    "another collation": SqlDrift(
        "ALTER DATABASE ledger COLLATE utf8mb4_general_ci",
        COLLATION,
        "utf8mb4_bin",
        ("DatabaseAltered", "altered database ledger (collation utf8mb4_bin)"),
    ),
    "less for its owner": SqlDrift(
        "REVOKE DROP ON ledger.* FROM ledger",
        OWNING,
        "Y",
        ("GrantsRestored", "granted ALL on database ledger to ledger"),
    ),
    "no owner": SqlDrift("DROP USER ledger", OWNING, "Y", ("UserCreated", "created user ledger")),
    "dropped": SqlDrift(
        "DROP DATABASE ledger", COLLATION, "utf8mb4_bin", ("DatabaseCreated", "created database ledger")
    ),
}


def test_database_drift_is_reverted(shop: ClusterUnderTest, record_property: Record) -> None:
    spec = shop.reference(deletionPolicy="Delete", collation="utf8mb4_bin")
    shop.namespace_client.apply("Database", "ledger", spec)
    shop.namespace_client.wait_reason("database", "ledger", "DatabaseReady")
    assert_reverted(shop, "ledger", HARM_TO_A_DATABASE, "shop", record_property)
    shop.namespace_client.wait_reason("database", "ledger", "DatabaseReady")
    shop.namespace_client.kubectl("delete", "database", "ledger", "--timeout=60s", seconds=70)


def test_dropped_table_with_grant_is_reported(shop: ClusterUnderTest) -> None:
    table = "CREATE TABLE brief (id int PRIMARY KEY)"
    shop.sql(table, "shop")
    declare(shop, "finder", {"database": "shop", "tables": ["brief"], "privileges": ["SELECT"]})
    with shop.namespace_client.expecting_events("finder", ("ProvisionFailed", "table shop.brief does not exist yet")):
        shop.sql("DROP TABLE brief", "shop")
        shop.namespace_client.wait_reason(
            "databaseuser", "finder", "ProvisionFailed", seconds=RESTORED_WITHIN_SECONDS
        )
    shop.sql(table, "shop")
    shop.namespace_client.wait_reason("databaseuser", "finder", "ProvisionSucceeded", seconds=RESTORED_WITHIN_SECONDS)
    shop.sql("DROP TABLE brief", "shop")
    shop.namespace_client.kubectl("delete", "databaseuser", "finder", "--timeout=60s", seconds=70)


def test_definer_drop_waits_without_blocking_others(shop: ClusterUnderTest) -> None:
    count, there = "SELECT COUNT(*) FROM parts", "SELECT COUNT(*) FROM mysql.user WHERE User = 'author'"
    declare(shop, "author", {"database": "shop", "privileges": ["SELECT", "CREATE VIEW", "CREATE ROUTINE"]})
    author = logged_in(shop, "author")
    author.sql(f"CREATE VIEW counted AS {count}; CREATE PROCEDURE tell() {count}")
    author.stop()
    view = {"database": "shop", "tables": ["counted"], "privileges": ["SELECT"]}
    declare(shop, "visitor", view, {"database": "shop", "functions": ["tell"], "privileges": ["EXECUTE"]})
    shop.namespace_client.kubectl("delete", "databaseuser", "author", "--wait=false")
    shop.namespace_client.wait_reason("databaseuser", "author", "ProvisionFailed", seconds=60)
    reported = (
        "author is the definer of procedure shop.tell and view shop.counted. Change their definer, or drop them"
    )
    assert reported in shop.namespace_client.condition("databaseuser", "author")["message"]
    visitor = logged_in(shop, "visitor")
    assert visitor.sql("SELECT * FROM counted") == visitor.sql("CALL tell()") == "1"
    visitor.stop()
    shop.sql("DROP VIEW counted; DROP PROCEDURE tell", "shop")
    shop.until("it is dropped", lambda: shop.sql(there) == "0", 60)
    shop.namespace_client.kubectl("delete", "databaseuser", "visitor", "--timeout=60s", seconds=70)


def test_password_rotation_keeps_old_password_valid(shop: ClusterUnderTest) -> None:
    """One name with two passwords: who has the former logs in until the overlap is over."""
    rotation = {"every": "720h", "overlap": "45s"}
    declare(shop, "report", {"database": "shop", "privileges": ["SELECT"]}, rotation=rotation)
    former = logged_in(shop, "report")
    before = shop.namespace_client.secret("report-user")
    assert former.sql("SELECT COUNT(*) FROM parts") == "1"
    began = time.time()
    shop.namespace_client.patch("secret", "report-user", LONG_AGO)
    shop.until(
        "it is rotated", lambda: shop.namespace_client.secret("report-user")["password"] != before["password"], 60
    )
    assert shop.namespace_client.secret("report-user")["user"] == before["user"]
    assert former.sql("SELECT COUNT(*) FROM parts") == "1", "with the password that its pod was started with"
    former.stop()
    latter = logged_in(shop, "report")
    assert latter.sql("SELECT COUNT(*) FROM parts") == "1"
    both = "SELECT COUNT(*) FROM mysql.user WHERE User = 'report' AND User_attributes->>'$.additional_password' <> ''"
    shop.until("the former one ends", lambda: shop.sql(both) == "0", 120)
    assert time.time() - began > 40, "not before its time"
    assert latter.sql("SELECT COUNT(*) FROM parts") == "1"
    latter.stop()
    shop.namespace_client.kubectl("delete", "databaseuser", "report", "--timeout=60s", seconds=70)


def test_databases_created_and_dropped(shop: ClusterUnderTest) -> None:
    for policy, left in (("Retain", "1"), ("Delete", "0")):
        shop.namespace_client.apply("Database", "stock", shop.reference(deletionPolicy=policy, adopt=True))
        shop.namespace_client.wait_reason("database", "stock", "DatabaseReady")
        client = SqlClient(shop, "stock-app", name="client-stock")
        client.start()
        client.sql("CREATE TABLE IF NOT EXISTS kept (n int PRIMARY KEY)")
        client.stop()
        shop.namespace_client.kubectl("delete", "database", "stock", "--timeout=120s", seconds=130)
        there = "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'stock'"
        assert shop.sql(there) == left
