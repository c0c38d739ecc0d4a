"""What an earlier version of the operator let pass, and still is on the API server: definitions without patterns."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import msgspec

from steersman.client import HttpRequest
from steersman_databases.api import Database, DatabaseUser
from steersman_manifests.crd import definitions
from steersman_testing import InMemoryApiServer


@contextmanager
def without_validation(server: InMemoryApiServer) -> Generator[None]:
    """Names of databases, users and what they refer to are taken as they come, during the block."""
    now = definitions(Database, DatabaseUser)
    for manifest in now:
        _serve(server, without_patterns(manifest))
    yield
    for manifest in now:
        _serve(server, manifest)


def without_patterns(node: Any) -> Any:
    """A definition as it was before there were any."""
    if isinstance(node, list):
        return [without_patterns(each) for each in cast("list[Any]", node)]
    if not isinstance(node, dict):
        return node
    fields = cast("dict[str, Any]", node)
    return {name: without_patterns(each) for name, each in fields.items() if name != "pattern"}


def _serve(server: InMemoryApiServer, manifest: dict[str, Any]) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{manifest['metadata']['name']}"
    query = {"fieldManager": "test", "force": "true"}
    body = msgspec.json.encode(manifest)
    request = HttpRequest(
        method="PATCH", path=path, query=query, body=body, content_type="application/apply-patch+yaml"
    )
    assert server.handle(request).status == 200
