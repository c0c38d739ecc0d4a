"""Run the handlers and the test of "Write webhooks"."""

from __future__ import annotations

import pytest

from framework_support.documented_code import Pages
from steersman.client import Client
from steersman.errors import Invalid
from steersman.manager import Manager
from steersman.meta import ObjectMeta
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.webhooks import serve_webhooks


@virtual_time
async def test_webhooks_page_handlers_and_test_pass(pages: Pages) -> None:
    load = pages("how-to/write-webhooks.md")
    page = load("shop")
    load("test_shop").test_the_domain_stays()
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    server.register(page.Shop)
    manager = Manager(server, runtime=runtime)
    page.setup(manager)
    serve_webhooks(server, manager)
    client = Client(server)
    metadata = ObjectMeta(name="till", namespace="default")
    created = await client.create(page.Shop(metadata=metadata, spec=page.ShopSpec()))
    assert created.spec.domain == "till.example.com"
    other = page.Shop(metadata=ObjectMeta(name="b", namespace="default"), spec=page.ShopSpec(replicas=-1))
    with pytest.raises(Invalid):
        await client.create(other)


def test_webhooks_page_admission_test_passes(pages: Pages) -> None:
    load = pages("how-to/write-webhooks.md")
    server = InMemoryApiServer(virtual_runtime())
    server.register(load("shop").Shop)
    load("test_admission").test_domain_cannot_change(server)
