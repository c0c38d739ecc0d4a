"""Requests to admission webhooks, and their order."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget
from apiserver_cases.hooks import (
    MATCH_ALL_RULE,
    WebhookStub,
    allow_response,
    installed_configuration,
    patch_response,
    served_webhook,
    wait_until_served,
    webhook_manifest,
)


def _rule_with(**fields: Any) -> Json:
    return {**MATCH_ALL_RULE, **fields}


async def case_create(api: Api) -> None:
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        created = (
            await api.as_user("jane", "system:masters").create("configmaps", config_map("x", {"k": "v"}))
        ).expect_success()
    (mutating,), (validating,) = first.requests, second.requests
    kind = {"group": "", "version": "v1", "kind": "ConfigMap"}
    resource = {"group": "", "version": "v1", "resource": "configmaps"}
    expected = {
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "name": "x",
        "namespace": api.namespace,
        "operation": "CREATE",
        "userInfo": {"username": "jane", "groups": ["system:masters", "system:authenticated"]},
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    for request in (mutating, validating):
        assert {k: v for k, v in request.items() if k not in ("uid", "object")} == expected
    assert mutating["uid"] != validating["uid"]
    # Mutation precedes the metadata of the server, and validation follows it. Neither has a resourceVersion.
    early = mutating["object"]["metadata"]
    assert set(early) == {"name", "namespace", "managedFields"}
    late = validating["object"]["metadata"]
    assert set(late) == {"name", "namespace", "managedFields", "uid", "creationTimestamp"}
    assert late["uid"] == created.metadata["uid"]
    assert mutating["object"]["data"] == validating["object"]["data"] == {"k": "v"}
    assert (mutating["object"]["apiVersion"], mutating["object"]["kind"]) == ("v1", "ConfigMap")


async def case_update(api: Api) -> None:
    before = (await api.create("configmaps", config_map("x", {"k": "v"}))).expect_success()
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        (await api.put("configmaps", config_map("x", {"k": "w"}), fieldManager="me")).expect_success()
        (await api.merge("configmaps", "x", {"data": {"k": "u"}})).expect_success()
        (await api.merge("configmaps", "x", {"data": {"k": "u"}})).expect_success()
    assert first.operations == second.operations == ["UPDATE x"] * 3
    put, merge, void = first.requests
    assert put["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    # A webhook sees the body of a PUT, but the result of a patch.
    assert "uid" not in put["object"]["metadata"]
    assert merge["object"]["metadata"]["uid"] == before.metadata["uid"]
    for request in (put, second.requests[0]):
        assert request["oldObject"]["data"] == {"k": "v"}
        assert request["oldObject"]["metadata"]["resourceVersion"] == before.resource_version
        assert request["object"]["data"] == {"k": "w"}
    late = second.requests[0]["object"]["metadata"]
    assert late["uid"] == before.metadata["uid"]
    assert late["resourceVersion"] == before.resource_version
    assert void["object"]["data"] == void["oldObject"]["data"] == {"k": "u"}


async def case_delete(api: Api) -> None:
    created = (await api.create("configmaps", config_map("x", {"k": "v"}))).expect_success()
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        (await api.delete("configmaps", "x", {"propagationPolicy": "Background"})).expect_success()
        (await api.delete("configmaps", "x")).expect_error(404, "NotFound")
    for hook in (first, second):
        (request,) = hook.requests
        assert (request["operation"], request["name"], request["object"]) == ("DELETE", "x", None)
        assert request["oldObject"]["metadata"]["uid"] == created.metadata["uid"]
        assert request["options"] == {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "propagationPolicy": "Background",
        }


async def case_deletecollection(api: Api) -> None:
    for name in ("x", "y"):
        (await api.create("configmaps", config_map(name, labels={"of": "these"}))).expect_success()
    hook = WebhookStub()
    async with served_webhook(api, hook):
        path = api.path("configmaps")
        (await api.call("DELETE", path, None, {"labelSelector": "of=these"})).expect_success()
    # Each object has its own request, without a name.
    assert hook.operations == ["DELETE", "DELETE"]
    assert sorted(r["oldObject"]["metadata"]["name"] for r in hook.requests) == ["x", "y"]


async def case_apply(api: Api) -> None:
    hook = WebhookStub()
    body = {"apiVersion": "v1", **config_map("x", {"k": "v"})}
    async with served_webhook(api, hook):
        (await api.apply("configmaps", body)).expect_success()
        (await api.apply("configmaps", {**body, "data": {"k": "w"}})).expect_success()
    assert hook.operations == ["CREATE x", "UPDATE x"]
    options = [r["options"] for r in hook.requests]
    assert [(o["kind"], o["fieldManager"]) for o in options] == [
        ("CreateOptions", "tester"),
        ("UpdateOptions", "tester"),
    ]


async def case_create_by_put(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook):
        (await api.put("leases", {"metadata": {"name": "x"}})).expect_success()
    assert hook.operations == ["CREATE x"]


async def case_generated_name(api: Api) -> None:
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        created = (await api.create("configmaps", {"metadata": {"generateName": "x-"}})).expect_success()
    assert "name" not in first.requests[0]
    assert "name" not in first.requests[0]["object"]["metadata"]
    name = created.metadata["name"]
    assert second.requests[0]["name"] == second.requests[0]["object"]["metadata"]["name"] == name
    assert len(first.requests) == len(second.requests) == 1


async def case_dry_run(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook):
        (await api.create("configmaps", config_map("x"), dryRun="All")).expect_success()
    (request,) = hook.requests
    assert request["dryRun"] is True
    assert request["options"]["dryRun"] == ["All"]


async def case_defaults_precede_mutation(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook, mutating=True):
        (await api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})).expect_success()
        (await api.create("widgets", widget("w", {"size": 1, "unknown": 1}))).expect_success()
        (await api.create("deployments", deployment("d"))).expect_success()
    secret, custom, workload = (r["object"] for r in hook.requests)
    assert (secret["type"], secret["data"]) == ("Opaque", {"a": "Yg=="})
    assert custom["spec"] == {"size": 1, "mode": "safe", "rollout": {"pace": "slow"}}
    assert workload["spec"]["replicas"] == 1


async def case_validation_precedes_validating_webhooks(api: Api) -> None:
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        (await api.create("widgets", widget("w", {"size": 1000}))).expect_error(422, "Invalid")
    assert (first.operations, second.operations) == (["CREATE w"], [])


async def case_name_conflict_follows_webhooks(api: Api) -> None:
    (await api.create("configmaps", config_map("x"))).expect_success()
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        (await api.create("configmaps", config_map("x"))).expect_error(409, "AlreadyExists")
    assert first.operations == second.operations == ["CREATE x"]


async def case_missing_object_precedes_webhooks(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook, mutating=True):
        (await api.put("configmaps", config_map("x"))).expect_error(404, "NotFound")
        (await api.merge("configmaps", "x", {})).expect_error(404, "NotFound")
    assert hook.operations == []


async def case_version_conflict_follows_mutation(api: Api) -> None:
    (await api.create("configmaps", config_map("x"))).expect_success()
    first, second = WebhookStub(), WebhookStub()
    async with served_webhook(api, first, mutating=True), served_webhook(api, second, name="b"):
        (await api.put("configmaps", config_map("x", {"k": "v"}, resourceVersion="1"))).expect_error(409, "Conflict")
    assert (first.operations, second.operations) == (["UPDATE x"], [])


async def case_status(api: Api) -> None:
    (await api.create("widgets", widget("w"))).expect_success()
    everything, main = WebhookStub(), WebhookStub()
    rules = [_rule_with(resources=["widgets"])]
    async with (
        served_webhook(api, everything),
        served_webhook(api, main, name="b", rules=[_rule_with(resources=["configmaps"]), *rules]),
    ):
        (await api.merge("widgets", "w", {"status": {"ready": 1}}, "status")).expect_success()
    assert main.requests == []
    (request,) = everything.requests
    assert (request["subResource"], request["requestSubResource"]) == ("status", "status")
    assert request["object"]["status"] == {"ready": 1}
    assert "status" not in request["oldObject"]


async def case_scale(api: Api) -> None:
    created = (await api.create("deployments", deployment("d"))).expect_success()
    hook = WebhookStub()
    async with served_webhook(api, hook):
        (await api.merge("deployments", "d", {"spec": {"replicas": 3}}, "scale")).expect_success()
    (request,) = hook.requests
    assert request["kind"] == request["requestKind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert request["resource"] == {"group": "apps", "version": "v1", "resource": "deployments"}
    assert (request["operation"], request["name"], request["subResource"]) == ("UPDATE", "d", "scale")
    for state, replicas in (("oldObject", 1), ("object", 3)):
        formatted = request[state]
        assert (formatted["apiVersion"], formatted["kind"]) == ("autoscaling/v1", "Scale")
        assert formatted["spec"] == {"replicas": replicas}
        assert formatted["status"] == {"replicas": 0, "selector": "app=d"}
        assert formatted["metadata"]["uid"] == created.metadata["uid"]
        assert formatted["metadata"]["resourceVersion"] == created.resource_version


async def case_eviction(api: Api) -> None:
    pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.create("pods", pod)).expect_success()
    hook = WebhookStub()
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with served_webhook(api, hook):
        (await api.call("POST", api.path("pods", "p", "eviction"), body)).expect_success()
    # The deletion that follows has no webhook call.
    (request,) = hook.requests
    assert request["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    assert (request["operation"], request["name"], request["subResource"]) == ("CREATE", "p", "eviction")
    assert request["object"] == {**body, "metadata": {"name": "p", "namespace": api.namespace}}
    assert request["oldObject"] is None


async def case_rules(api: Api) -> None:
    (await api.create("widgets", widget("w"))).expect_success()
    probe = _rule_with(resources=["configmaps"], operations=["CREATE"])
    hooks: list[tuple[Json, list[str]]] = [
        (_rule_with(resources=["widgets"], operations=["UPDATE", "DELETE"]), ["UPDATE w", "DELETE w"]),
        (_rule_with(resources=["widgets"], operations=["CREATE"]), []),
        (_rule_with(resources=["widgets/status"]), ["UPDATE w"]),
        (_rule_with(resources=["widgets/*"]), ["UPDATE w", "UPDATE w", "DELETE w"]),
        (_rule_with(resources=["*/status"]), ["UPDATE w"]),
        (_rule_with(resources=["*"], apiGroups=["cases.steersman.dev"]), ["UPDATE w", "DELETE w"]),
        (_rule_with(resources=["widgets"], apiGroups=["apps"]), []),
        (_rule_with(resources=["widgets"], apiVersions=["v2"]), []),
        (_rule_with(resources=["widgets"], scope="Namespaced"), ["UPDATE w", "DELETE w"]),
        (_rule_with(resources=["widgets"], scope="Cluster"), []),
    ]
    listening = [WebhookStub() for _ in hooks]
    specs = [
        webhook_manifest(api, await api.serve_webhook(hook), f"w{n}", rules=[rule, probe])
        for n, (hook, (rule, _)) in enumerate(zip(listening, hooks, strict=True))
    ]
    async with installed_configuration(api, *specs):
        for hook in listening:
            await wait_until_served(api, hook)
        (await api.merge("widgets", "w", {"spec": {"size": 2}})).expect_success()
        (await api.merge("widgets", "w", {"status": {"ready": 1}}, "status")).expect_success()
        (await api.delete("widgets", "w")).expect_success()
    for hook, (rule, expected) in zip(listening, hooks, strict=True):
        assert hook.operations == expected, f"{rule}: asked {[one.get('subResource', '') for one in hook.requests]}"


async def case_object_selector(api: Api) -> None:
    hook = WebhookStub()
    selector = {"matchExpressions": [{"key": "ignored", "operator": "DoesNotExist"}], "matchLabels": {"team": "a"}}
    config = await api.serve_webhook(hook)
    async with installed_configuration(
        api, webhook_manifest(api, config), webhook_manifest(api, config, "b", objectSelector=selector)
    ):
        await wait_until_served(api, hook)
        # Both webhooks have the same URL. The second one selects objects by labels.
        (await api.create("configmaps", config_map("none"))).expect_success()
        (await api.create("configmaps", config_map("worn", labels={"team": "a"}))).expect_success()
        (await api.create("configmaps", config_map("but", labels={"team": "a", "ignored": ""}))).expect_success()
        # A match of the old or the new object suffices.
        (await api.merge("configmaps", "worn", {"metadata": {"labels": None}})).expect_success()
        (await api.merge("configmaps", "none", {"metadata": {"labels": {"team": "a"}}})).expect_success()
    counted = {name: hook.operations.count(name) for name in sorted(set(hook.operations))}
    assert counted == {"CREATE but": 1, "CREATE none": 1, "CREATE worn": 2, "UPDATE none": 2, "UPDATE worn": 2}


async def case_namespace_selector(api: Api) -> None:
    here, other_namespace = WebhookStub(), WebhookStub()
    name = "kubernetes.io/metadata.name"
    other = {
        "matchExpressions": [
            {"key": name, "operator": "NotIn", "values": [api.namespace]},
            {"key": "x", "operator": "Exists"},
        ]
    }
    config = await api.serve_webhook(other_namespace)
    async with (
        served_webhook(api, here),
        installed_configuration(api, webhook_manifest(api, config, "b", namespaceSelector=other), name="b"),
    ):
        (await api.create("configmaps", config_map("x"))).expect_success()
    assert (here.operations, other_namespace.operations) == (["CREATE x"], [])


async def case_namespace_selector_of_a_namespace(api: Api) -> None:
    hook = WebhookStub()
    rules = [_rule_with(resources=["namespaces"]), _rule_with(resources=["configmaps"])]
    async with served_webhook(api, hook, rules=rules):
        path = f"/api/v1/namespaces/{api.namespace}"
        labels = {"metadata": {"labels": {"a": "b"}}}
        (await api.call("PATCH", path, labels, {}, "application/merge-patch+json")).expect_success()
    (request,) = hook.requests
    assert (request["name"], request["namespace"]) == (api.namespace, api.namespace)


async def case_match_conditions(api: Api) -> None:
    conditions = [
        {"name": "mine", "expression": "request.userInfo.username == 'jane'"},
        {"name": "has-data", "expression": "has(object.data)"},
        {
            "name": "probe-or-named",
            "expression": "object.metadata.name.startsWith('x') || request.operation == 'DELETE'",
        },
    ]
    hook = WebhookStub()
    config = await api.serve_webhook(hook)
    jane = api.as_user("jane", "system:masters")
    specs = webhook_manifest(api, config), webhook_manifest(api, config, "b", matchConditions=conditions)
    async with installed_configuration(api, *specs):
        await wait_until_served(api, hook)
        (await jane.create("configmaps", config_map("x", {"k": "v"}))).expect_success()
        (await jane.create("configmaps", config_map("y", {"k": "v"}))).expect_success()
        (await jane.create("configmaps", config_map("xx"))).expect_success()
        (await api.create("configmaps", config_map("xy", {"k": "v"}))).expect_success()
    counted = {name: hook.operations.count(name) for name in sorted(set(hook.operations))}
    assert counted == {"CREATE x": 2, "CREATE xx": 1, "CREATE xy": 1, "CREATE y": 1}


async def case_failing_match_condition(api: Api) -> None:
    broken = [{"name": "broken", "expression": "object.data.missing == 'x'"}]
    hook, strict, lax = WebhookStub(), WebhookStub(), WebhookStub()
    specs = [
        webhook_manifest(api, await api.serve_webhook(hook), "a", rules=[_rule_with(resources=["configmaps"])]),
        webhook_manifest(
            api,
            await api.serve_webhook(strict),
            "b",
            matchConditions=broken,
            rules=[_rule_with(resources=["secrets"])],
        ),
        webhook_manifest(
            api,
            await api.serve_webhook(lax),
            "c",
            matchConditions=broken,
            rules=[_rule_with(resources=["services"])],
            failurePolicy="Ignore",
        ),
    ]
    async with installed_configuration(api, *specs):
        await wait_until_served(api, hook)
        rejected = await api.create("secrets", {"metadata": {"name": "s"}, "data": {"a": "Yg=="}})
        (await api.create("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})).expect_success()
    rejected.expect_error(403, "Forbidden")
    assert rejected.message == (
        "secrets \"s\" is forbidden: expression 'object.data.missing == 'x'' resulted in error: no such key: missing"
    )
    assert strict.requests == lax.requests == []


async def case_webhook_configurations_are_exempt(api: Api) -> None:
    hook = WebhookStub()
    async with (
        served_webhook(
            api,
            hook,
            namespaceSelector={},
            rules=[
                MATCH_ALL_RULE | {"apiGroups": ["admissionregistration.k8s.io"]},
                _rule_with(apiGroups=[""], resources=["configmaps"]),
            ],
        ),
        installed_configuration(
            api,
            webhook_manifest(api, {"url": "https://127.0.0.1:1/"}, "b", rules=[_rule_with(resources=["none"])]),
            name="b",
        ),
    ):
        pass
    assert hook.operations == []


async def case_order_of_mutating_webhooks(api: Api) -> None:
    order: list[str] = []

    def noted(name: str) -> WebhookStub:
        def response(_: Json) -> Json:
            order.append(name)
            return allow_response()

        return WebhookStub(response)

    first, second, third = noted("b.2"), noted("b.1"), noted("a")
    specs = [webhook_manifest(api, await api.serve_webhook(h), n) for h, n in ((second, "b1"), (first, "b2"))]
    async with (
        installed_configuration(api, *specs, mutating=True, name="b"),
        served_webhook(api, third, mutating=True, name="a"),
    ):
        for hook in (first, second):
            await wait_until_served(api, hook)
        (await api.create("configmaps", config_map("x"))).expect_success()
    # The order is by name of the configuration and position in it.
    assert order == ["a", "b.1", "b.2"]


async def case_webhooks_see_previous_mutations(api: Api) -> None:
    add = patch_response({"op": "add", "path": "/data", "value": {"first": "1"}})
    more = patch_response({"op": "add", "path": "/data/second", "value": "2"})
    first, second, last = WebhookStub(lambda _: add), WebhookStub(lambda _: more), WebhookStub()
    async with (
        served_webhook(api, first, mutating=True),
        served_webhook(api, second, mutating=True, name="b"),
        served_webhook(api, last, name="c"),
    ):
        created = (await api.create("configmaps", config_map("x"))).expect_success()
    assert "data" not in first.requests[0]["object"]
    assert second.requests[0]["object"]["data"] == {"first": "1"}
    assert created.body["data"] == last.requests[0]["object"]["data"] == {"first": "1", "second": "2"}
    assert len(first.requests) == len(second.requests) == 1


async def case_reinvocation(api: Api) -> None:
    def label(_: Json) -> Json:
        return patch_response({"op": "add", "path": "/metadata/labels", "value": {"a": "b"}})

    again, once, change = WebhookStub(), WebhookStub(), WebhookStub(label)
    async with (
        served_webhook(api, again, mutating=True, name="a", reinvocationPolicy="IfNeeded"),
        served_webhook(api, once, mutating=True, name="b"),
        served_webhook(api, change, mutating=True, name="c", reinvocationPolicy="IfNeeded"),
    ):
        (await api.create("configmaps", config_map("x"))).expect_success()
    assert [len(h.requests) for h in (again, once, change)] == [2, 1, 1]
    assert [r["object"]["metadata"].get("labels") for r in again.requests] == [None, {"a": "b"}]
    assert again.requests[0]["uid"] != again.requests[1]["uid"]
