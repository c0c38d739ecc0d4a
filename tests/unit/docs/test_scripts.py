"""The scripts of "Write a script" do what the page says."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from framework_support.documented_code import Load, Pages
from steersman import Client, MergePatch, ObjectKey, SyncClient
from steersman.api.core_v1 import ConfigMap, Pod
from steersman_testing import InMemoryApiServer


@pytest.fixture
def script(pages: Pages) -> Load:
    """Imports a block of the page."""
    return pages("how-to/write-a-script.md")


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer()


@pytest.fixture
def client(server: InMemoryApiServer) -> Iterator[SyncClient]:
    with SyncClient(server) as client:
        yield client


def pod(name: str, restarts: int) -> dict[str, Any]:
    container = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": restarts}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
        "status": {"containerStatuses": [container]},
    }


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"matchLabels": {"app": "web"}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "x"}]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": replicas, "selector": labels, "template": template},
    }


KEY = ObjectKey("default", "web")


@pytest.mark.requirement("programming/scripts")
def test_script_restarts_deployments(
    script: Load, server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = script("restarts")
    monkeypatch.setattr(page, "SyncClient", lambda: SyncClient(server))
    server.load(pod("calm", 0), pod("troubled", 7))
    with SyncClient(server) as client:
        for manifest in (pod("calm", 0), pod("troubled", 7)):
            key = ObjectKey("default", manifest["metadata"]["name"])
            client.patch(Pod, key, MergePatch({"status": manifest["status"]}), subresource="status")
    page.main()
    assert capsys.readouterr().out == "default/troubled main: 7\n"


def test_script_waits_for_rollout(script: Load, server: InMemoryApiServer, client: SyncClient) -> None:
    page = script("wait_for_rollout")
    server.load(deployment(2))
    found = client.get(page.Deployment, KEY)
    assert not page.is_rolled_out(found)
    status = {"observedGeneration": found.metadata.generation, "updatedReplicas": 2, "availableReplicas": 2}

    class Watched(SyncClient):
        """Between its list and its watch, the rollout ends."""

        def list(self, *args: Any, **options: Any) -> Any:
            listed = client.list(*args, **options)
            client.patch(page.Deployment, KEY, MergePatch({"status": status}), subresource="status")
            return listed

    with Watched(server) as watched:
        assert page.wait_for(watched, KEY).status.available_replicas == 2
    assert page.wait_for(client, KEY).status.available_replicas == 2


async def test_script_copies_to_all_namespaces(
    script: Load, server: InMemoryApiServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = script("copy_everywhere")

    @asynccontextmanager
    async def connect(_: object) -> AsyncGenerator[InMemoryApiServer, None]:
        yield server

    monkeypatch.setattr(page, "connect", connect)
    monkeypatch.setattr(page, "load_config", lambda: None)
    metadata = {"name": "settings", "namespace": "default"}
    server.load({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "b"}})
    await page.main()
    assert capsys.readouterr().out == "4 copies\n"
    copies = (await Client(server).list(ConfigMap)).items
    assert {c.metadata.namespace for c in copies} == {"default", "kube-node-lease", "kube-public", "kube-system"}
    assert all(c.data == {"a": "b"} for c in copies)


def test_script_reads_any_kind(script: Load, server: InMemoryApiServer, client: SyncClient) -> None:
    server.load(deployment(2))
    found = script("get_any").get(client, "deploy", KEY)
    assert (found["kind"], found["spec"]["replicas"]) == ("Deployment", 2)


def test_script_halves_replicas(script: Load, server: InMemoryApiServer, client: SyncClient) -> None:
    server.load(deployment(5))
    server.fail_next(lambda request: request.method == "PATCH", 409)
    assert script("scale_down").halve(client, KEY).spec.replicas == 2
