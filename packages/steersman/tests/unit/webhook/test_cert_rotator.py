"""CertRotator on several replicas: no request fails during rotations.

A request fails if the API server does not trust the CA of a replica's certificate. The API server may use a
configuration that is half a minute old. The tests check this after each change of either side.
"""

from __future__ import annotations

import asyncio
import base64
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from steersman.api.core_v1 import Secret
from steersman.client import Client, HttpRequest, HttpResponse, MergePatch, Transport
from steersman.client.transport.tls import load_key_pair
from steersman.controller import Permission
from steersman.errors import ConnectionFailed
from steersman.manager.serving.cert_watcher import server_ssl_context
from steersman.meta import ObjectKey, unstructured
from steersman.webhook import Rotation, WebhookServerOptions
from steersman.webhook.cert_rotator import CertRotator
from steersman.webhook.certificates import CertificateState, KeyPair, from_secret, issue, subject_alternative_names
from steersman.webhook.registry import CUSTOM_RESOURCE_DEFINITION, MUTATING_CONFIGURATION, VALIDATING_CONFIGURATION
from steersman_manifests.rbac import policy_rules, webhook_certificate_role
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time
from steersman_testing.virtual_clock import run_virtual

ROTATION = Rotation(lifetime=timedelta(minutes=30), propagation=timedelta(minutes=1), grace=timedelta(minutes=5))
SERVING = WebhookServerOptions(service="shop", namespace="default", rotation=ROTATION)
TARGETS = (
    (MUTATING_CONFIGURATION, "shop"),
    (VALIDATING_CONFIGURATION, "shop"),
    (CUSTOM_RESOURCE_DEFINITION, "shops.example.com"),
)
SECRET = ObjectKey("default", "shop-cert")
LAG = 30.0
WHOLE = os.environ.get("SIMULATE") == "whole"
# Shorter intervals for tests with many rotations.
SHORT = Rotation(lifetime=timedelta(minutes=9), propagation=timedelta(minutes=1), grace=timedelta(minutes=2))


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


class RotationHarness:
    """An API server and replicas, with a check for failing requests."""

    def __init__(self, serving: WebhookServerOptions = SERVING) -> None:
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
        self.server.grant("operator", webhook_certificate_role("rotator", SECRET.name, namespace="default"))
        self.replicas: list[Replica] = []
        self.known: list[list[tuple[float, str]]] = [[] for _ in TARGETS]
        self.violations: list[str] = []
        self.calls: list[HttpRequest] = []
        self.settled = False

    def start(self, *cuts: CrashPoint) -> None:
        for number in range(2):
            replica = Replica(self, number, [c for c in cuts if c.replica == number])
            self.replicas.append(replica)
            replica.start()

    async def stop(self) -> None:
        for replica in self.replicas:
            replica.stop()
        await asyncio.sleep(0)
        assert self.violations == []
        assert self.server.rbac_denials == []

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
        state = from_secret({k: bytes(v).decode() for k, v in secret.data.items()})
        assert state is not None
        return state

    def observe(self) -> None:
        """Check the state after a step."""
        now = self.runtime.clock.monotonic()
        for history, bundle in zip(self.known, self.bundles(), strict=True):
            if not history or history[-1][1] != bundle:
                history.append((now, bundle))
        for replica in self.replicas:
            if self.settled and replica.shown is not None:
                self._check_served(replica, replica.shown, now)

    def _check_served(self, replica: Replica, shown: KeyPair, now: float) -> None:
        if shown.expires_at <= self.runtime.clock.now():
            self.violations.append(f"{now:.0f} s: replica {replica.number} shows a certificate that has expired")
        for (_, name), history in zip(TARGETS, self.known, strict=True):
            last = max((n for n, (at, _) in enumerate(history) if at <= now - LAG), default=0)
            if any(shown.ca_certificate not in bundle for _, bundle in history[last:]):
                self.violations.append(f"{now:.0f} s: {name} does not trust what replica {replica.number} shows")

    async def run_until(self, probe: Callable[[], object], seconds: float = 7200) -> None:
        async with asyncio.timeout(seconds):
            while not probe():
                await asyncio.sleep(1)

    async def install(self) -> None:
        """Waits until both are ready."""
        await self.run_until(lambda: all(r.rotator.check() is None for r in self.replicas))
        await asyncio.sleep(LAG + 1)
        self.settled = True
        self.observe()

    async def rotate(self) -> None:
        """Wait for a complete rotation."""
        before = self.state.current
        await self.run_until(lambda: self.state.current != before)
        await self.run_until(lambda: not self.state.previous_ca and self.bundles() == [self.state.ca_bundle] * 3)
        await self.run_until(lambda: all(r.shown == self.state.current for r in self.replicas))


class CrashPoint:
    """Crash of a process at its nth call, before request or response."""

    def __init__(self, replica: int, call: int, *, done: bool) -> None:
        self.replica, self.call, self.done = replica, call, done


class Replica(Transport):
    """A replica: its connection, which may be closed, and its certificate."""

    def __init__(self, harness: RotationHarness, number: int, crash_points: list[CrashPoint]) -> None:
        self.number = number
        self.shown: KeyPair | None = None
        self._harness = harness
        self._crash_points = {c.call: c for c in crash_points}
        self._calls = 0
        self._server = harness.server.as_user("operator")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        client = Client(self, field_manager="shop-webhooks")
        self.shown = None
        self.rotator = CertRotator(
            client, self._harness.serving, TARGETS, self._harness.runtime, self._on_certificate
        )
        self._task = asyncio.get_running_loop().create_task(self.rotator.run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _on_certificate(self, pair: KeyPair) -> None:
        self.shown = pair
        self._harness.observe()

    def _crash(self) -> None:
        self.stop()
        self.shown = None
        asyncio.get_running_loop().call_later(20, self.start)

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._calls += 1
        if self.number == 0:
            self._harness.calls.append(request)
        crash_point = self._crash_points.get(self._calls)
        if crash_point is not None and not crash_point.done:
            self._crash()
            raise ConnectionFailed("cut")
        response = await self._server.request(request)
        self._harness.observe()
        if crash_point is not None:
            self._crash()
            raise ConnectionFailed("cut")
        return response

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._server.stream(request)

    async def close(self) -> None:
        return None


@virtual_time
async def test_two_replicas_share_and_rotate_one_certificate() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    first = harness.state.current
    assert [r.shown for r in harness.replicas] == [first, first]
    assert subject_alternative_names(first.certificate) >= {"shop.default.svc", "shop.default.svc.cluster.local"}
    for _ in range(3):
        begun = harness.state.current
        await harness.rotate()
        assert harness.state.current.issued_at < begun.expires_at - timedelta(minutes=5)
    await harness.stop()


@virtual_time
async def test_rotator_without_change_sends_no_writes() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    before = harness.server.resource_version
    # Three targets and the Secret, every 12 to 15 s: four times while an authority becomes known.
    harness.calls.clear()
    await asyncio.sleep(600)
    assert len(harness.calls) <= 51 * 4
    assert harness.server.resource_version == before
    await harness.stop()


@virtual_time
async def test_deleted_secret_issues_new_certificate_safely() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    user, first = Client(harness.server, field_manager="user"), harness.state.current
    await user.delete(Secret, SECRET)
    await asyncio.sleep(1)
    assert harness.state.current == first
    await harness.rotate()
    for data in ({"tls.key": base64.b64encode(first.key.encode()).decode()}, {"next.crt": "eA=="}):
        present = harness.state.current
        await user.patch(Secret, SECRET, MergePatch({"data": data}))
        await asyncio.sleep(1)
        assert harness.state.current == present
        await harness.rotate()
    garbage = dict.fromkeys(("tls.crt", "tls.key")) | {"tls.crt": "eA==", "tls.key": "eA=="}
    second = harness.state.current
    await user.patch(Secret, SECRET, MergePatch({"data": garbage}))
    await asyncio.sleep(1)
    assert harness.state.current == second
    await harness.rotate()
    await harness.stop()


@virtual_time
async def test_replaced_configuration_is_corrected_at_once() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    harness.settled = False
    kind, key = unstructured(MUTATING_CONFIGURATION), ObjectKey("", "shop")
    await Client(harness.server).delete(kind, key)
    await asyncio.sleep(200)
    harness.server.load(configuration("MutatingWebhookConfiguration"))
    await asyncio.sleep(1)
    assert harness.bundles() == [harness.state.ca_bundle] * 3
    await harness.stop()


@virtual_time
async def test_renamed_service_is_added_to_certificate() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    newer = WebhookServerOptions(service="store", name="shop", namespace="default", rotation=ROTATION)
    # During a rolling update, one replica has the new name and the others have the old one.
    harness.replicas[0].stop()
    harness.serving = newer
    harness.replicas[0].start()
    first = harness.state.current
    await harness.run_until(lambda: harness.state.current != first)
    assert subject_alternative_names(harness.state.current.certificate) >= {"shop.default.svc", "store.default.svc"}
    second = harness.state.current
    await asyncio.sleep(600)
    assert harness.state.current == second
    await harness.stop()


@virtual_time
async def test_expired_certificate_is_reissued() -> None:
    harness = RotationHarness()
    harness.start()
    await harness.install()
    for replica in harness.replicas:
        replica.stop()
        replica.shown = None
    await asyncio.sleep(7200)
    harness.settled = False
    for replica in harness.replicas:
        replica.start()
    await harness.install()
    await harness.rotate()
    await harness.stop()


@virtual_time
async def test_replica_without_secret_access_is_not_ready() -> None:
    harness = RotationHarness()
    harness.start()
    assert harness.replicas[0].rotator.check() == "certificate has not been issued"
    await harness.install()
    harness.server.fail_next(matching("GET", "/secrets/shop-cert"), 503, times=1000)
    await asyncio.sleep(151)
    message = harness.replicas[0].rotator.check()
    harness.settled = False
    assert message is not None
    assert "has not been read for" in message
    harness.replicas[0].stop()
    harness.replicas[1].stop()


def near_expiry() -> RotationHarness:
    return RotationHarness(WebhookServerOptions(service="shop", namespace="default", rotation=SHORT))


async def reference() -> list[int]:
    """Numbers of the writing calls of the first replica during one rotation."""
    harness = near_expiry()
    harness.start()
    await harness.install()
    await harness.rotate()
    await harness.stop()
    return [n for n, request in enumerate(harness.calls, 1) if not is_read(request)]


async def run_with_crash(cut: CrashPoint) -> None:
    harness = near_expiry()
    harness.start(cut)
    await harness.install()
    await harness.rotate()
    await harness.stop()


def test_crash_at_any_call_keeps_one_leader() -> None:
    writes = run_virtual(reference())
    assert len(writes) >= 4
    # A crash before a write is one after the read before it. By default, each write has one of its two crashes.
    for number, place in enumerate(writes):
        for done in (True, False) if WHOLE else (number % 2 == 0,):
            try:
                run_virtual(run_with_crash(CrashPoint(0, place, done=done)), limit=4 * 3600)
            except (AssertionError, TimeoutError) as error:
                pytest.fail(f"call {place}, {'done' if done else 'not done'}: {error!r}")


@virtual_time
async def test_unserved_certificate_fails_readiness() -> None:
    server, shown = InMemoryApiServer(runtime := virtual_runtime()), list[KeyPair]()

    def show(pair: KeyPair) -> None:
        if not shown:
            shown.append(pair)
            raise OSError("no place for a file")
        shown.append(pair)

    rotator = CertRotator(Client(server), SERVING, (), runtime, show)
    with pytest.raises(OSError, match="no place"):
        await rotator.reconcile()
    assert rotator.check() == "certificate has not been issued"
    await rotator.reconcile()
    assert rotator.check() is None
    assert shown[0] == shown[1]


def test_load_pair_works_on_read_only_file_system(monkeypatch: pytest.MonkeyPatch) -> None:
    pair = issue(("localhost", "127.0.0.1"), datetime.now(UTC), timedelta(days=1))
    # For example, in a container with a read-only file system.
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    load_key_pair(server_ssl_context(), pair.certificate.encode(), pair.key.encode())
    assert "PRIVATE" not in repr(pair)


@virtual_time
async def test_watches_that_end_at_once_are_delayed(monkeypatch: pytest.MonkeyPatch) -> None:
    watches = 0

    async def ended_watch(*_: Any, **__: Any) -> AsyncGenerator[Any]:
        nonlocal watches
        watches += 1
        await asyncio.sleep(0.05)
        for event in ():
            yield event

    monkeypatch.setattr(Client, "watch", ended_watch)
    harness = RotationHarness()
    harness.start()
    await asyncio.sleep(60)
    await harness.stop()
    # Two replicas watch each target and the Secret, once a second.
    assert 0 < watches <= 2 * (len(TARGETS) + 1) * 61
