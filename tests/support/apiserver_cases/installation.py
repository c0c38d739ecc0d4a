"""The cases' definitions on a server that other tests use, too."""

from __future__ import annotations

import asyncio

from apiserver_cases.api import Api, Backend, Json
from steersman.client.transport import Transport


async def install(transport: Transport, crds: list[Json]) -> None:
    """Creates definitions where they are missing, and waits until they are served."""
    api = Api(transport, "default")
    for crd in crds:
        made = await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        assert made.code in (201, 409), made.body
        if made.code == 201:
            await _until_served(api, crd)


async def make_namespace(transport: Transport, name: str, backend: Backend | None = None) -> Api:
    """A new namespace, and raw requests in it."""
    api = Api(transport, name, backend)
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    (await api.call("POST", "/api/v1/namespaces", body)).ok()
    return api


async def _until_served(api: Api, crd: Json) -> None:
    spec = crd["spec"]
    path = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    # Established comes first: for some moments after it, requests are answered with 404 and 429 still.
    async with asyncio.timeout(20):
        while (await api.call("GET", path)).code != 200:
            await asyncio.sleep(0.1)
