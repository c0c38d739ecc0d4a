"""Definitions of the cases on a shared server."""

from __future__ import annotations

import asyncio

from apiserver_cases.api import AGGREGATED, Api, Backend, Json
from steersman.client.transport import Transport


async def install_crds(transport: Transport, crds: list[Json]) -> None:
    """Create missing definitions and wait until they are served and discovered."""
    api, new = Api(transport, "default"), list[Json]()
    for crd in crds:
        response = await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        assert response.code in (201, 409), response.body
        if response.code == 201:
            new.append(crd)
    for crd in new:
        await _wait_until_served(api, crd)
        await _wait_until_discovered(api, crd)


async def make_namespace(transport: Transport, name: str, backend: Backend | None = None) -> Api:
    """Create a namespace and return its API."""
    api = Api(transport, name, backend)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    (await api.call("POST", "/api/v1/namespaces", body)).expect_success()
    return api


async def _wait_until_served(api: Api, crd: Json) -> None:
    spec = crd["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    # Requests may fail with 404 and 429 for a moment after the condition Established.
    async with asyncio.timeout(30):
        while (await api.call("GET", path)).code != 200:
            await asyncio.sleep(0.1)


async def _wait_until_discovered(api: Api, crd: Json) -> None:
    """Wait until all discovery documents have the group.

    Different components write them.
    """
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    versions = [v["name"] for v in crd["spec"]["versions"] if v["served"]]

    async def is_discovered() -> bool:
        version_documents = [await api.call("GET", f"/apis/{group}/{version}") for version in versions]
        groups = (await api.call("GET", "/apis")).expect_success().body["groups"]
        aggregated = (await api.call("GET", "/apis", accept=AGGREGATED)).expect_success().body["items"]
        named = {(g["name"], v["version"]) for g in groups for v in g["versions"]}
        listed = {
            (g["metadata"]["name"], v["version"], r["resource"])
            for g in aggregated
            for v in g["versions"]
            for r in v.get("resources", ())
        }
        return (
            all(plural in [r["name"] for r in reply.body.get("resources", ())] for reply in version_documents)
            and {(group, v) for v in versions} <= named
            and {(group, v, plural) for v in versions} <= listed
        )

    async with asyncio.timeout(30):
        while not await is_discovered():
            await asyncio.sleep(0.1)
