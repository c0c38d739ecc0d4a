"""Short names and tables of the kinds, as ``kubectl get`` reads them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from steersman.client import HttpRequest
from steersman_databases.api import Database, DatabaseUser
from steersman_testing import InMemoryApiServer

VERSION = "databases.steersman.dev/v1alpha1"
USERS = "/namespaces/default/databaseusers"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
MESSAGE = "the server rejected user clerk: permission denied to create role"


@pytest.fixture
def server() -> InMemoryApiServer:
    found = InMemoryApiServer()
    found.register(Database, DatabaseUser)
    return found


def send(
    server: InMemoryApiServer, method: str, path: str, body: Any = None, accept: str = "application/json"
) -> Any:
    content_type = "application/merge-patch+json" if method == "PATCH" else "application/json"
    encoded = None if body is None else msgspec.json.encode(body)
    response = server.handle(
        HttpRequest(
            method=method, path=f"/apis/{VERSION}{path}", body=encoded, content_type=content_type, accept=accept
        )
    )
    assert response.status in (200, 201), response.body
    return msgspec.json.decode(response.body)


@pytest.mark.requirement("design/short-name", "user/short-name")
def test_short_names_are_those_of_the_articles(server: InMemoryApiServer) -> None:
    names = {resource["name"]: resource.get("shortNames") for resource in send(server, "GET", "")["resources"]}
    assert (names["databases"], names["databaseusers"]) == (["db"], ["dbu"])


@pytest.mark.requirement("user/get-shows-errors")
def test_user_table_shows_the_error(server: InMemoryApiServer) -> None:
    user = {"metadata": {"name": "clerk"}, "spec": {"user": "clerk", "clusterRef": {"name": "shop"}}}
    send(server, "POST", USERS, {"apiVersion": VERSION, "kind": "DatabaseUser", **user})
    now = "2026-01-01T00:00:00Z"
    condition = {"type": "Ready", "status": "False", "reason": "ProvisionFailed", "message": MESSAGE}
    times = {"lastTransitionTime": now, "lastUpdateTime": now}
    send(server, "PATCH", f"{USERS}/clerk/status", {"status": {"conditions": [{**condition, **times}]}})
    table = send(server, "GET", USERS, accept=TABLE)
    names = [column["name"] for column in table["columnDefinitions"]]
    shown = {column["name"] for column in table["columnDefinitions"] if not column["priority"]}
    cells = dict(zip(names, table["rows"][0]["cells"], strict=True))
    assert {"Ready", "Message"} < shown
    assert (cells["Name"], cells["Ready"], cells["Message"]) == ("clerk", "False", MESSAGE)
