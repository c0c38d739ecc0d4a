"""Certificates are made, trusted and replaced by several replicas, and no request fails meanwhile.

A request fails where an API server, which may know a configuration as it was half a minute ago, does not trust the
authority of the certificate that a replica shows it. That is looked at whenever either changes.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.api.core_v1 import Secret
from steersman.client import Client, HttpRequest, HttpResponse, MergePatch, Transport
from steersman.client.tls import load_pair
from steersman.controller import Permission
from steersman.errors import ConnectionFailed
from steersman.manager.serving_certificate import serving_context
from steersman.meta import ObjectKey, unstructured
from steersman.rbac import policy_rules, webhook_certificate_role
from steersman.webhook import Rotation, WebhookServing
from steersman.webhook.certificates import CertificateState, Pair, from_data, issue, names_in
from steersman.webhook.keeper import CertificateKeeper
from steersman.webhook.registry import DEFINITION, MUTATING, VALIDATING
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time
from steersman_testing.virtual_clock import run_virtual

ROTATION = Rotation(lifetime=timedelta(minutes=30), settling=timedelta(minutes=1), retiring=timedelta(minutes=5))
SERVING = WebhookServing(service="shop", namespace="default", rotation=ROTATION)
TARGETS = ((MUTATING, "shop"), (VALIDATING, "shop"), (DEFINITION, "shops.example.com"))
SECRET = ObjectKey("default", "shop-cert")
LAG = 30.0
# The same in fewer minutes, for what is done many times.
SHORT = Rotation(lifetime=timedelta(minutes=9), settling=timedelta(minutes=1), retiring=timedelta(minutes=2))


def webhook(name: str) -> dict[str, Any]:
    return {
        "name": f"{name}.example.com",
        "clientConfig": SERVING.client_config("/x"),
        "rules": [{"apiGroups": ["x.com"], "apiVersions": ["v1"], "resources": ["x"], "operations": ["CREATE"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }


def configuration(kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "shop"},
        "webhooks": [webhook("a.b"), webhook("c.d")],
    }


def converted_definition() -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object"}}
    versions = [{"name": v, "served": True, "storage": v == "v1", "schema": schema} for v in ("v1", "v2")]
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": SERVING.client_config("/convert"), "conversionReviewVersions": ["v1"]},
    }
    spec = {"group": "example.com", "scope": "Namespaced", "names": {"plural": "shops", "kind": "Shop"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "shops.example.com"},
        "spec": {**spec, "versions": versions, "conversion": conversion},
    }


def is_read(request: HttpRequest) -> bool:
    return request.method == "GET"


class Harbour:
    """An API server, the replicas, and the watchman who looks whether a request would fail."""

    def __init__(self, serving: WebhookServing = SERVING) -> None:
        self.runtime = virtual_runtime()
        self.server = InMemoryApiServer(self.runtime)
        self.serving = serving
        self.server.load(
            configuration("MutatingWebhookConfiguration"),
            configuration("ValidatingWebhookConfiguration"),
            converted_definition(),
        )
        targets = [Permission(r, ("get", "watch", "patch"), names=(n,)) for r, n in TARGETS]
        api = "rbac.authorization.k8s.io/v1"
        cluster = {
            "apiVersion": api,
            "kind": "ClusterRole",
            "metadata": {"name": "c"},
            "rules": policy_rules(targets),
        }
        self.server.grant("operator", cluster)
        self.server.grant("operator", webhook_certificate_role("keeper", SECRET.name, namespace="default"))
        self.replicas: list[Replica] = []
        self.known: list[list[tuple[float, str]]] = [[] for _ in TARGETS]
        self.violations: list[str] = []
        self.calls: list[HttpRequest] = []
        self.settled = False

    def start(self, *cuts: Cut) -> None:
        for number in range(2):
            replica = Replica(self, number, [c for c in cuts if c.replica == number])
            self.replicas.append(replica)
            replica.start()

    async def end(self) -> None:
        for replica in self.replicas:
            replica.end()
        await asyncio.sleep(0)
        assert self.violations == []
        assert self.server.refused == []

    def bundles(self) -> list[str]:
        found: list[str] = []
        for resource, name in TARGETS:
            manifest = self.server.manifest(resource, ObjectKey("", name)) or {}
            entries = manifest.get("webhooks") or [
                manifest.get("spec", {"conversion": {"webhook": {"clientConfig": {}}}})["conversion"]["webhook"]
            ]
            (bundle,) = {w["clientConfig"].get("caBundle", "") for w in entries}
            found.append(base64.b64decode(bundle).decode())
        return found

    @property
    def state(self) -> CertificateState:
        secret = self.server.read(Secret, SECRET)
        assert secret is not None
        state = from_data({k: bytes(v).decode() for k, v in secret.data.items()})
        assert state is not None
        return state

    def look(self) -> None:
        """What has changed since the last look?"""
        now = self.runtime.clock.monotonic()
        for history, bundle in zip(self.known, self.bundles(), strict=True):
            if not history or history[-1][1] != bundle:
                history.append((now, bundle))
        for replica in self.replicas:
            if self.settled and replica.shown is not None:
                self._judge(replica, replica.shown, now)

    def _judge(self, replica: Replica, shown: Pair, now: float) -> None:
        if shown.expires <= self.runtime.clock.now():
            self.violations.append(f"{now:.0f} s: replica {replica.number} shows a certificate that has expired")
        for (_, name), history in zip(TARGETS, self.known, strict=True):
            last = max((n for n, (at, _) in enumerate(history) if at <= now - LAG), default=0)
            if any(shown.authority not in bundle for _, bundle in history[last:]):
                self.violations.append(f"{now:.0f} s: {name} does not trust what replica {replica.number} shows")

    async def until(self, probe: Callable[[], object], seconds: float = 7200) -> None:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(1)

    async def install(self) -> None:
        """Waits until both are ready."""
        await self.until(lambda: all(r.keeper.check() is None for r in self.replicas))
        await asyncio.sleep(LAG + 1)
        self.settled = True
        self.look()

    async def rotate(self) -> None:
        """Waits until another certificate is served, and nothing is left of the former one."""
        before = self.state.current
        await self.until(lambda: self.state.current != before)
        await self.until(lambda: not self.state.former and self.bundles() == [self.state.bundle] * 3)
        await self.until(lambda: all(r.shown == self.state.current for r in self.replicas))


class Cut:
    """The end of a process at its nth call: before anything was done, or after, with the answer lost."""

    def __init__(self, replica: int, call: int, *, done: bool) -> None:
        self.replica, self.call, self.done = replica, call, done


class Replica(Transport):
    """A process: its connection, which may be cut and the process with it, and what it shows."""

    def __init__(self, harbour: Harbour, number: int, cuts: list[Cut]) -> None:
        self.number = number
        self.shown: Pair | None = None
        self._harbour = harbour
        self._cuts = {c.call: c for c in cuts}
        self._calls = 0
        self._server = harbour.server.as_user("operator")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        client = Client(self, field_manager="shop-webhooks")
        self.shown = None
        self.keeper = CertificateKeeper(client, self._harbour.serving, TARGETS, self._harbour.runtime, self._show)
        self._task = asyncio.get_running_loop().create_task(self.keeper.run())

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _show(self, pair: Pair) -> None:
        self.shown = pair
        self._harbour.look()

    def _crash(self) -> None:
        self.end()
        self.shown = None
        asyncio.get_running_loop().call_later(20, self.start)

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._calls += 1
        if self.number == 0:
            self._harbour.calls.append(request)
        cut = self._cuts.get(self._calls)
        if cut is not None and not cut.done:
            self._crash()
            raise ConnectionFailed("cut")
        response = await self._server.request(request)
        self._harbour.look()
        if cut is not None:
            self._crash()
            raise ConnectionFailed("cut")
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return None


@virtual_time
async def test_two_replicas_make_one_certificate_and_replace_it_in_time() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    first = harbour.state.current
    assert [r.shown for r in harbour.replicas] == [first, first]
    assert names_in(first.certificate) >= {"shop.default.svc", "shop.default.svc.cluster.local"}
    for _ in range(3):
        begun = harbour.state.current
        await harbour.rotate()
        assert harbour.state.current.issued < begun.expires - timedelta(minutes=5)
    await harbour.end()


@virtual_time
async def test_where_nothing_is_to_be_done_nothing_is_written() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    before = harbour.server.resource_version
    # Three targets and the Secret, every 12 to 15 s: four times while an authority becomes known.
    harbour.calls.clear()
    await asyncio.sleep(600)
    assert len(harbour.calls) <= 51 * 4
    assert harbour.server.resource_version == before
    await harbour.end()


@virtual_time
async def test_a_deleted_secret_asks_for_another_certificate_and_breaks_nothing() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    user, first = Client(harbour.server, field_manager="user"), harbour.state.current
    await user.delete(Secret, SECRET)
    await asyncio.sleep(1)
    assert harbour.state.current == first
    await harbour.rotate()
    for data in ({"tls.key": base64.b64encode(first.key.encode()).decode()}, {"next.crt": "eA=="}):
        present = harbour.state.current
        await user.patch(Secret, SECRET, MergePatch({"data": data}))
        await asyncio.sleep(1)
        assert harbour.state.current == present
        await harbour.rotate()
    garbage = dict.fromkeys(("tls.crt", "tls.key")) | {"tls.crt": "eA==", "tls.key": "eA=="}
    second = harbour.state.current
    await user.patch(Secret, SECRET, MergePatch({"data": garbage}))
    await asyncio.sleep(1)
    assert harbour.state.current == second
    await harbour.rotate()
    await harbour.end()


@virtual_time
async def test_a_configuration_that_was_replaced_is_mended_at_once() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    harbour.settled = False
    kind, key = unstructured(MUTATING), ObjectKey("", "shop")
    await Client(harbour.server).delete(kind, key)
    await asyncio.sleep(200)
    harbour.server.load(configuration("MutatingWebhookConfiguration"))
    await asyncio.sleep(1)
    assert harbour.bundles() == [harbour.state.bundle] * 3
    await harbour.end()


@virtual_time
async def test_another_name_is_taken_up_beside_the_former() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    newer = WebhookServing(service="store", name="shop", namespace="default", rotation=ROTATION)
    # A rolling update: the one knows the new name, the other the old one.
    harbour.replicas[0].end()
    harbour.serving = newer
    harbour.replicas[0].start()
    first = harbour.state.current
    await harbour.until(lambda: harbour.state.current != first)
    assert names_in(harbour.state.current.certificate) >= {"shop.default.svc", "store.default.svc"}
    second = harbour.state.current
    await asyncio.sleep(600)
    assert harbour.state.current == second
    await harbour.end()


@virtual_time
async def test_after_a_long_absence_there_is_a_certificate_again() -> None:
    harbour = Harbour()
    harbour.start()
    await harbour.install()
    for replica in harbour.replicas:
        replica.end()
        replica.shown = None
    await asyncio.sleep(7200)
    harbour.settled = False
    for replica in harbour.replicas:
        replica.start()
    await harbour.install()
    await harbour.rotate()
    await harbour.end()


@virtual_time
async def test_a_replica_that_cannot_read_the_secret_is_not_ready() -> None:
    harbour = Harbour()
    harbour.start()
    assert harbour.replicas[0].keeper.check() == "there is no certificate yet"
    await harbour.install()
    harbour.server.fail_next(matching("GET", "/secrets/shop-cert"), 503, times=1000)
    await asyncio.sleep(151)
    told = harbour.replicas[0].keeper.check()
    harbour.settled = False
    assert told is not None
    assert "was not read for" in told
    harbour.replicas[0].end()
    harbour.replicas[1].end()


def shortly() -> Harbour:
    return Harbour(WebhookServing(service="shop", namespace="default", rotation=SHORT))


async def reference() -> list[int]:
    """The numbers of the first replica's calls that write something, up to the end of one rotation."""
    harbour = shortly()
    harbour.start()
    await harbour.install()
    await harbour.rotate()
    await harbour.end()
    return [n for n, request in enumerate(harbour.calls, 1) if not is_read(request)]


async def cut_short(cut: Cut) -> None:
    harbour = shortly()
    harbour.start(cut)
    await harbour.install()
    await harbour.rotate()
    await harbour.end()


def test_a_process_may_end_at_any_call() -> None:
    writes = run_virtual(reference())
    assert len(writes) >= 4
    places = sorted({n + near for n in writes for near in (-1, 0)})
    for place in places:
        for done in (False, True):
            try:
                run_virtual(cut_short(Cut(0, place, done=done)), limit=4 * 3600)
            except (AssertionError, TimeoutError) as error:
                pytest.fail(f"call {place}, {'done' if done else 'not done'}: {error!r}")


@virtual_time
async def test_what_could_not_be_served_is_not_ready() -> None:
    server, shown = InMemoryApiServer(runtime := virtual_runtime()), list[Pair]()

    def show(pair: Pair) -> None:
        if not shown:
            shown.append(pair)
            raise OSError("no place for a file")
        shown.append(pair)

    keeper = CertificateKeeper(Client(server), SERVING, (), runtime, show)
    with pytest.raises(OSError, match="no place"):
        await keeper.tend()
    assert keeper.check() == "there is no certificate yet"
    await keeper.tend()
    assert keeper.check() is None
    assert shown[0] == shown[1]


def test_a_pair_is_shown_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = issue(("localhost", "127.0.0.1"), datetime.now(UTC), timedelta(days=1))
    # As in a container whose file system is read-only.
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    load_pair(serving_context(), pair.certificate.encode(), pair.key.encode())
    assert "PRIVATE" not in repr(pair)
