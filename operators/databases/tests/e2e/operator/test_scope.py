"""An operator that is told to be for some users and some namespaces leaves all others alone."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager

import pytest

from database_support.e2e import operator as e2e_operator
from database_support.e2e.cluster import NamespaceClient
from database_support.e2e.engines import POSTGRESQL
from database_support.e2e.external_server import ExternalServer
from devcluster.operator import DEPLOYMENT, NAMESPACE, install
from devcluster.progress import Progress
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("operator-scope"), pytest.mark.disruptive]


@contextmanager
def told(cluster: Target, *arguments: str) -> Generator[None]:
    """The operator with more arguments while the block runs; then the former one again."""
    given = json.dumps(
        [{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": a} for a in arguments]
    )
    try:
        patch = ("patch", "deployment", DEPLOYMENT, f"--namespace={NAMESPACE}", "--type=json", f"--patch={given}")
        cluster.kubectl(*patch)
        e2e_operator.rolled_out(cluster)
        yield
    finally:
        install(cluster, Progress())
        e2e_operator.rolled_out(cluster)


@pytest.fixture
def outside(place: NamespaceClient) -> Iterator[NamespaceClient]:
    """A namespace that the operator is not for."""
    target, name = place.target, f"{place.namespace}-x"
    target.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=180s", seconds=200)
    target.kubectl("create", "namespace", name)
    yield NamespaceClient(target, name)
    target.kubectl("delete", "namespace", name, "--timeout=180s", seconds=200)


def is_left_alone(place: NamespaceClient, kind: str, name: str) -> bool:
    found = place.get(kind, name)
    return bool(found) and "status" not in found and "finalizers" not in found["metadata"]


@pytest.mark.requirement("overview/single-purpose", "user/namespaces", "user/target-label")
def test_foreign_users_and_namespaces_are_ignored(
    cluster: Target, place: NamespaceClient, outside: NamespaceClient
) -> None:
    inner, outer = (ExternalServer(each, POSTGRESQL) for each in (place, outside))
    for server in (inner, outer):
        server.start()

    def user(server: ExternalServer, name: str, **labels: str) -> None:
        server.namespace_client.apply("DatabaseUser", name, {**server.server_ref(), "user": name}, labels=labels)

    with told(cluster, "--target=Orders", f"--namespaces={place.namespace}"):
        user(inner, "others", target="invoices")
        user(inner, "nobodys")
        user(outer, "elsewhere", target="orders")
        outside.apply(
            "Database", "elsewhere", {**outer.server_ref(), "username": "keeper", "deletionPolicy": "Delete"}
        )
        # Whoever it is for comes last: all before have been seen by then, if they ever are.
        user(inner, "ours", target="ORDERS")
        place.apply("Database", "ledger", {**inner.server_ref(), "deletionPolicy": "Delete"})
        place.wait_reason("databaseuser", "ours", "ProvisionSucceeded")
        place.wait_reason("database", "ledger", "DatabaseReady")
        # What somebody takes from it is given back, which takes a look at all of the server.
        inner.sql("ALTER ROLE ours CREATEDB")
        by_hand = "SELECT rolcreatedb FROM pg_roles WHERE rolname = 'ours'"
        place.until("it is healed", lambda: inner.sql(by_hand) == "f", 30)
        left = ((place, "databaseuser", "others"), (place, "databaseuser", "nobodys"))
        beyond = ((outside, "databaseuser", "elsewhere"), (outside, "database", "elsewhere"))
        assert [each for each in (*left, *beyond) if not is_left_alone(*each)] == []
        roles = "SELECT count(*) FROM pg_roles WHERE rolname IN ('others', 'nobodys', 'elsewhere', 'keeper')"
        assert (inner.sql(roles), outer.sql(roles)) == ("0", "0")
    # And an operator that is for everybody takes them.
    for where, kind, name in (*left, *beyond):
        reason = "DatabaseReady" if kind == "database" else "ProvisionSucceeded"
        where.wait_reason(kind, name, reason)
