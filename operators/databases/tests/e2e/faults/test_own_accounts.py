"""A person takes the accounts of a cluster, or its writes: the pods restore them, with and without a restart."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from database_support.e2e.cluster import ClusterUnderTest
from database_support.e2e.engines import EACH_ENGINE, MYSQL, ON_MYSQL, ON_POSTGRESQL, EngineCommands

pytestmark = [pytest.mark.xdist_group("cluster-crashes"), pytest.mark.timeout(1200)]

NAMES = [
    f"steersman_{name}" for name in ("replication", "rewind", "operator", "superuser", "pooler", "monitor", "queries")
]
POSTGRESQL_FAULT = (
    "REVOKE ALL ON DATABASE postgres FROM PUBLIC",
    *(f"REASSIGN OWNED BY {name} TO postgres" for name in NAMES),
    *(f"DROP OWNED BY {name}" for name in NAMES),
    *(f"DROP ROLE {name}" for name in NAMES),
)
MYSQL_FAULT = (
    "DELETE FROM mysql.user WHERE User LIKE 'steersman%' OR User = 'root'",
    "DELETE FROM mysql.global_grants",
    "FLUSH PRIVILEGES",
)


@pytest.fixture
def well(three: ClusterUnderTest) -> None:
    """All is well before each test."""
    three.wait_ready(seconds=400)


def fault(of: EngineCommands) -> Sequence[str]:
    return MYSQL_FAULT if of is MYSQL else POSTGRESQL_FAULT


@EACH_ENGINE
@pytest.mark.usefixtures("well")
@pytest.mark.parametrize("restarted", [False, True])
def test_own_accounts_lost_are_restored(three: ClusterUnderTest, of: EngineCommands, restarted: bool) -> None:
    leader = three.leader
    three.sql("; ".join(fault(of)))
    if restarted:
        three.namespace_client.kubectl("delete", "pod", f"{leader}-0", "--wait=false")
    count = "SELECT count(*) FROM {} WHERE {} LIKE 'steersman%'".format(
        *(("mysql.user", "User") if of is MYSQL else ("pg_roles", "rolname"))
    )
    expected = "6" if of is MYSQL else "7"
    three.until("the accounts are back", lambda: expected in three.sql(count).split(), 120 if restarted else 30)
    three.wait_ready(seconds=400)


@ON_MYSQL
@pytest.mark.usefixtures("well")
@pytest.mark.parametrize("variable", ["super_read_only", "offline_mode"])
def test_writes_refused_by_a_person_are_accepted_again(three: ClusterUnderTest, variable: str) -> None:
    three.sql(f"SET GLOBAL {variable} = ON")
    three.until("it is reset", lambda: three.sql(f"SELECT @@GLOBAL.{variable}").split()[-1] == "0", 30)
    three.wait_ready()


@ON_POSTGRESQL
@pytest.mark.usefixtures("well")
def test_refused_writes_are_reported(three: ClusterUnderTest) -> None:
    three.sql("ALTER ROLE ALL SET default_transaction_read_only = on")
    try:
        condition = three.wait_reason("WritesRejected", "Available", seconds=40)
        assert "cannot execute INSERT in a read-only transaction" in condition["message"]
    finally:
        three.sql("BEGIN READ WRITE; ALTER ROLE ALL RESET default_transaction_read_only; COMMIT")
    three.wait_reason("PrimaryAvailable", "Available", seconds=40)
    three.wait_ready()
