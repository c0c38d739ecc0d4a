"""Webhooks on the real API server, during rotations and rollouts."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from database_support.servers.process import free_port
from steersman.api.core_v1 import ConfigMap, Secret
from steersman.client import Client, MergePatch
from steersman.errors import ApiError, Invalid, SteersmanError
from steersman.manager import LeaderElection, Manager, ManagerOptions
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, Resource, Spec, Status, resource, unstructured
from steersman.observability.runtime import Runtime, SystemClock
from steersman.webhook import Conversion, FieldError, Rotation, Spoke, WebhookOptions, WebhookServerOptions
from steersman_manifests.crd import definition
from steersman_testing.envtest import Envtest

GROUP = "webhooks.example.com"
ROTATION = Rotation(lifetime=timedelta(minutes=30), propagation=timedelta(seconds=4), grace=timedelta(minutes=15))
# After this time a rotation is due and the previous CA is retired, but nothing has expired. Twice this time is less
# than the hour by which certificates are backdated, since the clock of the API server is not advanced.
LATER = timedelta(minutes=21)
SELECTOR = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}


class WebAppSpec(Spec):
    watts: int
    colour: str = "white"


class OldWebAppSpec(Spec):
    power: str


@resource(group=GROUP, version="v2")
class WebApp(Resource[WebAppSpec, Status]):
    """A webapp."""


@resource(group=GROUP, version="v1", plural="webapps")
class OldWebApp(Resource[OldWebAppSpec, Status]):
    """A webapp."""


OldWebApp.api_resource = OldWebApp.api_resource._replace(kind="WebApp")


def to_hub(old: OldWebApp) -> WebApp:
    return WebApp(
        metadata=old.metadata, spec=WebAppSpec(watts=int(old.spec.power.removesuffix("W"))), status=old.status
    )


def from_hub(new: WebApp) -> OldWebApp:
    return OldWebApp(metadata=new.metadata, spec=OldWebAppSpec(power=f"{new.spec.watts}W"), status=new.status)


def default_webapp(webapp: WebApp) -> WebApp:
    return replace(webapp, spec=replace(webapp.spec, colour="red")) if webapp.spec.watts == 7 else webapp


def validate_webapp(webapp: WebApp, old: WebApp | None) -> Iterator[FieldError]:
    if webapp.spec.watts > 100:
        yield FieldError("spec.watts", "must be 100 or less")


def label(config: ConfigMap) -> ConfigMap:
    labels = FrozenDict({**config.metadata.labels, "seen": "yes"})
    return replace(config, metadata=replace(config.metadata, labels=labels))


def setup(manager: Manager) -> None:
    manager.webhook(WebApp).defaults(default_webapp).validates(validate_webapp)
    manager.webhook(ConfigMap, WebhookOptions(namespace_selector=SELECTOR)).defaults(label)
    manager.conversion(Conversion(WebApp, Spoke(OldWebApp, to_hub=to_hub, from_hub=from_hub)))


class LoadBalancer:
    """Stand-in for a Service: forwards each connection to a ready replica."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        port = self.ports[self.connections % len(self.ports)]
        upstream_reader, upstream = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(self._pump(reader, upstream), self._pump(upstream_reader, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()


class OffsetClock(SystemClock):
    """The system clock, with a wall clock that the test advances."""

    def __init__(self) -> None:
        self.ahead = timedelta()

    def now(self) -> datetime:
        return super().now() + self.ahead


class Replica:
    """A process of the operator."""

    def __init__(self, client: Client, port: int, clock: OffsetClock, election: LeaderElection | None = None) -> None:
        self.port = free_port()
        serving = WebhookServerOptions(
            url=f"https://127.0.0.1:{port}",
            namespace="default",
            name="webapps",
            # A server on a loopback address stops without draining.
            bind_address=f":{self.port}",
            rotation=ROTATION,
            drain_seconds=2.0,
        )
        health = f"127.0.0.1:{free_port()}"
        self._readyz = f"http://{health}/readyz"
        options = ManagerOptions(
            name="webapps", webhooks=serving, health_probe_bind_address=health, leader_election=election
        )
        self.manager = Manager(client.transport, options, Runtime(clock=clock))
        setup(self.manager)
        self._task = asyncio.create_task(self.manager.run())

    async def ready(self) -> None:
        async with asyncio.timeout(20):
            while not await self._is_ready():
                assert not self._task.done(), self._task.result()
                await asyncio.sleep(0.05)

    async def _is_ready(self) -> bool:
        try:
            async with aiohttp.ClientSession() as session, session.get(self._readyz) as response:
                return response.status == 200
        except OSError:
            return False

    async def stop(self) -> None:
        self.manager.stop()
        await self._task


class WebhookCluster:
    """API server, replicas and load balancer."""

    def __init__(self, client: Client, stack: AsyncExitStack) -> None:
        self.client = client
        self.balancer = LoadBalancer()
        self.clock = OffsetClock()
        self._stack = stack
        self.port = 0

    async def start_balancer(self) -> None:
        server = await asyncio.start_server(self.balancer.on_connection, "127.0.0.1", 0)
        self._stack.callback(server.close)
        self.port = server.sockets[0].getsockname()[1]

    async def start_replica(self, election: LeaderElection | None = None) -> Replica:
        replica = Replica(self.client, self.port, self.clock, election)
        self._stack.push_async_callback(replica.stop)
        await replica.ready()
        self.balancer.ports.append(replica.port)
        return replica

    async def certificate(self) -> bytes:
        """Return the certificate in the Secret."""
        return (await self.client.get(Secret, ObjectKey("default", "webapps-cert"))).data["tls.crt"]

    async def serves_current_certificate(self) -> bool:
        """Return True if every replica serves the certificate of the Secret."""
        addresses = [("127.0.0.1", port) for port in self.balancer.ports]
        shown = await asyncio.gather(*(asyncio.to_thread(ssl.get_server_certificate, a) for a in addresses))
        certificate = (await self.certificate()).decode()
        return all(found.strip() in certificate for found in shown)

    async def install(self, replica: Replica) -> None:
        """Install the manifests without a CA bundle, like a user."""
        serving = replica.manager.options.webhooks
        assert serving is not None
        crd, old = definition(WebApp), definition(OldWebApp)
        crd["spec"]["versions"].append({**old["spec"]["versions"][0], "storage": False})
        crd["spec"]["names"] = {"kind": "WebApp", "plural": "webapps"}
        crd["spec"]["conversion"] = replica.manager.webhooks.conversion_webhook(serving).to_wire()
        for manifest in (crd, *replica.manager.webhooks.configurations(serving)):
            await self.client.apply(unstructured(_names(manifest)).of(manifest))


def _names(manifest: dict[str, Any]) -> Any:
    from steersman.webhook.registry import (
        CUSTOM_RESOURCE_DEFINITION,
        MUTATING_CONFIGURATION,
        VALIDATING_CONFIGURATION,
    )

    return next(
        r
        for r in (CUSTOM_RESOURCE_DEFINITION, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION)
        if r.kind == manifest["kind"]
    )


@asynccontextmanager
async def webhook_cluster(envtest: Envtest) -> AsyncGenerator[tuple[WebhookCluster, Replica]]:
    async with envtest.client() as client, AsyncExitStack() as stack:
        cluster = WebhookCluster(client, stack)
        await cluster.start_balancer()
        replica = await cluster.start_replica()
        await cluster.install(replica)
        stack.push_async_callback(_uninstall, client, replica)
        await _wait_until_served(client)
        yield cluster, replica


async def _uninstall(client: Client, replica: Replica) -> None:
    for resource_, name in replica.manager.webhooks.ca_bundle_targets(replica.manager.options.webhooks):  # type: ignore[arg-type]
        await client.delete(unstructured(resource_), ObjectKey("", name))
    await client.delete(Secret, ObjectKey("default", "webapps-cert"))


async def _wait_until_served(client: Client) -> None:
    """Wait until the webhooks and the conversion work."""
    async with asyncio.timeout(20):
        while True:
            with suppress(SteersmanError):
                await client.create(webapp("probe", 7), dry_run=True)
                made = await client.create(config("probe"), dry_run=True)
                if made.metadata.labels:
                    return
            await asyncio.sleep(0.1)


def webapp(name: str, watts: int) -> WebApp:
    return WebApp(metadata=ObjectMeta(name=name, namespace="default"), spec=WebAppSpec(watts=watts))


def config(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


@pytest.mark.timeout(180)
async def test_no_request_fails_while_certificates_and_replicas_change(envtest: Envtest) -> None:
    async with webhook_cluster(envtest) as (cluster, first):
        client, failures, done = cluster.client, list[str](), 0
        second = await cluster.start_replica()
        assert (await client.create(webapp("a", 7))).spec.colour == "red"
        with pytest.raises(Invalid, match=r"spec\.watts: must be 100 or less") as caught:
            await client.create(webapp("b", 101))
        assert [c.field for c in caught.value.causes] == ["spec.watts"]

        async def use(number: int) -> None:
            nonlocal done
            while True:
                try:
                    patch = MergePatch({"metadata": {"annotations": {"n": str(done)}}})
                    await client.patch(OldWebApp, ObjectKey("default", "a"), patch)
                    await client.list(OldWebApp, namespace="default")
                    await client.create(config(f"c{number}"), dry_run=True)
                except ApiError as error:
                    failures.append(f"{error.code} {error}")
                done += 1
                # Steady load that leaves CPU time for the rotation.
                await asyncio.sleep(0.05)

        users = [asyncio.create_task(use(number)) for number in range(4)]
        await _rotate_certificate(cluster)
        # A rolling update: the new one is ready before the old one goes.
        await cluster.start_replica()
        cluster.balancer.ports.remove(second.port)
        await second.stop()
        await _rotate_certificate(cluster)

        async def used() -> bool:
            return done >= 200

        # On a busy machine, the rotation may end before there were enough requests.
        await _wait_until(used)
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)
        assert failures == []
        assert first is not None


async def test_standby_replica_serves_reviews(envtest: Envtest) -> None:
    async with webhook_cluster(envtest) as (cluster, _):
        election = LeaderElection(name="webapps", namespace="default")
        replicas = [await cluster.start_replica(election) for _ in range(2)]

        async def elected() -> bool:
            return any(replica.manager.is_leader for replica in replicas)

        await _wait_until(elected)
        (standby,) = (replica for replica in replicas if not replica.manager.is_leader)
        cluster.balancer.ports = [standby.port]
        assert (await cluster.client.create(webapp("standby", 7), dry_run=True)).spec.colour == "red"
        with pytest.raises(Invalid, match=r"spec\.watts: must be 100 or less"):
            await cluster.client.create(webapp("standby", 101), dry_run=True)
        assert not standby.manager.is_leader


async def _rotate_certificate(cluster: WebhookCluster) -> None:
    """Advance the clock, and wait until all replicas serve a new certificate."""
    old = await cluster.certificate()
    cluster.clock.ahead += LATER

    async def renewed() -> bool:
        return await cluster.certificate() != old

    await _wait_until(renewed)
    await _wait_until(cluster.serves_current_certificate)


async def _wait_until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(60):
        while not await condition():
            await asyncio.sleep(0.1)
