"""Waiting for what the real server does some time after it was asked."""

from __future__ import annotations

import asyncio

from apiserver_cases.api import Api


async def until(api: Api, path: str) -> None:
    """Returns once a GET of ``path`` succeeds: definitions are served some time after they are written."""
    async with asyncio.timeout(30):
        while (await api.call("GET", path)).code != 200:
            await asyncio.sleep(0.1)
