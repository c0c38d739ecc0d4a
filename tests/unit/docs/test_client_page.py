"""The code of "Use the client" does what the page says."""

from __future__ import annotations

import pytest

from apiserver_cases.api import config_map
from framework_support.documented_code import Load, Pages
from steersman import Client, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.errors import Conflict
from steersman_testing import InMemoryApiServer, virtual_time


@pytest.fixture
def page(pages: Pages) -> Load:
    """Imports a block of the page."""
    return pages("how-to/use-the-client.md")


@pytest.fixture
def server() -> InMemoryApiServer:
    return InMemoryApiServer()


@pytest.fixture
def client(server: InMemoryApiServer) -> Client:
    return Client(server, field_manager="shopkeeper")


@virtual_time
async def test_rollout_page_leaves_replicas_to_their_manager(page: Load, client: Client) -> None:
    rollout = page("rollout")
    await rollout.roll_out(client, "shop:1")
    assert await rollout.enlarge(client, 2) == 3
    deployment = await rollout.roll_out(client, "shop:2")
    assert deployment.spec.replicas == 3
    await rollout.pause(client)
    assert (await client.get(Deployment, rollout.SHOP)).spec.paused  # pyright: ignore[reportOptionalMemberAccess]
    rival = Client(client.transport, field_manager="rival")
    assert await rollout.who_is_in_the_way(rival, "shop:3") == [
        'shopkeeper owns .spec.template.spec.containers[name="shop"].image'
    ]
    assert await rollout.who_is_in_the_way(client, "shop:3") == []


@virtual_time
async def test_client_page_owners_share_an_object(page: Load, client: Client) -> None:
    publish, key = page("shared").publish, ObjectKey("default", "addresses")
    metadata = [ObjectMeta(name=name, namespace=key.namespace) for name in ("first", "second")]
    first, second = [await client.create(ConfigMap(metadata=each)) for each in metadata]
    await publish(client, first, {"a": "1", "b": "1"})
    await publish(client, second, {"c": "2"})
    await publish(client, first, {"a": "1"})
    assert (await client.get(ConfigMap, key)).data == {"a": "1", "c": "2"}
    await publish(client, first, {})
    names = [f"shop-operator/{owner.metadata.uid}" for owner in (first, second)]
    found = await Client(client.transport, field_manager="reader", previous_field_managers=names).get(ConfigMap, key)
    assert found.data == {"c": "2"}
    assert [entry.manager for entry in found.metadata.managed_fields] == names[1:]


@virtual_time
async def test_client_page_reads_unstructured_objects(page: Load, server: InMemoryApiServer, client: Client) -> None:
    objects = page("unstructured_objects")
    server.register(objects.Certificate.api_resource)
    await objects.make(client, "web")
    key = ObjectKey("default", "web")
    await client.patch(objects.Certificate, key, MergePatch({"spec": {"unheard": "of"}}))
    await objects.add_name(client, "web", "www.example.com")
    spec = (await client.get(objects.Certificate, key)).content["spec"]
    assert spec["dnsNames"] == ("web.example.com", "www.example.com")
    assert spec["unheard"] == "of"
    stale = await client.get(objects.Certificate, key)
    await objects.add_name(client, "web", "shop.example.com")
    with pytest.raises(Conflict):
        await client.update(stale)


@virtual_time
async def test_client_page_marks_unread_secrets(page: Load, server: InMemoryApiServer, client: Client) -> None:
    server.load(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "s", "namespace": "default"},
            "data": {"password": "aGlkZGVu"},
        }
    )
    assert await page("unstructured_objects").mark_all_secrets(client, "default") == 1
    found = server.read(Secret, ObjectKey("default", "s"))
    assert found is not None
    assert (found.metadata.labels, set(found.data)) == ({"seen": "yes"}, {"password"})
    assert all("PartialObjectMetadata" in r.accept for r in server.requests)


@virtual_time
async def test_client_page_lists_many_objects(page: Load, server: InMemoryApiServer, client: Client) -> None:
    many = page("many")
    for name, label in (("a", "yes"), ("b", "no")):
        server.load(config_map(name, namespace="default", labels={"temporary": label}))
    assert await many.what_exists(client, "default") == ["a", "b"]
    assert await many.clear(client, "default") == 1
    assert server.read(ConfigMap, ObjectKey("default", "a")) is None
    assert await many.what_exists(client, "default") == ["b"]


@virtual_time
async def test_client_page_evicts_pods(page: Load, server: InMemoryApiServer, client: Client) -> None:
    pods, key = page("pods"), ObjectKey("default", "p")
    labels = {"app": "p"}
    spec = {"containers": [{"name": "c", "image": "i"}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "default"}}
    server.load(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "labels": labels},
            "spec": spec,
        },
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "b", "namespace": "default"},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        },
        account,
    )
    await client.patch(Pod, key, MergePatch({"status": status}), subresource="status")
    server.pod_logs[key] = ["starting", "", "ready"]
    assert await pods.last_words(client, key) == ["", "ready"]
    # The status of the budget is empty, so the server responds with Retry-After.
    assert await pods.move_away(client, key) == 10
    assert await pods.token_for(client, ObjectKey("default", "s"), "vault")
