"""What is tried again, and what becomes of it on the real API server, behind a relay that misbehaves once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from aiohttp import web

from framework_support.loopback import serving
from steersman.api.apply.core_v1 import ConfigMapApply
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.client import Client, ClusterConfig, HttpRequest, MergePatch, RetryPolicy, Transport, connect
from steersman.errors import Conflict, ConnectionFailed, NotFound, TooManyRequests
from steersman.meta import ObjectKey, ObjectMeta, ObjectMetaApply
from steersman_testing.envtest import Envtest

Misdeed = Literal["429", "503", "504", "lose the answer", "lose the request"]


class Relay:
    """Passes requests on, and does to the next ones what is in ``plan``; ``seen`` are their methods."""

    def __init__(self, server: Transport) -> None:
        self._server = server
        self.plan: list[Misdeed] = []
        self.seen: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.seen.append(request.method)
        passed_on = HttpRequest(
            method=request.method,
            path=request.rel_url.raw_path,
            query=dict(request.query),
            body=await request.read() or None,
            content_type=request.headers.get("Content-Type", ""),
            accept=request.headers["Accept"],
        )
        match self.plan.pop(0) if self.plan else None:
            case "429" | "503" as code:
                return web.json_response({"code": int(code)}, status=int(code), headers={"Retry-After": "0"})
            case "504":
                await self._server.request(passed_on)
                return web.Response(status=504, text="upstream request timeout")
            case "lose the answer":
                await self._server.request(passed_on)
                return self._hang_up(request)
            case "lose the request":
                return self._hang_up(request)
            case None:
                answer = await self._server.request(passed_on)
                return web.Response(status=answer.status, body=answer.body, content_type="application/json")

    def _hang_up(self, request: web.BaseRequest) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()


@asynccontextmanager
async def relayed(envtest: Envtest, *plan: Misdeed) -> AsyncGenerator[tuple[Client, Relay], None]:
    async with connect(envtest.config, retry=None) as server:
        relay = Relay(server)
        async with (
            serving(relay.handle) as port,
            connect(ClusterConfig(server=f"http://127.0.0.1:{port}")) as transport,
        ):
            relay.plan = list(plan)
            yield Client(transport, field_manager="retries"), relay


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)  # type: ignore[arg-type]


async def test_what_is_turned_away_is_carried_out_once(envtest: Envtest) -> None:
    async with relayed(envtest, "429", "503", "429") as (client, relay):
        made = await client.create(config_map("turned-away", a="b"))
        assert relay.seen == ["POST"] * 4
        assert (await client.get(ConfigMap, made.key)).metadata.uid == made.metadata.uid


@pytest.mark.parametrize("misdeed", ["lose the answer", "lose the request", "504"])
async def test_reads_get_through(envtest: Envtest, misdeed: Misdeed) -> None:
    async with relayed(envtest, misdeed, misdeed) as (client, relay):
        assert (await client.get(Namespace, ObjectKey("", "default"))).metadata.uid
        assert len(relay.seen) == 3


async def test_a_create_whose_answer_is_lost_is_not_sent_again(envtest: Envtest) -> None:
    async with relayed(envtest) as (client, relay):
        metadata = ObjectMeta(generate_name="generated-", namespace="default", labels={"lost": "answer"})  # type: ignore[arg-type]
        relay.plan = ["lose the answer"]
        with pytest.raises(ConnectionFailed) as caught:
            await client.create(ConfigMap(metadata=metadata))
        assert caught.value.sent
        assert relay.seen == ["POST"]
        assert len((await client.list(ConfigMap, label_selector="lost=answer")).items) == 1


@pytest.mark.parametrize("misdeed", ["lose the answer", "504"])
async def test_an_apply_whose_answer_is_lost_is_said_again(envtest: Envtest, misdeed: Misdeed) -> None:
    name = f"applied-{misdeed.replace(' ', '-')}"
    config = ConfigMapApply(metadata=ObjectMetaApply(name=name, namespace="default"), data={"a": "b"})
    async with relayed(envtest, misdeed) as (client, relay):
        applied = await client.apply(config)
        assert relay.seen == ["PATCH", "PATCH"]
        assert (await client.apply(config)).metadata.resource_version == applied.metadata.resource_version


@pytest.mark.parametrize("misdeed", ["lose the answer", "504"])
async def test_a_change_with_a_version_is_made_once(envtest: Envtest, misdeed: Misdeed) -> None:
    async with relayed(envtest) as (client, relay):
        made = await client.create(config_map(f"versioned-{misdeed.replace(' ', '-')}", n="1"))
        patch = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"n": "2"}})
        relay.plan = [misdeed]
        with pytest.raises(Conflict) as caught:
            await client.patch(ConfigMap, made.key, patch)
        # It says of itself that the conflict may be with our own first try, as it is here.
        assert caught.value.uncertain
        assert relay.seen == ["POST", "PATCH", "PATCH"]
        assert (await client.get(ConfigMap, made.key)).data == {"n": "2"}


async def test_a_change_with_a_version_that_never_arrived_is_made(envtest: Envtest) -> None:
    async with relayed(envtest) as (client, relay):
        made = await client.create(config_map("never-arrived", n="1"))
        patch = MergePatch({"metadata": {"resourceVersion": made.metadata.resource_version}, "data": {"n": "2"}})
        relay.plan = ["lose the request"]
        assert (await client.patch(ConfigMap, made.key, patch)).data == {"n": "2"}


async def test_a_change_without_a_version_is_tried_once(envtest: Envtest) -> None:
    async with relayed(envtest) as (client, relay):
        made = await client.create(config_map("unversioned", n="1"))
        relay.plan = ["lose the request"]
        with pytest.raises(ConnectionFailed):
            await client.patch(ConfigMap, made.key, MergePatch({"data": {"n": "2"}}))
        assert relay.seen == ["POST", "PATCH"]


async def test_a_delete_by_uid_whose_answer_is_lost_finds_nothing(envtest: Envtest) -> None:
    async with relayed(envtest) as (client, relay):
        made = await client.create(config_map("deleted"))
        relay.plan = ["lose the answer"]
        with pytest.raises(NotFound) as caught:
            await client.delete(ConfigMap, made.key, uid=made.metadata.uid)
        assert caught.value.uncertain
        assert relay.seen == ["POST", "DELETE", "DELETE"]


async def test_a_namesake_is_never_deleted(envtest: Envtest) -> None:
    async with relayed(envtest) as (client, relay):
        made = await client.create(config_map("namesake"))
        async with relayed(envtest) as (other, _):
            relay.plan = ["lose the answer", "429"]
            deleting = asyncio.create_task(client.delete(ConfigMap, made.key, uid=made.metadata.uid))
            while len(relay.seen) < 2:
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


async def test_who_wants_none_gets_none(envtest: Envtest) -> None:
    async with relayed(envtest, "429") as (_, relay), serving(relay.handle) as port:
        async with connect(ClusterConfig(server=f"http://127.0.0.1:{port}"), retry=None) as transport:
            with pytest.raises(TooManyRequests):
                await Client(transport).list(ConfigMap)
        relay.plan = ["429", "429", "429"]
        policy = RetryPolicy(attempts=2, first_delay=0.001)
        async with connect(ClusterConfig(server=f"http://127.0.0.1:{port}"), retry=policy) as transport:
            with pytest.raises(TooManyRequests):
                await Client(transport).list(ConfigMap)
        assert len(relay.seen) == 3
