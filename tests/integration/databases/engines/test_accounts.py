"""The cluster's own accounts, given to a real server."""

from __future__ import annotations

from dataclasses import replace

from postgresql_server import PostgreSQLServer
from steersman_databases.engines import Credentials
from steersman_databases.engines.postgresql.accounts import furnish, version
from steersman_databases.engines.server import Login, Server, TLSMode, Verification


async def test_a_server_of_another_version_gets_the_accounts_and_the_password(postgresql: PostgreSQLServer) -> None:
    administrator = postgresql.administrator
    login = Login(administrator.username, administrator.password)
    server = Server("postgresql", postgresql.endpoint, login, Verification(TLSMode.REQUIRE))
    postgresql.administer("CREATE ROLE somebody LOGIN")
    somebody = Credentials("somebody", "first")

    async def reasons(credentials: Credentials) -> list[str]:
        return [change.reason for change in await furnish(server, credentials)]

    await furnish(server, somebody)
    assert await reasons(somebody) == []
    assert await postgresql.can_log_in(somebody, "postgres")
    postgresql.administer("DROP FUNCTION steersman.pooled(text)")
    postgresql.administer("COMMENT ON SCHEMA steersman IS 'of another version'")
    second = replace(somebody, password="it's \\another")
    assert await reasons(second) == ["AccountsUpdated", "PasswordReset"]
    assert await postgresql.can_log_in(second, "postgres")
    assert not await postgresql.can_log_in(somebody, "postgres")
    assert postgresql.administer("SELECT obj_description(to_regnamespace('steersman'), 'pg_namespace')") == [
        (version(),)
    ]
    assert postgresql.administer("SELECT to_regprocedure('steersman.pooled(text)') IS NOT NULL") == [(True,)]
    postgresql.administer("DROP ROLE somebody")
