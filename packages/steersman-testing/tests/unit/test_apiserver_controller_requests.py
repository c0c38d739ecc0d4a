"""Webhook calls for requests of controllers.

The expected calls come from a cluster of version 1.36.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.backends import InMemoryBackend
from apiserver_cases.hooks import (
    WebhookStub,
    allow_response,
    deny_response,
    installed_configuration,
    patch_response,
    served_webhook,
    webhook_manifest,
)
from steersman.api.core_v1 import ConfigMap
from steersman.client import HttpRequest
from steersman.meta import ApiResource, ObjectKey
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

COLLECTOR = "generic-garbage-collector"
KEY = ObjectKey("case", "child")
ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"


def new_api(*, controllers: bool = True) -> tuple[InMemoryApiServer, Api]:
    server = InMemoryApiServer(virtual_runtime(), controllers=controllers)
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    return server, Api(server, "case", InMemoryBackend(server))


async def created(api: Api, name: str, *owners: Json, **metadata: Any) -> Json:
    """Create a ConfigMap and return it as the owner of another one."""
    reply = (
        await api.create("configmaps", config_map(name, ownerReferences=list(owners), **metadata))
    ).expect_success()
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": reply.metadata["uid"]}
    return {**named, "blockOwnerDeletion": True}


async def family(api: Api) -> None:
    await created(api, "child", await created(api, "owner"))


def delay_responses(
    hook: Callable[[Json], Awaitable[Json]], seconds: float = 1.0
) -> Callable[[Json], Awaitable[Json]]:
    async def answer(review: Json) -> Json:
        await asyncio.sleep(seconds)
        return await hook(review)

    return answer


def requests_by_user(requests: list[Json], user: str) -> list[Json]:
    return [r for r in requests if r["userInfo"]["username"] == f"system:serviceaccount:kube-system:{user}"]


def summarize(request: Json) -> tuple[str, str, Json | None, Json | None]:
    """Return operation, name, and the metadata that controllers change."""
    sides = [request.get("oldObject"), request.get("object")]
    fields = ("finalizers", "ownerReferences")
    before, after = ({f: s["metadata"].get(f) for f in fields} if s else None for s in sides)
    return request["operation"], request["name"], before, after


@virtual_time
async def test_waiting_webhook_delays_the_response() -> None:
    server, api = new_api()
    await family(api)
    hook = WebhookStub()
    config = await api.serve_webhook(delay_responses(hook))
    async with installed_configuration(api, webhook_manifest(api, config)):
        delete = HttpRequest(method="DELETE", path=api.path("configmaps", "owner"))
        response, changed = await server.request_with_events(delete)
        assert response.status == 200
        assert hook.operations == ["DELETE owner", "DELETE child"]
        assert server.read(ConfigMap, KEY) is None
        assert [e.before.key.name for e in changed if e.before and not e.after] == ["owner", "child"]


@virtual_time
async def test_pending_webhook_does_not_block_other_objects() -> None:
    server, api = new_api()
    await family(api)
    hook = WebhookStub(lambda r: deny_response() if r["name"] == "child" else allow_response())
    config = await api.serve_webhook(delay_responses(hook))
    rules = [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        (await api.delete("configmaps", "owner")).expect_success()
        (await api.create("configmaps", config_map("x"))).expect_success()
        # Synchronous runs leave the webhook calls to asynchronous ones.
        server.load({"apiVersion": "v1", **config_map("y")})
        body = json.dumps(config_map("z")).encode()
        path = api.path("configmaps")
        assert server.handle(HttpRequest(method="POST", path=path, body=body)).status == 201
        with pytest.raises(RuntimeError, match="its handler waits"):
            server.collect_garbage()
        assert server.read(ConfigMap, KEY) is not None
    assert server.read(ConfigMap, KEY) is None


@pytest.mark.parametrize("controllers", [True, False])
@virtual_time
async def test_collect_garbage_async_waits_for_webhook(controllers: bool) -> None:
    server, api = new_api(controllers=controllers)
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "u"}
    await created(api, "child", nobody)
    hook = WebhookStub()
    config = await api.serve_webhook(delay_responses(hook))
    async with installed_configuration(api, webhook_manifest(api, config)):
        await server.collect_garbage_async()
        assert hook.operations == ["DELETE child"]
        assert server.read(ConfigMap, KEY) is None


@virtual_time
async def test_webhook_handler_may_write() -> None:
    server, api = new_api()
    await family(api)
    await created(api, "other-child", await created(api, "other"))
    hook = WebhookStub()

    async def writing(review: Json) -> Json:
        if review["request"]["name"] == "child":
            (await api.delete("configmaps", "other")).expect_success()
        return await delay_responses(hook)(review)

    config = await api.serve_webhook(writing)
    rules = [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)), asyncio.timeout(60):
        (await api.delete("configmaps", "owner")).expect_success()
    assert server.read_all(ConfigMap, "case") == ()


@virtual_time
async def test_deletion_without_webhook_does_not_wait() -> None:
    server, api = new_api()
    await family(api)
    gate = asyncio.Event()
    hook = WebhookStub(gate=gate)
    config = await api.serve_webhook(hook)
    labels = {"matchLabels": {"kept": "yes"}}
    (await api.merge("configmaps", "child", {"metadata": {"labels": {"kept": "yes"}}})).expect_success()
    async with installed_configuration(api, webhook_manifest(api, config, objectSelector=labels)):
        deleting = asyncio.create_task(api.delete("configmaps", "owner"))
        while not hook.requests:
            await asyncio.sleep(0)
        await created(api, "other-child", await created(api, "other"))
        (await api.delete("configmaps", "other")).expect_success()
        assert [c.metadata.name for c in server.read_all(ConfigMap, "case")] == ["child"]
        gate.set()
        (await deleting).expect_success()
    assert server.read_all(ConfigMap, "case") == ()


@virtual_time
async def test_webhooks_review_removed_owner_references() -> None:
    _, api = new_api()
    one, two = await created(api, "one"), await created(api, "two")
    await created(api, "child", one, two)
    await created(api, "orphan", two)
    hook = WebhookStub()
    async with served_webhook(api, hook):
        (await api.delete("configmaps", "one")).expect_success()
        (await api.delete("configmaps", "two", propagationPolicy="Orphan")).expect_success()
    requests = requests_by_user(hook.requests, COLLECTOR)
    assert [summarize(r) for r in requests] == [
        ("UPDATE", "child", owned(one, two), owned(two)),
        ("UPDATE", "orphan", owned(two), owned()),
        ("UPDATE", "child", owned(two), owned()),
        ("UPDATE", "two", owned(finalizers=["orphan"]), owned()),
    ]
    assert requests[0]["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1"}
    (entry,) = requests[0]["object"]["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:metadata": {"f:ownerReferences": {".": {}, f'k:{{"uid":"{two["uid"]}"}}': {}}}}
    assert "managedFields" not in requests[1]["object"]["metadata"]


def owned(*owners: Json, finalizers: list[str] | None = None) -> Json:
    return {"finalizers": finalizers, "ownerReferences": list(owners) or None}


@virtual_time
async def test_webhooks_review_foreground_deletion_steps() -> None:
    _, api = new_api()
    owner = await created(api, "owner")
    child = await created(api, "child", owner)
    await created(api, "grandchild", child)
    hook = WebhookStub()
    async with served_webhook(api, hook):
        (await api.delete("configmaps", "owner", propagationPolicy="Foreground")).expect_success()
    waiting = ["foregroundDeletion"]
    assert [summarize(r) for r in requests_by_user(hook.requests, COLLECTOR)] == [
        ("DELETE", "child", owned(owner), None),
        ("DELETE", "grandchild", owned(child), None),
        ("UPDATE", "child", owned(owner, finalizers=waiting), owned(owner)),
        ("UPDATE", "owner", owned(finalizers=waiting), owned()),
    ]


@virtual_time
async def test_denied_dependent_deletion_keeps_owner() -> None:
    server, api = new_api()
    await family(api)
    hook = WebhookStub(lambda r: deny_response() if r["name"] == "child" else allow_response())
    async with served_webhook(api, hook):
        (await api.delete("configmaps", "owner", propagationPolicy="Orphan")).expect_success()
        owner = (await api.get("configmaps", "owner")).expect_success()
        assert owner.metadata["finalizers"] == ["orphan"]
    (await api.get("configmaps", "owner")).expect_error(404, "NotFound")
    child = server.read(ConfigMap, KEY)
    assert child is not None and not child.metadata.owner_references


@virtual_time
async def test_webhook_reverting_controller_ends_retries() -> None:
    server, api = new_api()
    owner = await created(api, "owner")
    await created(api, "child", owner)
    back = patch_response({"op": "add", "path": "/metadata/ownerReferences", "value": [owner]})
    hook = WebhookStub(lambda r: back if r["name"] == "child" and r["operation"] == "UPDATE" else allow_response())
    async with served_webhook(api, hook, mutating=True):
        (await api.delete("configmaps", "owner", propagationPolicy="Orphan")).expect_success()
        assert server.read(ConfigMap, ObjectKey("case", "owner")) is not None
    assert server.read(ConfigMap, ObjectKey("case", "owner")) is None
    assert server.read(ConfigMap, KEY) is not None


@virtual_time
async def test_webhooks_review_namespace_and_pvc_finalization() -> None:
    server, api = new_api()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    (await api.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})).expect_success()
    hook = WebhookStub(lambda r: deny_response() if r.get("subResource") == "finalize" else allow_response())
    config = await api.serve_webhook(hook)
    resources = ["persistentvolumeclaims", "namespaces", "namespaces/*"]
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]
    namespace = ApiResource("", "v1", "Namespace", "namespaces", False)
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        (await api.delete("persistentvolumeclaims", "c")).expect_success()
        (called,) = requests_by_user(hook.requests, "pvc-protection-controller")
        assert summarize(called) == ("UPDATE", "c", owned(finalizers=["kubernetes.io/pvc-protection"]), owned())
        (await api.call("DELETE", "/api/v1/namespaces/case")).expect_success()
        called = requests_by_user(hook.requests, "namespace-controller")[0]
        assert (called["operation"], called["name"], called["namespace"]) == ("UPDATE", "case", "case")
        assert (called["oldObject"]["spec"], called["object"]["spec"]) == ({"finalizers": ["kubernetes"]}, {})
        assert server.manifest(namespace, ObjectKey("", "case")) is not None
    assert server.manifest(namespace, ObjectKey("", "case")) is None


@virtual_time
async def test_webhooks_review_aggregated_roles() -> None:
    _, api = new_api()
    hook = WebhookStub()
    config = await api.serve_webhook(hook)
    rules = [
        {"operations": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "resources": ["*"]}
    ]
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}
    allows = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    part: Json = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": allows}
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        for role in (whole, part):
            (await api.call("POST", ROLES, role)).expect_success()
        (called,) = requests_by_user(hook.requests, "clusterrole-aggregation-controller")
        manager = "clusterrole-aggregation-controller"
        assert called["options"] == {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": manager,
        }
        assert called["object"]["rules"] == allows
        entries = called["object"]["metadata"]["managedFields"]
        assert (manager, "Apply") in [(e["manager"], e["operation"]) for e in entries]
        (await api.call("DELETE", f"{ROLES}/part")).expect_success()
    assert not (await api.call("GET", f"{ROLES}/whole")).expect_success().body.get("rules")


@virtual_time
async def test_webhook_writing_denied_object_ends_retries() -> None:
    server, api = new_api()
    await family(api)
    hook = WebhookStub(lambda r: deny_response() if r["name"] == "child" else allow_response())

    async def noting(review: Json) -> Json:
        if len(hook.requests) > 1000:
            raise AssertionError("asked without end")
        if review["request"]["name"] == "child":
            (await api.merge("configmaps", "child", {"data": {"asked": str(len(hook.requests))}})).expect_success()
        return await hook(review)

    config = await api.serve_webhook(noting)
    rules = [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        (await api.delete("configmaps", "owner")).expect_success()
        assert server.read(ConfigMap, KEY) is not None
    assert server.read(ConfigMap, KEY) is None


@virtual_time
async def test_concurrent_write_during_collection_is_processed() -> None:
    server, api = new_api()
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "u"}
    await created(api, "child", nobody)
    gate = asyncio.Event()
    hook = WebhookStub(gate=gate)
    config = await api.serve_webhook(hook)
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}
    allows = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    part: Json = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": allows}
    (await api.call("POST", ROLES, whole)).expect_success()
    rules = [{"operations": ["UPDATE", "DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        collecting = asyncio.create_task(server.collect_garbage_async())
        while not hook.requests:
            await asyncio.sleep(0)
        (await api.call("POST", ROLES, part)).expect_success()
        gate.set()
        await collecting
        assert (await api.call("GET", f"{ROLES}/whole")).expect_success().body["rules"] == allows


@virtual_time
async def test_aggregation_without_match_keeps_foreign_rules() -> None:
    _, api = new_api()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    created = (await api.call("POST", ROLES, {**whole, "rules": rules})).expect_success()
    found = (await api.call("GET", f"{ROLES}/whole")).expect_success()
    assert found.body["rules"] == rules
    assert found.metadata["managedFields"] == created.metadata["managedFields"]
