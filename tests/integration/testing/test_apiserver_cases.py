"""The in-memory server's cases, on the real one: what is expected of the former is true of the latter."""

from __future__ import annotations

import asyncio
import itertools
import os

import pytest

from apiserver_cases import CASES, CRDS, Api
from steersman.client import connect
from steersman.client.transport import Transport
from steersman.testing.envtest import Envtest

_numbers = itertools.count()


@pytest.mark.parametrize("case", CASES)
async def test_on_the_real_server(case: str, envtest: Envtest) -> None:
    async with connect(envtest.config) as transport:
        namespace = f"case-{os.getpid()}-{next(_numbers)}"
        api = Api(transport, namespace)
        await _install(transport)
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        (await api.call("POST", "/api/v1/namespaces", body)).ok()
        await CASES[case](api)


async def _install(transport: Transport) -> None:
    """Creates the cases' definitions where they are missing, and waits until they are served."""
    api = Api(transport, "default")
    for crd in CRDS:
        made = await api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
        assert made.code in (201, 409), made.body
        if made.code == 201:
            await _until_served(api, crd["spec"]["names"]["plural"])


async def _until_served(api: Api, plural: str) -> None:
    # Established comes first: for some moments after it, requests are answered with 404 and 429 still.
    async with asyncio.timeout(20):
        while (await api.list(plural)).code != 200:
            await asyncio.sleep(0.1)
