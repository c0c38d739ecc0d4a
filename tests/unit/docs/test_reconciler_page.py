"""Run the operator of "Write a reconciler"."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.manager import Manager, ManagerOptions
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-reconciler.md"
KEY = ObjectKey("default", "shop")


@pytest.fixture
def websites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The file of the page."""
    parts = re.findall(r'^```python title="websites.py"\n(.*?)^```$', PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert len(parts) == 7
    (tmp_path / "websites.py").write_text("\n\n".join(parts))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "websites", raising=False)
    return importlib.import_module("websites")


class FakeNetwork:
    """A CDN that needs two attempts to withdraw a host."""

    def __init__(self) -> None:
        self.hosts: list[str] = []
        self.refusals = 1

    async def publish(self, host: str) -> str:
        if host not in self.hosts:
            self.hosts.append(host)
        return f"https://{host}"

    async def withdraw(self, host: str) -> bool:
        if self.refusals:
            self.refusals -= 1
            return False
        self.hosts.remove(host)
        return True


@virtual_time
async def test_reconciler_page_operator_behaves_as_described(websites: Any) -> None:
    runtime, network = virtual_runtime(), FakeNetwork()
    server = InMemoryApiServer(runtime)
    server.register(websites.Website)
    client, manager = (
        Client(server, field_manager="user"),
        Manager(server, ManagerOptions(name="web-operator"), runtime),
    )
    websites.setup(manager, network)
    websites.setup_counter(manager)
    websites.setup_words(manager)
    with capture_logs() as lines:
        running = asyncio.create_task(manager.run())
        spec = websites.WebsiteSpec(host="shop.example.com", page="Hello")
        metadata = ObjectMeta(name=KEY.name, namespace=KEY.namespace)
        created = await client.create(websites.Website(metadata=metadata, spec=spec))
        assert created.status == websites.WebsiteStatus()
        await asyncio.sleep(1)
        found = await client.get(websites.Website, KEY)
        assert found.metadata.finalizers == ("websites.example.com/web-operator.website",)
        assert (found.status.address, found.status.pages) == ("https://shop.example.com", 1)
        ready = find_condition(found.status.conditions, "Ready")
        assert ready is not None and (ready.status, ready.observed_generation) == ("True", 1)
        assert (await client.get(ConfigMap, KEY)).data == {"index.html": "Hello"}
        assert found.status.words == 1

        lines.clear()
        await client.patch(websites.Website, KEY, MergePatch({"spec": {"page": "Bye", "host": "shop.example.org"}}))
        await asyncio.sleep(1)
        written = next(line for line in lines if line["event"] == "object written" and line["kind"] == "ConfigMap")
        assert written["reason"].startswith("Website default/shop updated: spec.host, spec.page")

        await client.patch(websites.Website, KEY, MergePatch({"spec": {"host": "shop.invalid"}}))
        await asyncio.sleep(1)
        ready = find_condition((await client.get(websites.Website, KEY)).status.conditions, "Ready")
        assert ready is not None and "choose another host" in ready.message

        await client.patch(websites.Website, KEY, MergePatch({"spec": {"host": "shop.example.com"}}))
        await client.delete(websites.Website, KEY)
        await asyncio.sleep(5)
        assert server.read(websites.Website, KEY) is not None
        await asyncio.sleep(10)
        assert server.read(websites.Website, KEY) is None
        assert "shop.example.com" not in network.hosts
        manager.stop()
        await running
