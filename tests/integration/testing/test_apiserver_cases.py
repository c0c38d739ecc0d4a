"""The in-memory server's cases, on the real one: what is expected of the former is true of the latter."""

from __future__ import annotations

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
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for crd in CRDS:
        name = crd["metadata"]["name"]
        made = await api.call("POST", definitions, crd)
        assert made.code in (201, 409), made.body
        if made.code == 201:
            query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "20"}
            await _until_established(api, definitions, query)
        plural = crd["spec"]["names"]["plural"]
        assert (await api.list(plural)).code == 200


async def _until_established(api: Api, path: str, query: dict[str, str]) -> None:
    import json

    from steersman.client import HttpRequest

    async with api.transport.stream(HttpRequest(method="GET", path=path, query=query, timeout=30)) as lines:
        async for line in lines:
            conditions = json.loads(line)["object"].get("status", {}).get("conditions") or []
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                return
    raise AssertionError("the definition was not established in time")
