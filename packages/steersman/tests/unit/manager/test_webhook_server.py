"""Webhooks over TLS, with externally renewed certificates."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from framework_support.certificates import CertificateAuthority
from framework_support.widget import Widget
from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.manager import Manager, ManagerOptions
from steersman.manager.serving.webhook_server import WebhookServer
from steersman.observability import metrics
from steersman.observability.runtime import Runtime
from steersman.webhook import FieldError, Webhooks, WebhookServerOptions
from steersman.webhook.declaration import WebhookOptions
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time


@dataclass
class ManualClock:
    """A clock that the test advances."""

    tick: asyncio.Event = field(default_factory=asyncio.Event)
    ticked: asyncio.Event = field(default_factory=asyncio.Event)

    def monotonic(self) -> float:
        return 0.0

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        self.ticked.set()
        await self.tick.wait()
        self.tick.clear()

    async def advance(self) -> None:
        """Wake the sleeping task, and return when it sleeps again."""
        await self.ticked.wait()
        self.ticked.clear()
        self.tick.set()
        await self.ticked.wait()


def sample(name: str, /, **labels: str) -> float:
    return metrics.registry.get_sample_value(name, labels) or 0.0


def certificate_counts() -> tuple[float, float]:
    prefix = "certwatcher_read_certificate"
    return sample(f"{prefix}_total"), sample(f"{prefix}_errors_total")


def write(directory: Path, authority: CertificateAuthority, name: str) -> None:
    certificate, key = authority.issue(name, names=["localhost"])
    (directory / "tls.crt").write_bytes(certificate)
    (directory / "tls.key").write_bytes(key)


def validate_depth(widget: Widget, old: Widget | None) -> Iterator[FieldError]:
    if widget.spec.depth > 5:
        yield FieldError("spec.depth", "too deep")


def review(depth: int) -> dict[str, Any]:
    resource = Widget.api_resource
    obj = {"apiVersion": resource.api_version, "kind": "Widget", "metadata": {"name": "a"}, "spec": {"depth": depth}}
    request = {"uid": "7", "operation": "CREATE", "object": obj, "oldObject": None, "userInfo": {}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def test_webhook_server_reloads_certificate_files(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    write(tmp_path, authority, "one")
    webhooks, clock = Webhooks(), ManualClock()
    path = webhooks.webhook(Widget, WebhookOptions()).validates(validate_depth).paths[0]
    serving = WebhookServerOptions(
        service="b", namespace="s", cert_path=str(tmp_path), bind_address="127.0.0.1:0", drain_seconds=0
    )
    server = WebhookServer(serving, webhooks, Client(InMemoryApiServer()), Runtime(clock=clock))
    await server.start()
    assert server.check() is None
    before = certificate_counts()
    try:
        first = await open_connection(server.port, authority)
        assert first.certificate_name == "one"
        assert [await first.allows(path, depth) for depth in (1, 9)] == [True, False]
        write(tmp_path, authority, "two")
        await clock.advance()
        assert certificate_counts() == (before[0] + 1, before[1])
        # The connection stays open; a new one receives the new certificate.
        assert await first.allows(path, 1)
        assert (await open_connection(server.port, authority)).certificate_name == "two"
        (tmp_path / "tls.crt").write_text("broken")
        await clock.advance()
        assert certificate_counts() == (before[0] + 1, before[1] + 1)
        assert (await open_connection(server.port, authority)).certificate_name == "two"
    finally:
        clock.tick.set()
        await server.stop()


@dataclass
class TlsConnection:
    """A connection of the API server."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @property
    def certificate_name(self) -> str:
        return self.writer.get_extra_info("peercert")["subject"][0][0][1]

    async def allows(self, path: str, depth: int) -> bool:
        body = json.dumps(review(depth)).encode()
        self.writer.write(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (path.encode(), len(body)) + body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
        return json.loads(await self.reader.readexactly(length))["response"]["allowed"]


async def open_connection(port: int, authority: CertificateAuthority) -> TlsConnection:
    trusted = ssl.create_default_context(cadata=authority.certificate.decode())
    return TlsConnection(*await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname="localhost"))


def test_webhook_requests_are_counted() -> None:
    webhooks = Webhooks()
    path = webhooks.webhook(Widget, WebhookOptions()).validates(validate_depth).paths[0]
    before = sample("controller_runtime_webhook_requests_total", webhook=path, code="200")
    response = asyncio.run(webhooks.handle(path, "", json.dumps(review(1)).encode()))
    assert response.status == 200
    assert sample("controller_runtime_webhook_requests_total", webhook=path, code="200") == before + 1
    assert sample("controller_runtime_webhook_requests_in_flight", webhook=path) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bind_address": "9443"}, "write host:port, such as :9443"),
        ({"cert_path": "/nowhere"}, "cannot read /nowhere/tls.crt"),
    ],
)
def test_webhook_server_invalid_options_raise(change: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"service": "b", "namespace": "s", **change}
    with pytest.raises(ConfigurationError, match=message):
        WebhookServer(
            WebhookServerOptions(**options),
            Webhooks(),
            Client(InMemoryApiServer()),
            Runtime(),
        )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "webhooks need either a service or a url"),
        ({"service": "a", "url": "https://a"}, "webhooks need either a service or a url"),
        ({"service": "a"}, "webhooks need a namespace"),
    ],
)
def test_webhook_options_incomplete_raise(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        WebhookServerOptions(**given)


@virtual_time
async def test_manager_without_webhook_options_serves_none() -> None:
    runtime = virtual_runtime()
    manager = Manager(InMemoryApiServer(runtime), ManagerOptions(name="b"), runtime)
    manager.webhook(Widget).validates(validate_depth).needs(Widget, "get")
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(1)
    manager.stop()
    await running
    assert [p.verbs for p in manager.permissions] == [("get",)]
