"""Two who want the same, what cannot be done yet, and how the conditions of an object tell the story."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, ON_MYSQL, ON_POSTGRESQL
from database_support.e2e.external_server import ExternalServer
from devcluster.target import wait_until

pytestmark = pytest.mark.xdist_group("conflicts")

TRIED_AGAIN_WITHIN = 30.0
VERIFIER = {
    "postgresql": "SELECT rolpassword FROM pg_authid WHERE rolname = 'clerk'",
    "mysql": "SELECT HEX(authentication_string) FROM mysql.user WHERE User = 'clerk'",
}
DATABASES = {
    "postgresql": "SELECT COUNT(*) FROM pg_database WHERE datname = 'ledger'",
    "mysql": "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = 'ledger'",
}


def delete(place: NamespaceClient, kind: str, name: str) -> None:
    place.kubectl("delete", kind, name, "--timeout=60s", seconds=70)


def after(moment: str) -> None:
    """Waits until it is past: moments of objects are whole seconds."""
    begun = datetime.fromisoformat(moment)
    wait_until("another second", lambda: (datetime.now(UTC) - begun).total_seconds() > 1, seconds=5)


def another_second(place: NamespaceClient, kind: str, name: str) -> None:
    """What is made afterwards is younger than this object."""
    after(place.get(kind, name)["metadata"]["creationTimestamp"])


@EACH_ENGINE
def test_two_users_same_name_older_keeps_it(server: ExternalServer) -> None:
    """Scenario 9: two objects claim one role; against a database whose owner would be called so, too."""
    place, verifier = server.namespace_client, VERIFIER[server.engine.settings]
    clerk = {**server.server_ref(), "user": "clerk"}
    place.apply("DatabaseUser", "first", clerk)
    place.wait_reason("databaseuser", "first", "ProvisionSucceeded")
    before = server.sql(verifier)
    another_second(place, "databaseuser", "first")
    place.apply("DatabaseUser", "second", clerk)
    place.apply("Database", "third", {**server.server_ref(), "username": "clerk", "deletionPolicy": "Delete"})
    said = place.wait_reason("databaseuser", "second", "ProvisionFailed")["message"]
    assert "the older DatabaseUser first already declares clerk on this server" in said
    assert "use another name on the server" in said
    assert place.events("second", "ProvisionFailed") == [said]
    assert not place.get("secret", "second-user")
    said = place.wait_reason("database", "third", "OwnedByAnother")["message"]
    assert "the older DatabaseUser first already declares user clerk on this server" in said
    assert not place.get("secret", "third-app")
    delete(place, "database", "third")
    assert place.events("third", "OwnedByAnother") == [said]
    assert (server.sql(verifier), place.condition("databaseuser", "first")["status"]) == (before, "True")

    delete(place, "databaseuser", "first")
    place.wait_reason("databaseuser", "second", "ProvisionSucceeded")
    assert server.sql(verifier) not in ("", before), "another user of the name, with a password of its own"
    delete(place, "databaseuser", "second")
    assert server.sql(verifier) == ""


@EACH_ENGINE
def test_two_databases_same_name_older_keeps_it(server: ExternalServer) -> None:
    """When it goes and keeps its data, nobody inherits them by a name; when it takes them along, the name is free.

    Against a user who would be called as its owner is, too.
    """
    place, count = server.namespace_client, DATABASES[server.engine.settings]
    ledger = {**server.server_ref(), "databaseName": "ledger", "deletionPolicy": "Delete"}
    place.apply("Database", "elder", {**ledger, "username": "elder"})
    place.wait_reason("database", "elder", "DatabaseReady")
    login = place.secret("elder-app")
    server.query_as(login, "CREATE TABLE kept (n INT)")
    another_second(place, "database", "elder")
    place.apply("Database", "junior", {**ledger, "username": "junior"})
    place.apply("DatabaseUser", "owner", {**server.server_ref(), "user": "elder"})
    said = place.wait_reason("databaseuser", "owner", "ProvisionFailed")["message"]
    assert "the older Database elder already declares user elder on this server" in said
    assert not place.get("secret", "owner-user")
    delete(place, "databaseuser", "owner")
    assert place.events("owner", "ProvisionFailed") == [said]
    said = place.wait_reason("database", "junior", "OwnedByAnother")["message"]
    assert "the older Database elder already declares ledger on this server" in said
    assert "use another name on the server" in said
    assert place.condition("database", "elder")["status"] == "True"

    place.patch("database", "elder", {"spec": {"deletionPolicy": "Retain"}})
    delete(place, "database", "elder")
    refusal = "belongs to another object. Choose another name"
    place.until("it is told so", lambda: refusal in place.condition("database", "junior")["message"], 60)
    assert server.query_as(login, "SELECT COUNT(*) FROM kept") == "0", "all of it is where it was"
    delete(place, "database", "junior")
    assert server.sql(count) == "1", "who never had it takes nothing along"

    place.apply("Database", "elder", {**ledger, "username": "elder"})
    place.wait_reason("database", "elder", "DatabaseReady")
    assert server.query_as(login, "SELECT COUNT(*) FROM kept") == "0", "it goes on with what was its own"
    another_second(place, "database", "elder")
    place.apply("Database", "junior", {**ledger, "username": "junior"})
    place.wait_reason("database", "junior", "OwnedByAnother")
    delete(place, "database", "elder")
    place.wait_reason("database", "junior", "DatabaseReady")
    assert server.query_as(
        place.secret("junior-app"), "CREATE TABLE kept (n INT); SELECT COUNT(*) FROM kept"
    ).endswith("0")
    delete(place, "database", "junior")
    assert server.sql(count) == "0"


@contextmanager
def held_by_a_session(server: ExternalServer, what: str) -> Generator[None]:
    """Somebody's transaction has changed something, and does not end."""
    busy = "FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)%' AND pid <> pg_backend_pid()"
    begun = f"BEGIN; ALTER {what} CONNECTION LIMIT 9; SELECT pg_sleep(600)"
    session = f"psql -XAtq -d postgres -c '{begun}' > /dev/null 2>&1 &"
    server.namespace_client.kubectl("exec", server.pod, "--container=server", "--", "sh", "-c", session)
    server.namespace_client.until("somebody holds it", lambda: server.sql(f"SELECT count(*) {busy}") == "1", 30)
    try:
        yield
    finally:
        server.sql(f"SELECT pg_terminate_backend(pid) {busy}")


@contextmanager
def read_only(server: ExternalServer) -> Generator[None]:
    server.sql("SET GLOBAL super_read_only = ON")
    try:
        yield
    finally:
        server.sql("SET GLOBAL super_read_only = OFF; SET GLOBAL read_only = OFF")


@ON_MYSQL
def test_database_rejected_by_server_is_created_once_allowed(server: ExternalServer) -> None:
    place = server.namespace_client
    with read_only(server):
        place.apply("Database", "refused", {**server.server_ref(), "deletionPolicy": "Delete"})
        assert "read-only" in place.wait_reason("database", "refused", "SqlFailed")["message"]
        assert place.events("refused", "SqlFailed")
    place.wait_reason("database", "refused", "DatabaseReady", seconds=TRIED_AGAIN_WITHIN)
    delete(place, "database", "refused")


@ON_POSTGRESQL
def test_database_blocked_by_session_is_changed_once_free(server: ExternalServer) -> None:
    place = server.namespace_client
    held = {**server.server_ref(), "deletionPolicy": "Delete"}
    place.apply("Database", "held", held)
    place.wait_reason("database", "held", "DatabaseReady")
    with held_by_a_session(server, "DATABASE held"):
        place.apply("Database", "held", {**held, "connectionLimit": 3})

        def told() -> str:
            ready = place.condition("database", "held")
            return ready["reason"] if ready["status"] == "False" and "held" in ready["message"] else ""

        reason = place.until("it is told", told, 60, about=("database", "held"))
        assert place.events("held", reason)
    place.wait_reason("database", "held", "DatabaseReady", seconds=TRIED_AGAIN_WITHIN)
    assert server.sql("SELECT datconnlimit FROM pg_database WHERE datname = 'held'") == "3"
    delete(place, "database", "held")


@ON_MYSQL
def test_user_rejected_by_server_is_created_once_allowed(server: ExternalServer) -> None:
    place, words = server.namespace_client, "running with the --super-read-only option"
    with read_only(server), place.expecting_events("newcomer", ("ProvisionFailed", words)):
        newcomer = {**server.server_ref(), "user": "newcomer", "database": "information_schema"}
        place.apply("DatabaseUser", "newcomer", newcomer)
        said = place.wait_reason("databaseuser", "newcomer", "ProvisionFailed")
        assert said["status"] == "False" and words in said["message"]
    place.wait_reason("databaseuser", "newcomer", "ProvisionSucceeded", seconds=TRIED_AGAIN_WITHIN)
    assert server.query_as(place.secret("newcomer-user"), "SELECT 1") == "1"
    delete(place, "databaseuser", "newcomer")


@ON_POSTGRESQL
def test_user_blocked_by_session_is_changed_once_free(server: ExternalServer) -> None:
    place, words = server.namespace_client, "canceling statement due to lock timeout"
    bound = {**server.server_ref(), "user": "bound"}
    place.apply("DatabaseUser", "bound", bound)
    place.wait_reason("databaseuser", "bound", "ProvisionSucceeded")
    with held_by_a_session(server, "ROLE bound"), place.expecting_events("bound", ("ProvisionFailed", words)):
        place.apply("DatabaseUser", "bound", {**bound, "connectionLimit": 3})
        said = place.wait_reason("databaseuser", "bound", "ProvisionFailed")
        assert said["status"] == "False" and words in said["message"]
    place.wait_reason("databaseuser", "bound", "ProvisionSucceeded", seconds=TRIED_AGAIN_WITHIN)
    assert server.sql("SELECT rolconnlimit FROM pg_roles WHERE rolname = 'bound'") == "3"
    delete(place, "databaseuser", "bound")


@ON_POSTGRESQL
def test_grant_on_missing_schema_is_applied_once_created(server: ExternalServer) -> None:
    place = server.namespace_client
    place.apply("Database", "library", {**server.server_ref(), "deletionPolicy": "Delete"})
    place.wait_reason("database", "library", "DatabaseReady")
    grants = [
        {"database": "library", "privileges": ["CONNECT"]},
        {"database": "library", "schema": "books", "privileges": ["USAGE", "CREATE"]},
    ]
    place.apply("DatabaseUser", "reader", {**server.server_ref(), "user": "reader", "grants": grants})
    said = place.wait_reason("databaseuser", "reader", "ProvisionFailed")["message"]
    assert "schema library.books does not exist yet" in said
    server.sql("SET ROLE library; CREATE SCHEMA books", "library")
    place.wait_reason("databaseuser", "reader", "ProvisionSucceeded", seconds=TRIED_AGAIN_WITHIN)
    server.query_as(place.secret("reader-user"), "CREATE TABLE books.mine (n int)")
    delete(place, "databaseuser", "reader")
    delete(place, "database", "library")


@pytest.mark.requirement("user/condition-times")
@ON_POSTGRESQL
def test_condition_times_change_with_status(server: ExternalServer) -> None:
    """The update time by reason and message, the transition time by the status, neither by another generation."""
    place = server.namespace_client
    spec = {**server.server_ref("doorstep"), "user": "patient"}

    def ready(status: str, words: str) -> Mapping[str, Any]:
        """The condition, a second after it last changed."""

        def found() -> Mapping[str, Any] | None:
            condition, meant = place.condition("databaseuser", "patient"), place.get("databaseuser", "patient")
            current = condition.get("observedGeneration") == meant["metadata"]["generation"]
            return condition if current and condition["status"] == status and words in condition["message"] else None

        condition = place.until(f"{status}: {words}", found, 60, about=("databaseuser", "patient"))
        after(condition["lastUpdateTime"])
        return condition

    place.apply("DatabaseUser", "patient", spec)
    missing = ready("False", "Service doorstep does not exist")
    assert missing["lastUpdateTime"] == missing["lastTransitionTime"]
    nobody = {"selector": {"server": "nobody"}, "ports": [{"port": 5432}]}
    place.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "doorstep"}, "spec": nobody})
    unreachable = ready("False", "cannot reach")
    assert unreachable["lastUpdateTime"] > missing["lastUpdateTime"]
    assert unreachable["lastTransitionTime"] == missing["lastTransitionTime"]

    place.patch("service", "doorstep", {"spec": {"selector": {"server": server.name}}})
    succeeded = ready("True", "succeeded")
    assert succeeded["lastTransitionTime"] > missing["lastTransitionTime"]
    assert succeeded["lastUpdateTime"] > unreachable["lastUpdateTime"]
    place.apply("DatabaseUser", "patient", {**spec, "connectionLimit": 3})
    again = ready("True", "succeeded")
    assert again["observedGeneration"] > succeeded["observedGeneration"]
    for moment in ("lastTransitionTime", "lastUpdateTime"):
        assert again[moment] == succeeded[moment]
    delete(place, "databaseuser", "patient")
