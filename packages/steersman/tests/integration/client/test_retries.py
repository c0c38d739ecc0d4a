"""Retries against the real API server behind a faulty proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from aiohttp import web

from framework_support.loopback_server import running_server
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, ClusterConfig, HttpRequest, MergePatch, RetryPolicy, Transport, connect
from steersman.errors import Conflict, ConnectionFailed, NotFound, TooManyRequests
from steersman.meta import ObjectKey, ObjectMeta
from steersman_testing.envtest import Envtest

Fault = Literal["429", "503", "504", "lose the response", "lose the request"]


class FaultyProxy:
    """Forwards requests, and injects ``faults`` into the next ones.

    ``methods`` records the methods of all requests.
    """

    def __init__(self, server: Transport) -> None:
        self._server = server
        self.faults: list[Fault] = []
        self.methods: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.methods.append(request.method)
        forwarded = HttpRequest(
            method=request.method,
            path=request.rel_url.raw_path,
            query=dict(request.query),
            body=await request.read() or None,
            content_type=request.headers.get("Content-Type", ""),
            accept=request.headers["Accept"],
        )
        match self.faults.pop(0) if self.faults else None:
            case "429" | "503" as code:
                return web.json_response({"code": int(code)}, status=int(code), headers={"Retry-After": "0"})
            case "504":
                await self._server.request(forwarded)
                return web.Response(status=504, text="upstream request timeout")
            case "lose the response":
                await self._server.request(forwarded)
                return self._abort(request)
            case "lose the request":
                return self._abort(request)
            case None:
                response = await self._server.request(forwarded)
                return web.Response(status=response.status, body=response.body, content_type="application/json")

    def _abort(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@asynccontextmanager
async def faulty_client(envtest: Envtest, *faults: Fault) -> AsyncGenerator[tuple[Client, FaultyProxy], None]:
    async with connect(envtest.config, retry=None) as server:
        proxy = FaultyProxy(server)
        async with (
            running_server(proxy.handle) as port,
            connect(ClusterConfig(server=f"http://127.0.0.1:{port}")) as transport,
        ):
            proxy.faults = list(faults)
            yield Client(transport, field_manager="retries"), proxy


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)  # type: ignore[arg-type]


async def test_throttled_create_is_executed_once(envtest: Envtest) -> None:
    async with faulty_client(envtest, "429", "503", "429") as (client, proxy):
        made = await client.create(config_map("turned-away", a="b"))
        assert proxy.methods == ["POST"] * 4
        assert (await client.get(ConfigMap, made.key)).metadata.uid == made.metadata.uid


@pytest.mark.parametrize("fault", ["lose the response", "lose the request", "504"])
async def test_reads_get_through(envtest: Envtest, fault: Fault) -> None:
    async with faulty_client(envtest, fault, fault) as (client, proxy):
        assert (await client.get(Namespace, ObjectKey("", "default"))).metadata.uid
        assert len(proxy.methods) == 3


async def test_create_with_lost_response_is_not_repeated(envtest: Envtest) -> None:
    async with faulty_client(envtest) as (client, proxy):
        metadata = ObjectMeta(generate_name="generated-", namespace="default", labels={"lost": "answer"})  # type: ignore[arg-type]
        proxy.faults = ["lose the response"]
        with pytest.raises(ConnectionFailed) as caught:
            await client.create(ConfigMap(metadata=metadata))
        assert caught.value.sent
        assert proxy.methods == ["POST"]
        assert len((await client.list(ConfigMap, label_selector="lost=answer")).items) == 1


@pytest.mark.parametrize("fault", ["lose the response", "504"])
async def test_apply_with_lost_response_is_repeated(envtest: Envtest, fault: Fault) -> None:
    name = f"applied-{fault.replace(' ', '-')}"
    config = core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace="default"), data={"a": "b"})
    async with faulty_client(envtest, fault) as (client, proxy):
        applied = await client.apply(config)
        assert proxy.methods == ["PATCH", "PATCH"]
        assert (await client.apply(config)).metadata.resource_version == applied.metadata.resource_version


@pytest.mark.parametrize("fault", ["lose the response", "504"])
async def test_patch_with_version_and_lost_response_applies_once(envtest: Envtest, fault: Fault) -> None:
    async with faulty_client(envtest) as (client, proxy):
        made = await client.create(config_map(f"versioned-{fault.replace(' ', '-')}", n="1"))
        patch = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"n": "2"}})
        proxy.faults = [fault]
        with pytest.raises(Conflict) as caught:
            await client.patch(ConfigMap, made.key, patch)
        # The conflict may be with our own first attempt, as it is here.
        assert caught.value.uncertain
        assert proxy.methods == ["POST", "PATCH", "PATCH"]
        assert (await client.get(ConfigMap, made.key)).data == {"n": "2"}


async def test_patch_with_version_and_lost_request_is_repeated(envtest: Envtest) -> None:
    async with faulty_client(envtest) as (client, proxy):
        made = await client.create(config_map("never-arrived", n="1"))
        patch = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"n": "2"}})
        proxy.faults = ["lose the request"]
        assert (await client.patch(ConfigMap, made.key, patch)).data == {"n": "2"}


async def test_patch_without_version_is_not_repeated(envtest: Envtest) -> None:
    async with faulty_client(envtest) as (client, proxy):
        made = await client.create(config_map("unversioned", n="1"))
        proxy.faults = ["lose the request"]
        with pytest.raises(ConnectionFailed):
            await client.patch(ConfigMap, made.key, MergePatch({"data": {"n": "2"}}))
        assert proxy.methods == ["POST", "PATCH"]


async def test_delete_by_uid_with_lost_response_is_not_found(envtest: Envtest) -> None:
    async with faulty_client(envtest) as (client, proxy):
        made = await client.create(config_map("deleted"))
        proxy.faults = ["lose the response"]
        with pytest.raises(NotFound) as caught:
            await client.delete(ConfigMap, made.key, uid=made.metadata.uid)
        assert caught.value.uncertain
        assert proxy.methods == ["POST", "DELETE", "DELETE"]


async def test_delete_retry_spares_recreated_object(envtest: Envtest) -> None:
    async with faulty_client(envtest) as (client, proxy):
        made = await client.create(config_map("namesake"))
        async with faulty_client(envtest) as (other, _):
            proxy.faults = ["lose the response", "429"]
            deleting = asyncio.create_task(client.delete(ConfigMap, made.key, uid=made.metadata.uid))
            while len(proxy.methods) < 2:
                await asyncio.sleep(0.001)
            again = await recreated(other, "namesake")
            with pytest.raises((Conflict, NotFound)):
                await deleting
            assert (await other.get(ConfigMap, again.key)).metadata.uid == again.metadata.uid


async def recreated(client: Client, name: str) -> ConfigMap:
    while True:
        try:
            return await client.create(config_map(name))
        except Conflict:
            await asyncio.sleep(0.001)


async def test_retry_disabled_raises_at_once(envtest: Envtest) -> None:
    async with faulty_client(envtest, "429") as (_, proxy), running_server(proxy.handle) as port:
        async with connect(ClusterConfig(server=f"http://127.0.0.1:{port}"), retry=None) as transport:
            with pytest.raises(TooManyRequests):
                await Client(transport).list(ConfigMap)
        proxy.faults = ["429", "429", "429"]
        policy = RetryPolicy(attempts=2, initial_delay=0.001)
        async with connect(ClusterConfig(server=f"http://127.0.0.1:{port}"), retry=policy) as transport:
            with pytest.raises(TooManyRequests):
                await Client(transport).list(ConfigMap)
        assert len(proxy.methods) == 3
