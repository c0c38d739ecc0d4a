"""What webhooks are asked about the controllers' own requests. Compared with what a cluster of 1.36 asks them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from apiserver_cases.api import Api, Json, config_map
from apiserver_cases.backends import InMemoryBackend
from apiserver_cases.hooks import Hook, allowed, configured, denied, installed, patched, webhook
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


async def made(api: Api, name: str, *owners: Json, **metadata: Any) -> Json:
    """A ConfigMap; what it returns can be the owner of another."""
    reply = (await api.create("configmaps", config_map(name, ownerReferences=list(owners), **metadata))).ok()
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": reply.metadata["uid"]}
    return {**named, "blockOwnerDeletion": True}


async def family(api: Api) -> None:
    await made(api, "child", await made(api, "owner"))


def slowly(hook: Callable[[Json], Awaitable[Json]], seconds: float = 1.0) -> Callable[[Json], Awaitable[Json]]:
    async def answer(review: Json) -> Json:
        await asyncio.sleep(seconds)
        return await hook(review)

    return answer


def by(requests: list[Json], user: str) -> list[Json]:
    return [r for r in requests if r["userInfo"]["username"] == f"system:serviceaccount:kube-system:{user}"]


def told(request: Json) -> tuple[str, str, Json | None, Json | None]:
    """Operation, name, and the metadata that controllers change: before, after."""
    sides = [request.get("oldObject"), request.get("object")]
    fields = ("finalizers", "ownerReferences")
    before, after = ({f: s["metadata"].get(f) for f in fields} if s else None for s in sides)
    return request["operation"], request["name"], before, after


@virtual_time
async def test_a_webhook_that_waits_is_waited_for() -> None:
    server, api = new_api()
    await family(api)
    hook = Hook()
    config = await api.serve_webhook(slowly(hook))
    async with installed(api, webhook(api, config)):
        delete = HttpRequest(method="DELETE", path=api.path("configmaps", "owner"))
        response, changed = await server.trace(delete)
        assert response.status == 200
        assert hook.asked == ["DELETE owner", "DELETE child"]
        assert server.read(ConfigMap, KEY) is None
        assert [e.before.key.name for e in changed if e.before and not e.after] == ["owner", "child"]


@virtual_time
async def test_what_a_webhook_that_waits_keeps_is_in_nobodys_way() -> None:
    server, api = new_api()
    await family(api)
    hook = Hook(lambda r: denied() if r["name"] == "child" else allowed())
    config = await api.serve_webhook(slowly(hook))
    rules = [{"operations": ["DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
    async with installed(api, webhook(api, config, rules=rules)):
        (await api.delete("configmaps", "owner")).ok()
        (await api.create("configmaps", config_map("x"))).ok()
        # Those who cannot wait leave it to who can.
        server.load({"apiVersion": "v1", **config_map("y")})
        body = json.dumps(config_map("z")).encode()
        path = api.path("configmaps")
        assert server.answer(HttpRequest(method="POST", path=path, body=body)).status == 201
        with pytest.raises(RuntimeError, match="its handler waits"):
            server.collect_garbage()
        assert server.read(ConfigMap, KEY) is not None
    assert server.read(ConfigMap, KEY) is None


@pytest.mark.parametrize("controllers", [True, False])
@virtual_time
async def test_the_garbage_collector_of_a_test_may_wait(controllers: bool) -> None:
    server, api = new_api(controllers=controllers)
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "u"}
    await made(api, "child", nobody)
    hook = Hook()
    config = await api.serve_webhook(slowly(hook))
    async with installed(api, webhook(api, config)):
        await server.garbage_collected()
        assert hook.asked == ["DELETE child"]
        assert server.read(ConfigMap, KEY) is None


@virtual_time
async def test_a_webhook_may_write_while_it_is_asked() -> None:
    server, api = new_api()
    await family(api)
    await made(api, "other-child", await made(api, "other"))
    hook = Hook()

    async def writing(review: Json) -> Json:
        if review["request"]["name"] == "child":
            (await api.delete("configmaps", "other")).ok()
        return await slowly(hook)(review)

    config = await api.serve_webhook(writing)
    rules = [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    async with installed(api, webhook(api, config, rules=rules)), asyncio.timeout(60):
        (await api.delete("configmaps", "owner")).ok()
    assert server.read_all(ConfigMap, "case") == ()


@virtual_time
async def test_who_needs_no_webhook_does_not_wait_for_others() -> None:
    server, api = new_api()
    await family(api)
    gate = asyncio.Event()
    hook = Hook(gate=gate)
    config = await api.serve_webhook(hook)
    labels = {"matchLabels": {"kept": "yes"}}
    (await api.merge("configmaps", "child", {"metadata": {"labels": {"kept": "yes"}}})).ok()
    async with installed(api, webhook(api, config, objectSelector=labels)):
        deleting = asyncio.create_task(api.delete("configmaps", "owner"))
        while not hook.requests:
            await asyncio.sleep(0)
        await made(api, "other-child", await made(api, "other"))
        (await api.delete("configmaps", "other")).ok()
        assert [c.metadata.name for c in server.read_all(ConfigMap, "case")] == ["child"]
        gate.set()
        (await deleting).ok()
    assert server.read_all(ConfigMap, "case") == ()


@virtual_time
async def test_webhooks_are_asked_about_owners_that_are_taken_away() -> None:
    _, api = new_api()
    one, two = await made(api, "one"), await made(api, "two")
    await made(api, "child", one, two)
    await made(api, "orphan", two)
    hook = Hook()
    async with configured(api, hook):
        (await api.delete("configmaps", "one")).ok()
        (await api.delete("configmaps", "two", propagationPolicy="Orphan")).ok()
    requests = by(hook.requests, COLLECTOR)
    assert [told(r) for r in requests] == [
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
async def test_webhooks_are_asked_about_each_step_of_a_deletion_in_the_foreground() -> None:
    _, api = new_api()
    owner = await made(api, "owner")
    child = await made(api, "child", owner)
    await made(api, "grandchild", child)
    hook = Hook()
    async with configured(api, hook):
        (await api.delete("configmaps", "owner", propagationPolicy="Foreground")).ok()
    waiting = ["foregroundDeletion"]
    assert [told(r) for r in by(hook.requests, COLLECTOR)] == [
        ("DELETE", "child", owned(owner), None),
        ("DELETE", "grandchild", owned(child), None),
        ("UPDATE", "child", owned(owner, finalizers=waiting), owned(owner)),
        ("UPDATE", "owner", owned(finalizers=waiting), owned()),
    ]


@virtual_time
async def test_who_keeps_its_owner_keeps_the_owner() -> None:
    server, api = new_api()
    await family(api)
    hook = Hook(lambda r: denied() if r["name"] == "child" else allowed())
    async with configured(api, hook):
        (await api.delete("configmaps", "owner", propagationPolicy="Orphan")).ok()
        owner = (await api.get("configmaps", "owner")).ok()
        assert owner.metadata["finalizers"] == ["orphan"]
    (await api.get("configmaps", "owner")).refused(404, "NotFound")
    child = server.read(ConfigMap, KEY)
    assert child is not None and not child.metadata.owner_references


@virtual_time
async def test_a_webhook_that_undoes_what_controllers_do_is_not_fought_without_end() -> None:
    server, api = new_api()
    owner = await made(api, "owner")
    await made(api, "child", owner)
    back = patched({"op": "add", "path": "/metadata/ownerReferences", "value": [owner]})
    hook = Hook(lambda r: back if r["name"] == "child" and r["operation"] == "UPDATE" else allowed())
    async with configured(api, hook, mutating=True):
        (await api.delete("configmaps", "owner", propagationPolicy="Orphan")).ok()
        assert server.read(ConfigMap, ObjectKey("case", "owner")) is not None
    assert server.read(ConfigMap, ObjectKey("case", "owner")) is None
    assert server.read(ConfigMap, KEY) is not None


@virtual_time
async def test_webhooks_are_asked_about_the_end_of_a_namespace_and_of_a_claim() -> None:
    server, api = new_api()
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}
    (await api.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": spec})).ok()
    hook = Hook(lambda r: denied() if r.get("subResource") == "finalize" else allowed())
    config = await api.serve_webhook(hook)
    resources = ["persistentvolumeclaims", "namespaces", "namespaces/*"]
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": resources}]
    namespace = ApiResource("", "v1", "Namespace", "namespaces", False)
    async with installed(api, webhook(api, config, rules=rules)):
        (await api.delete("persistentvolumeclaims", "c")).ok()
        (asked,) = by(hook.requests, "pvc-protection-controller")
        assert told(asked) == ("UPDATE", "c", owned(finalizers=["kubernetes.io/pvc-protection"]), owned())
        (await api.call("DELETE", "/api/v1/namespaces/case")).ok()
        asked = by(hook.requests, "namespace-controller")[0]
        assert (asked["operation"], asked["name"], asked["namespace"]) == ("UPDATE", "case", "case")
        assert (asked["oldObject"]["spec"], asked["object"]["spec"]) == ({"finalizers": ["kubernetes"]}, {})
        assert server.manifest(namespace, ObjectKey("", "case")) is not None
    assert server.manifest(namespace, ObjectKey("", "case")) is None


@virtual_time
async def test_webhooks_are_asked_about_aggregated_roles() -> None:
    _, api = new_api()
    hook = Hook()
    config = await api.serve_webhook(hook)
    rules = [
        {"operations": ["*"], "apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"], "resources": ["*"]}
    ]
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}
    allows = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    part: Json = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": allows}
    async with installed(api, webhook(api, config, rules=rules)):
        for role in (whole, part):
            (await api.call("POST", ROLES, role)).ok()
        (asked,) = by(hook.requests, "clusterrole-aggregation-controller")
        manager = "clusterrole-aggregation-controller"
        assert asked["options"] == {
            "kind": "UpdateOptions",
            "apiVersion": "meta.k8s.io/v1",
            "fieldManager": manager,
        }
        assert asked["object"]["rules"] == allows
        entries = asked["object"]["metadata"]["managedFields"]
        assert (manager, "Apply") in [(e["manager"], e["operation"]) for e in entries]
        (await api.call("DELETE", f"{ROLES}/part")).ok()
    assert not (await api.call("GET", f"{ROLES}/whole")).ok().body.get("rules")


@virtual_time
async def test_a_webhook_that_writes_what_it_keeps_is_not_asked_without_end() -> None:
    server, api = new_api()
    await family(api)
    hook = Hook(lambda r: denied() if r["name"] == "child" else allowed())

    async def noting(review: Json) -> Json:
        if len(hook.requests) > 1000:
            raise AssertionError("asked without end")
        if review["request"]["name"] == "child":
            (await api.merge("configmaps", "child", {"data": {"asked": str(len(hook.requests))}})).ok()
        return await hook(review)

    config = await api.serve_webhook(noting)
    rules = [{"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
    async with installed(api, webhook(api, config, rules=rules)):
        (await api.delete("configmaps", "owner")).ok()
        assert server.read(ConfigMap, KEY) is not None
    assert server.read(ConfigMap, KEY) is None


@virtual_time
async def test_what_others_write_while_a_test_collects_garbage_is_carried_through() -> None:
    server, api = new_api()
    nobody = {"apiVersion": "v1", "kind": "ConfigMap", "name": "nobody", "uid": "u"}
    await made(api, "child", nobody)
    gate = asyncio.Event()
    hook = Hook(gate=gate)
    config = await api.serve_webhook(hook)
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}, "rules": []}
    allows = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    part: Json = {"metadata": {"name": "part", "labels": {"part": "yes"}}, "rules": allows}
    (await api.call("POST", ROLES, whole)).ok()
    rules = [{"operations": ["UPDATE", "DELETE"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
    async with installed(api, webhook(api, config, rules=rules)):
        collecting = asyncio.create_task(server.garbage_collected())
        while not hook.requests:
            await asyncio.sleep(0)
        (await api.call("POST", ROLES, part)).ok()
        gate.set()
        await collecting
        assert (await api.call("GET", f"{ROLES}/whole")).ok().body["rules"] == allows


@virtual_time
async def test_rules_of_others_stay_where_no_role_is_selected() -> None:
    _, api = new_api()
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    selectors = [{"matchLabels": {"part": "yes"}}]
    whole: Json = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": selectors}}
    made = (await api.call("POST", ROLES, {**whole, "rules": rules})).ok()
    found = (await api.call("GET", f"{ROLES}/whole")).ok()
    assert found.body["rules"] == rules
    assert found.metadata["managedFields"] == made.metadata["managedFields"]
