"""Client test cases for the in-memory and the real API server.

Each case is an async function of a ``Client`` and a namespace.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from apiserver_cases.api import GROUP, deployment
from steersman.api.apply import apps, core, meta
from steersman.api.apps_v1 import Deployment
from steersman.api.authentication_v1 import TokenReview, TokenReviewSpec
from steersman.api.core_v1 import ConfigMap, Container, Pod, PodSpec, Secret, ServiceAccount
from steersman.api.policy_v1 import PodDisruptionBudget
from steersman.client import Client, JsonPatch, MergePatch, StrategicMergePatch
from steersman.errors import (
    ApiError,
    BadRequest,
    Conflict,
    EvictionBlocked,
    FieldConflict,
    Invalid,
    NotFound,
    UnsupportedMediaType,
)
from steersman.meta import ApiResource, FrozenDict, ObjectKey, ObjectMeta, metadata_only, unstructured

Case = Callable[[Client, str], Awaitable[None]]

Gadget = unstructured(ApiResource(GROUP, "v1", "Gadget", "gadgets"))
Scaled = unstructured(ApiResource(GROUP, "v1", "Scaled", "scaleds"))
Widget = unstructured(ApiResource(GROUP, "v1", "Widget", "widgets"))
RawDeployment = unstructured(Deployment.api_resource)


def config_map(namespace: str, name: str = "a", **labels: str) -> ConfigMap:
    metadata = ObjectMeta(name=name, namespace=namespace, labels=FrozenDict(labels))
    return ConfigMap(metadata=metadata, data=FrozenDict({"k": "v"}))


def gadget(namespace: str, name: str = "a", **spec: Any) -> Any:
    return Gadget.of({"metadata": {"name": name, "namespace": namespace}, "spec": spec})


def deployment_config(namespace: str, *, replicas: int | None = None) -> apps.Deployment:
    """A Deployment with one container and optional ``replicas``."""
    template = core.PodTemplateSpec(
        metadata=meta.TemplateMeta(labels={"app": "a"}),
        spec=core.PodSpec(containers=[core.Container(name="app", image="app:1")]),
    )
    spec: dict[str, Any] = {"selector": meta.LabelSelector(match_labels={"app": "a"}), "template": template}
    if replicas is not None:
        spec["replicas"] = replicas
    return apps.Deployment(metadata=meta.ObjectMeta(name="a", namespace=namespace), spec=apps.DeploymentSpec(**spec))


async def case_an_explicit_default_is_sent_and_owned(client: Client, namespace: str) -> None:
    """A declared field is owned even if its value is the default."""
    applied = await client.apply(deployment_config(namespace, replicas=1))
    (ours,) = applied.metadata.managed_fields
    assert "f:replicas" in json.loads(bytes(ours.fields_v1))["f:spec"]
    rival = Client(client.transport, field_manager="rival")
    with pytest.raises(Conflict) as refused:
        await rival.apply(deployment_config(namespace, replicas=2), force=False)
    assert refused.value.conflicts == (FieldConflict(client.field_manager, ".spec.replicas"),)


async def case_what_is_not_declared_is_left_to_an_autoscaler(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "a")
    applied = await client.apply(deployment_config(namespace))
    (ours,) = applied.metadata.managed_fields
    assert "f:replicas" not in json.loads(bytes(ours.fields_v1))["f:spec"]
    autoscaler = Client(client.transport, field_manager="autoscaler")
    await autoscaler.scale(Deployment, key, 7)
    again = await client.apply(deployment_config(namespace))
    assert again.spec is not None
    assert again.spec.replicas == 7
    (ours,) = again.metadata.managed_fields
    assert "f:replicas" not in json.loads(bytes(ours.fields_v1))["f:spec"]


async def case_a_typed_write_loses_no_unknown_field(client: Client, namespace: str) -> None:
    """The type has fewer fields than the schema of an upgraded server."""
    outline = metadata_only(Gadget)
    made = await client.create(gadget(namespace, depth=1, novelty={"deep": [1, 2]}))
    await client.patch(outline, made.key, MergePatch({"metadata": {"labels": {"l": "x"}}}))
    await client.patch(outline, made.key, JsonPatch([{"op": "add", "path": "/metadata/labels/m", "value": "y"}]))
    await client.apply(Gadget.of({"metadata": {"name": "a", "namespace": namespace, "labels": {"n": "z"}}}))
    now = await client.get(Gadget, made.key)
    assert now.content["spec"] == {"depth": 1, "novelty": {"deep": (1, 2)}}
    assert now.metadata.labels == {"l": "x", "m": "y", "n": "z"}


async def case_update_keeps_what_no_type_knows(client: Client, namespace: str) -> None:
    made = await client.create(gadget(namespace, depth=1, novelty=[1]))
    content = made.to_dict()
    content["spec"]["depth"] = 2
    updated = await client.update(Gadget.of(content))
    assert updated.content["spec"] == {"depth": 2, "novelty": (1,)}
    with pytest.raises(Conflict):
        await client.update(Gadget.of(content))


async def case_update_refuses_what_would_lose_fields(client: Client, namespace: str) -> None:
    made: Any = await client.create(config_map(namespace))
    with pytest.raises(TypeError, match=r"fields that ConfigMap does not declare.*use apply\(\) or patch\(\)"):
        await client.update(made)
    with pytest.raises(ValueError, match="needs a resourceVersion"):
        await client.update(gadget(namespace))


async def case_update_of_a_status(client: Client, namespace: str) -> None:
    made = await client.create(Widget.of({"metadata": {"name": "a", "namespace": namespace}, "spec": {"size": 1}}))
    content = made.to_dict() | {"status": {"ready": 3}, "spec": {"size": 9}}
    updated = await client.update(Widget.of(content), subresource="status")
    assert updated.content["status"] == {"ready": 3}
    assert updated.content["spec"]["size"] == 1


async def case_status_is_applied_from_plain_json(client: Client, namespace: str) -> None:
    made = await client.create(Widget.of({"metadata": {"name": "a", "namespace": namespace}, "spec": {"size": 1}}))
    told = await client.apply_status(made, {"ready": 0})
    assert told.content["status"] == {"ready": 0}
    told = await client.apply_status(made, {"conditions": [{"type": "Ready", "status": "True"}]})
    assert told.content["status"] == {"conditions": ({"type": "Ready", "status": "True"},)}


async def case_a_status_that_comes_too_late(client: Client, namespace: str) -> None:
    made = await client.create(Widget.of({"metadata": {"name": "a", "namespace": namespace}, "spec": {"size": 1}}))
    version = made.metadata.resource_version
    told = await client.apply_status(made, {"ready": 1}, resource_version=version)
    with pytest.raises(Conflict):
        await client.apply_status(made, {"ready": 2}, resource_version=version)
    told = await client.apply_status(told, {"ready": 3}, resource_version=told.metadata.resource_version)
    assert told.content["status"] == {"ready": 3}


async def case_an_object_that_was_read_is_not_applied(client: Client, namespace: str) -> None:
    made = await client.create(gadget(namespace))
    with pytest.raises(TypeError, match="was read from the server"):
        await client.apply(made)


async def case_conflicts_name_manager_and_field(client: Client, namespace: str) -> None:
    def config(value: str) -> core.ConfigMap:
        return core.ConfigMap(metadata=meta.ObjectMeta(name="a", namespace=namespace), data={"k": value, value: "x"})

    first = Client(client.transport, field_manager='the "first"')
    await first.apply(config("1"))
    with pytest.raises(Conflict) as refused:
        await client.apply(config("2"), force=False)
    assert refused.value.conflicts == (FieldConflict('the "first"', ".data.k"),)
    assert (await client.apply(config("2"))).data["k"] == "2"
    with pytest.raises(Conflict) as changed:
        await client.delete(ConfigMap, ObjectKey(namespace, "a"), resource_version="1")
    assert changed.value.conflicts == ()


async def case_dry_runs_store_nothing(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "a")
    assert (await client.create(config_map(namespace), dry_run=True)).metadata.uid
    with pytest.raises(NotFound):
        await client.get(ConfigMap, key)
    made = await client.create(config_map(namespace))
    config = core.ConfigMap(metadata=meta.ObjectMeta(name="a", namespace=namespace), data={"k": "w"})
    assert (await client.apply(config, dry_run=True)).data == {"k": "w"}
    assert (await client.patch(ConfigMap, key, MergePatch({"data": {"k": "w"}}), dry_run=True)).data == {"k": "w"}
    await client.delete(ConfigMap, key, dry_run=True)
    assert len(await client.delete_collection(ConfigMap, namespace=namespace, label_selector="!x", dry_run=True)) >= 1
    assert await client.get(ConfigMap, key) == made
    thing = await client.create(gadget(namespace, depth=1))
    changed = Gadget.of(thing.to_dict() | {"spec": {"depth": 2}})
    assert (await client.update(changed, dry_run=True)).content["spec"] == {"depth": 2}
    assert (await client.get(Gadget, thing.key)).content["spec"] == {"depth": 1}


async def case_unknown_fields_are_refused_unless_asked_otherwise(client: Client, namespace: str) -> None:
    body = {"metadata": {"name": "a", "namespace": namespace}, "spec": {"size": 1, "odd": 1}}
    with pytest.raises(BadRequest, match=r'unknown field "spec.odd"'):
        await client.create(Widget.of(body))
    made = await client.create(Widget.of(body), field_validation="Warn")
    assert "odd" not in made.content["spec"]
    with pytest.raises(Invalid, match=r"unknown field .{0,2}spec.odd"):
        await client.patch(Widget, made.key, MergePatch({"spec": {"odd": 2}}))
    await client.patch(Widget, made.key, MergePatch({"spec": {"odd": 2}}), field_validation="Ignore")


async def case_patches_of_each_kind(client: Client, namespace: str) -> None:
    made = await client.create(
        RawDeployment.of(deployment("a") | {"metadata": {"name": "a", "namespace": namespace}})
    )
    more: dict[str, Any] = {"containers": [{"name": "helper", "image": "helper:1"}]}
    await client.patch(Deployment, made.key, StrategicMergePatch({"spec": {"template": {"spec": more}}}))
    changed = await client.patch(
        Deployment, made.key, JsonPatch([{"op": "replace", "path": "/spec/replicas", "value": 3}])
    )
    assert changed.spec is not None
    assert changed.spec.template.spec is not None
    assert sorted(c.name for c in changed.spec.template.spec.containers) == ["app", "helper"]
    assert changed.spec.replicas == 3
    thing = await client.create(gadget(namespace))
    with pytest.raises(UnsupportedMediaType):
        await client.patch(Gadget, thing.key, StrategicMergePatch({}))


async def case_a_deletion_tells_what_is_left(client: Client, namespace: str) -> None:
    made = await client.create(config_map(namespace))
    with pytest.raises(Conflict):
        await client.delete(ConfigMap, made.key, uid="other")
    held = await client.patch(ConfigMap, made.key, MergePatch({"metadata": {"finalizers": ["example.com/hold"]}}))
    left = await client.delete(ConfigMap, made.key, uid=held.metadata.uid)
    assert left is not None
    assert left.metadata.deletion_timestamp is not None
    await client.patch(ConfigMap, made.key, MergePatch({"metadata": {"finalizers": None}}))
    with pytest.raises(NotFound):
        await client.delete(ConfigMap, made.key)
    await client.create(config_map(namespace, "b"))
    assert await client.delete(ConfigMap, ObjectKey(namespace, "b")) is None


async def case_a_collection_is_deleted(client: Client, namespace: str) -> None:
    for name, label in (("a", "x"), ("b", "y"), ("c", "x")):
        await client.create(config_map(namespace, name, l=label))
    gone = await client.delete_collection(ConfigMap, namespace=namespace, label_selector="l=x")
    assert [c.metadata.name for c in gone] == ["a", "c"]
    left = await client.list(metadata_only(ConfigMap), namespace=namespace, label_selector="l")
    assert [c.metadata.name for c in left.items] == ["b"]
    with pytest.raises(ValueError, match="requires a namespace"):
        await client.delete_collection(ConfigMap)


async def case_lists_at_a_version(client: Client, namespace: str) -> None:
    for name in "abc":
        await client.create(config_map(namespace, name, l="x"))
    before = await client.list(ConfigMap, namespace=namespace, label_selector="l", page_size=2)
    await client.delete(ConfigMap, ObjectKey(namespace, "b"))
    past = await client.list(
        ConfigMap,
        namespace=namespace,
        label_selector="l",
        resource_version=before.resource_version,
        resource_version_match="Exact",
        page_size=1,
    )
    assert [c.metadata.name for c in past.items] == ["a", "b", "c"]
    assert past.resource_version == before.resource_version
    now = await client.list(
        ConfigMap,
        namespace=namespace,
        label_selector="l",
        resource_version=before.resource_version,
        resource_version_match="NotOlderThan",
    )
    assert int(now.resource_version) >= int(before.resource_version)


async def case_a_streaming_list(client: Client, namespace: str) -> None:
    await client.create(config_map(namespace, "a", l="x"))
    stream = client.watch(ConfigMap, namespace=namespace, label_selector="l", send_initial_events=True, timeout=20)
    told: list[tuple[str, str]] = []
    async with aclosing(stream):
        async for event in stream:
            told.append((event.type, event.key.name))
            if event.initial_events_end:
                assert int(event.resource_version) > 0
                await client.create(config_map(namespace, "b", l="x"))
            if event.key.name == "b":
                assert event.object is not None
                assert (event.uid, event.size > 100) == (event.object.metadata.uid, True)
                break
    assert told == [("ADDED", "a"), ("BOOKMARK", ""), ("ADDED", "b")]


async def case_metadata_is_watched_alone(client: Client, namespace: str) -> None:
    outline = metadata_only(Secret)
    since = (await client.list(outline, namespace=namespace)).resource_version
    metadata = ObjectMeta(name="a", namespace=namespace)
    await client.create(Secret(metadata=metadata, string_data=FrozenDict({"password": "hidden"})))
    stream = client.watch(outline, resource_version=since, namespace=namespace, timeout=20)
    async with aclosing(stream):
        event = await anext(stream)
        assert event.object is not None
        assert (type(event.object), event.key.name, event.size < 1000) == (outline, "a", True)
    with pytest.raises(TypeError, match="metadata only"):
        await client.create(event.object)


async def case_scale(client: Client, namespace: str) -> None:
    await client.apply(deployment_config(namespace, replicas=1))
    await client.create(
        Scaled.of({"metadata": {"name": "a", "namespace": namespace}, "spec": {"replicas": 1, "size": 1}})
    )
    key = ObjectKey(namespace, "a")
    for kind in (Deployment, Scaled):
        before = await client.get_scale(kind, key)
        assert before.spec.replicas == 1
        assert (await client.scale(kind, key, 4, dry_run=True)).spec.replicas == 4
        after = await client.scale(kind, key, 3, resource_version=before.metadata.resource_version)
        assert (after.spec.replicas, (await client.get_scale(kind, key)).spec.replicas) == (3, 3)
        with pytest.raises(Conflict):
            await client.scale(kind, key, 5, resource_version=before.metadata.resource_version)
    with pytest.raises(NotFound):
        await client.get_scale(ConfigMap, key)


async def case_eviction(client: Client, namespace: str) -> None:
    await client.create(ServiceAccount(metadata=ObjectMeta(name="default", namespace=namespace)))
    for name in "ab":
        metadata = ObjectMeta(name=name, namespace=namespace, labels=FrozenDict({"app": "a"}))
        await client.create(Pod(metadata=metadata, spec=PodSpec(containers=(Container(name="c", image="i"),))))
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await client.patch(Pod, ObjectKey(namespace, name), MergePatch({"status": ready}), subresource="status")
    budgets = unstructured(PodDisruptionBudget.api_resource)
    selector = {"matchLabels": {"app": "a"}}
    budget = budgets.of(
        {"metadata": {"name": "b", "namespace": namespace}, "spec": {"minAvailable": 1, "selector": selector}}
    )
    made = await client.create(budget)
    status = {"observedGeneration": 1, "disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1}
    await client.patch(budgets, made.key, MergePatch({"status": {**status, "expectedPods": 2}}), subresource="status")
    await client.evict(ObjectKey(namespace, "a"), dry_run=True)
    await client.evict(ObjectKey(namespace, "a"), grace_period_seconds=0)
    with pytest.raises(NotFound):
        await client.get(Pod, ObjectKey(namespace, "a"))
    with pytest.raises(EvictionBlocked, match="disruption budget"):
        await client.evict(ObjectKey(namespace, "b"))
    with pytest.raises(Conflict):
        await client.delete(Pod, ObjectKey(namespace, "b"), uid="other")


async def case_tokens(client: Client, namespace: str) -> None:
    key = ObjectKey(namespace, "s")
    await client.create(ServiceAccount(metadata=ObjectMeta(name="s", namespace=namespace)))
    given = await client.create_token(key, expiration_seconds=600)
    assert given.status.token
    assert given.status.token not in repr(given)
    told = await client.create(TokenReview(spec=TokenReviewSpec(token=given.status.token)))
    assert told.status.user is not None
    assert told.status.user.username == f"system:serviceaccount:{namespace}:s"
    with pytest.raises(ApiError, match="10 minutes"):
        await client.create_token(key, expiration_seconds=10)


async def case_logs_of_a_pod_that_is_not_there(client: Client, namespace: str) -> None:
    with pytest.raises(NotFound):
        assert [line async for line in client.logs(ObjectKey(namespace, "a"))] == []


CASES: dict[str, Case] = {
    name.removeprefix("case_"): function for name, function in vars().copy().items() if name.startswith("case_")
}
