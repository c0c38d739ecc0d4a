"""A server that takes connections and never answers delays nobody but those who are on it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from database_support.e2e.cluster import API, ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from database_support.e2e.external_server import ExternalServer

pytestmark = [pytest.mark.xdist_group("isolation"), EACH_ENGINE]

Record = Callable[[str, object], None]
CROWD = [f"crowd-{number}" for number in range(12)]
"""Those on the server that hangs, all with work to do."""
QUICK = 10.0
"""Seconds in which a change is made where nobody hangs, on a machine with other things to do."""
CONNECT: Mapping[EngineCommands, str] = {POSTGRESQL: "CONNECT", MYSQL: "SELECT"}
"""What somebody needs to come in to a database."""
LIMIT: Mapping[EngineCommands, str] = {
    POSTGRESQL: "SELECT rolconnlimit FROM pg_roles WHERE rolname = 'newcomer'",
    MYSQL: "SELECT max_user_connections FROM mysql.user WHERE User = 'newcomer'",
}
BY_HAND: Mapping[EngineCommands, str] = {
    POSTGRESQL: "ALTER ROLE newcomer CONNECTION LIMIT 5",
    MYSQL: "ALTER USER newcomer WITH MAX_USER_CONNECTIONS 5",
}


@pytest.fixture(scope="module")
def shop(shared: NamespaceClient, of: EngineCommands) -> ClusterUnderTest:
    """A cluster that is well."""
    return cluster_of_one(shared, "shop", of)


def cluster_of_one(place: NamespaceClient, name: str, engine: EngineCommands) -> ClusterUnderTest:
    made = ClusterUnderTest(place, name, {**engine.small, "instances": 1}, engine)
    made.apply()
    made.wait_ready()
    return made


@dataclass
class Hanging:
    """A server that can be made to hang: all of its processes stand still, and their connections stay open."""

    place: NamespaceClient
    on: Mapping[str, Any]
    signal: Callable[[str], None]

    def declare(self, **spec: Any) -> None:
        """The crowd, at once."""
        kind = {"apiVersion": API, "kind": "DatabaseUser"}
        declared = ({"metadata": {"name": n}, "spec": {**self.on, "user": n, **spec}} for n in CROWD)
        self.place.create(*({**kind, **each} for each in declared))

    def told(self) -> set[str]:
        """What the crowd's conditions say of their present declarations."""
        found = self.place.all("databaseusers")
        return {_told(user) for user in found if user["metadata"]["name"] in CROWD}


def _told(user: Mapping[str, Any]) -> str:
    for condition in user.get("status", {}).get("conditions", ()):
        if condition["observedGeneration"] == user["metadata"]["generation"]:
            return condition["status"]
    return "not yet"


@pytest.fixture(params=["cluster", "server"])
def hanging(request: pytest.FixtureRequest, shared: NamespaceClient, of: EngineCommands) -> Iterator[Hanging]:
    """A cluster of the operator's, or somebody's server; it is well again after the test."""
    if request.param == "cluster":
        cluster = cluster_of_one(shared, "stuck", of)

        def signal(name: str) -> None:
            cluster.execute("stuck-0", "sh", "-c", f"kill -{name} -1")

        made = Hanging(shared, cluster.reference(), signal)
    else:
        server = ExternalServer(shared, of)
        server.start()
        made = Hanging(shared, server.server_ref(), server.signal)
    yield made
    made.signal("CONT")
    shared.until("the crowd is as declared", lambda: made.told() == {"True"}, 180)
    shared.kubectl("delete", "databaseuser", *CROWD, "--timeout=90s", seconds=100)


def test_reconcile_is_not_delayed_by_unreachable_server(
    shop: ClusterUnderTest, hanging: Hanging, record_property: Record
) -> None:
    place, limit = shop.namespace_client, LIMIT[shop.engine]
    hanging.declare()
    place.until("the crowd is there", lambda: hanging.told() == {"True"}, 120)
    hanging.signal("STOP")
    hanging.declare(connectionLimit=3)
    place.until("its server is missed", lambda: "False" in hanging.told(), 90)

    def quick(what: str, probe: Callable[[], bool]) -> None:
        began = time.monotonic()
        place.until(what, probe, QUICK)
        record_property(f"seconds until {what}", round(time.monotonic() - began, 1))

    def is_ready(kind: str, name: str) -> Callable[[], bool]:
        return lambda: place.condition(kind, name).get("status") == "True"

    on = shop.reference()
    grants = [{"database": "fresh", "privileges": [CONNECT[shop.engine]]}]
    newcomer = {**on, "user": "newcomer", "grants": grants}
    place.apply("Database", "fresh", {**on, "deletionPolicy": "Delete"})
    quick("a database is there", is_ready("database", "fresh"))
    place.apply("DatabaseUser", "newcomer", newcomer)
    quick("a user is there", is_ready("databaseuser", "newcomer"))
    place.apply("DatabaseUser", "newcomer", {**newcomer, "connectionLimit": 7})
    quick("the user is changed", lambda: shop.sql(limit) == "7")
    shop.sql(BY_HAND[shop.engine])
    place.until("what somebody changes is healed", lambda: shop.sql(limit) == "7", 30)
    began = time.monotonic()
    place.kubectl("delete", "databaseuser/newcomer", "database/fresh", "--timeout=60s", seconds=70)
    assert time.monotonic() - began < QUICK
    assert "True" not in hanging.told(), "it has hung all the while"
