"""Waiting for delayed effects on the real server."""

from __future__ import annotations

import asyncio

from apiserver_cases.api import Api, Json


async def wait_until_served(api: Api, path: str) -> None:
    """Wait until a GET of ``path`` succeeds.

    Definitions are served some time after they are written.
    """
    async with asyncio.timeout(30):
        while (await api.call("GET", path)).code != 200:
            await asyncio.sleep(0.1)


async def create_and_wait(api: Api, crd: Json) -> str:
    """Create a definition and return the path of its served objects."""
    (await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)).expect_success()
    group, plural = crd["spec"]["group"], crd["spec"]["names"]["plural"]
    await wait_until_served(api, f"/apis/{group}/v1/{plural}")
    return f"/apis/{group}/v1/namespaces/{api.namespace}/{plural}"
