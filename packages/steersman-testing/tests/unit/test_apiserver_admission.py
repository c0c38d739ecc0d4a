"""Admission webhooks in cases that a real server cannot reproduce."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from apiserver_cases.api import Api, ApiResponse, Json, config_map
from apiserver_cases.backends import InMemoryBackend, RealBackend
from apiserver_cases.hooks import (
    WebhookStub,
    deny_response,
    installed_configuration,
    patch_response,
    served_webhook,
    webhook_manifest,
)
from apiserver_cases.hooks import allow_response as allowing
from steersman.api.core_v1 import ConfigMap
from steersman.client import ClusterConfig, HttpRequest, connect
from steersman.errors import ConnectionFailed
from steersman.meta import ApiResource, ObjectKey
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.serving import serve

KEY = ObjectKey("case", "a")


def new_api() -> tuple[InMemoryApiServer, Api]:
    server = InMemoryApiServer(virtual_runtime())
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    return server, Api(server, "case", InMemoryBackend(server))


def assert_not_implemented(reply: ApiResponse, text: str) -> None:
    reply.expect_error(501, "NotImplemented", f"the in-memory API server does not implement this: {text}")


@virtual_time
async def test_webhook_timeout_is_enforced() -> None:
    server, api = new_api()

    def after(seconds: float) -> Callable[[Json], Awaitable[Json]]:
        async def answer(review: Json) -> Json:
            await asyncio.sleep(seconds)
            return await WebhookStub()(review)

        return answer

    clock = server.runtime.clock
    for seconds, code, taken in ((9, 201, 9), (11, 500, 10)):
        config = await api.serve_webhook(after(seconds))
        async with installed_configuration(api, webhook_manifest(api, config)):
            begin = clock.monotonic()
            assert (await api.create("configmaps", config_map(f"x{seconds}"))).code == code
            assert clock.monotonic() - begin == pytest.approx(taken)


@virtual_time
async def test_validating_webhooks_run_parallel_mutating_in_order() -> None:
    server, api = new_api()
    clock = server.runtime.clock

    async def slow(review: Json) -> Json:
        await asyncio.sleep(5)
        return await WebhookStub()(review)

    for mutating, taken in ((False, 5), (True, 10)):
        config = await api.serve_webhook(slow)
        async with installed_configuration(
            api, webhook_manifest(api, config, "a"), webhook_manifest(api, config, "b"), mutating=mutating
        ):
            begin = clock.monotonic()
            (await api.create("configmaps", config_map(f"x{mutating}".lower()))).expect_success()
            assert clock.monotonic() - begin == pytest.approx(taken)


@virtual_time
async def test_first_denial_is_returned() -> None:
    _, api = new_api()

    def refusing(text: str, seconds: float) -> Callable[[Json], Awaitable[Json]]:
        async def answer(review: Json) -> Json:
            await asyncio.sleep(seconds)
            return await WebhookStub(lambda _: deny_response(text))(review)

        return answer

    late, early = await api.serve_webhook(refusing("late", 2)), await api.serve_webhook(refusing("early", 1))
    async with installed_configuration(api, webhook_manifest(api, late, "a"), webhook_manifest(api, early, "b")):
        assert (await api.create("configmaps", config_map("x"))).message.endswith("denied the request: early")


@virtual_time
async def test_concurrent_change_repeats_webhook_call() -> None:
    _, api = new_api()
    (await api.create("configmaps", config_map("a", {"k": "1"}))).expect_success()
    called: list[str] = []

    async def meddling(review: Json) -> Json:
        called.append(review["request"]["oldObject"]["data"]["k"])
        if len(called) == 1:
            await other()
        return await WebhookStub()(review)

    async def other() -> None:
        # Meanwhile another client writes without a webhook call, because the webhook selects updates of the label w
        # only.
        (await api.merge("configmaps", "a", {"data": {"k": "2"}})).expect_success()

    config = await api.serve_webhook(meddling)
    conditions = [{"name": "mine", "expression": "'w' in object.data"}]
    async with installed_configuration(api, webhook_manifest(api, config, matchConditions=conditions)):
        changed = (await api.merge("configmaps", "a", {"data": {"w": "1"}})).expect_success()
    assert called == ["1", "2"]
    assert changed.body["data"] == {"k": "2", "w": "1"}


@virtual_time
async def test_object_is_stored_after_webhook_response() -> None:
    server, api = new_api()
    seen: list[ConfigMap | None] = []

    async def looking(review: Json) -> Json:
        seen.append(server.read(ConfigMap, KEY))
        return await WebhookStub()(review)

    config = await api.serve_webhook(looking)
    async with installed_configuration(api, webhook_manifest(api, config)):
        (await api.create("configmaps", config_map("a"))).expect_success()
    assert seen == [None]
    assert server.read(ConfigMap, KEY) is not None


@virtual_time
async def test_webhook_review_mutation_has_no_effect() -> None:
    _, api = new_api()

    async def scribbling(review: Json) -> Json:
        answer = await WebhookStub()(review)
        review["request"]["object"]["data"]["k"] = "scribbled"
        return answer

    config = await api.serve_webhook(scribbling)
    async with installed_configuration(api, webhook_manifest(api, config)):
        assert (await api.create("configmaps", config_map("a", {"k": "v"}))).expect_success().body["data"] == {
            "k": "v"
        }


@virtual_time
async def test_unreachable_or_unregistered_webhook_follows_policy() -> None:
    server, api = new_api()

    async def deleted(_: Json) -> Json:
        raise ConnectionFailed("gone")

    server.serve_webhook("https://gone.case.svc:443/", deleted)
    for config, text in (
        (
            {"service": {"name": "gone", "namespace": "case"}},
            "dial tcp gone.case.svc:443: connect: connection refused",
        ),
        ({"service": {"name": "none", "namespace": "case"}}, 'service "none" not found'),
        ({"url": "https://example.com/"}, "dial tcp example.com:443: connect: connection refused"),
    ):
        async with installed_configuration(api, webhook_manifest(api, config)):
            (await api.create("configmaps", config_map("x"))).expect_error(500, "InternalError", text)
        async with installed_configuration(api, webhook_manifest(api, config, failurePolicy="Ignore")):
            (await api.create("configmaps", config_map("x"), dryRun="All")).expect_success()


@virtual_time
async def test_unexpected_handler_error_fails_the_test() -> None:
    _, api = new_api()

    async def broken(_: Json) -> Json:
        raise ZeroDivisionError

    config = await api.serve_webhook(broken)
    async with installed_configuration(api, webhook_manifest(api, config)):
        with pytest.raises(ZeroDivisionError):
            await api.create("configmaps", config_map("x"))


def test_loaded_manifest_calls_webhook_if_synchronous() -> None:
    server = InMemoryApiServer(virtual_runtime())
    configuration = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "a"},
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://example.com/"},
                "rules": [
                    {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
                ],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    }
    server.load(configuration)
    with pytest.raises(RuntimeError, match="it has no handler"):
        server.load(new_config_map())
    server.serve_webhook(
        "https://example.com/", WebhookStub(lambda _: patch_response({"op": "add", "path": "/data", "value": {}}))
    )
    server.load(new_config_map())

    async def waiting(_: Json) -> Json:
        await asyncio.sleep(0)
        raise AssertionError("the handler must not be resumed")

    server.serve_webhook("https://example.com/", waiting)
    with pytest.raises(RuntimeError, match="its handler waits"):
        server.load(new_config_map("b"))
    assert server.read(ConfigMap, ObjectKey("default", "a")) is not None
    assert server.read(ConfigMap, ObjectKey("default", "b")) is None


def new_config_map(name: str = "a") -> Json:
    return {"apiVersion": "v1", **config_map(name)}


async def with_a_dependent(api: Api, owner: str = "owner", name: str = "a") -> None:
    created = (await api.create("configmaps", config_map(owner))).expect_success()
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": created.metadata["uid"]}
    (await api.create("configmaps", config_map(name, ownerReferences=[reference]))).expect_success()


@virtual_time
async def test_garbage_collection_calls_webhooks_and_retries() -> None:
    server, api = new_api()
    await with_a_dependent(api)
    hook = WebhookStub(lambda r: deny_response() if r["name"] == "a" else allowing(warnings=["careful"]))
    async with served_webhook(api, hook):
        (await api.delete("configmaps", "owner")).expect_success()
        assert hook.operations[:2] == ["DELETE owner", "DELETE a"]
        question = hook.requests[1]
        dependent = (await api.get("configmaps", "a")).expect_success()
        assert question["userInfo"]["username"] == "system:serviceaccount:kube-system:generic-garbage-collector"
        assert "system:serviceaccounts:kube-system" in question["userInfo"]["groups"]
        assert question["oldObject"]["metadata"]["uid"] == dependent.metadata["uid"]
        assert question["options"] == {
            "kind": "DeleteOptions",
            "apiVersion": "meta.k8s.io/v1",
            "preconditions": {"uid": dependent.metadata["uid"], "resourceVersion": dependent.resource_version},
            "propagationPolicy": "Background",
        }
    # The webhook no longer blocks it, because its configuration was deleted.
    assert server.read(ConfigMap, KEY) is None


@virtual_time
async def test_namespace_deletion_calls_webhooks_for_content() -> None:
    server, api = new_api()
    for name in ("a", "b"):
        (await api.create("configmaps", config_map(name))).expect_success()
    (await api.create("secrets", {"metadata": {"name": "s"}})).expect_success()
    hook = WebhookStub(lambda r: deny_response() if r["oldObject"]["kind"] == "ConfigMap" else allowing())
    config = await api.serve_webhook(hook)
    rules = [
        {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps", "secrets"]}
    ]
    async with installed_configuration(api, webhook_manifest(api, config, rules=rules)):
        (await api.call("DELETE", f"/api/v1/namespaces/{api.namespace}")).expect_success()
        assert server.read(ConfigMap, KEY) is not None
        assert {r["userInfo"]["username"] for r in hook.requests} == {
            "system:serviceaccount:kube-system:namespace-controller"
        }
        # The first rejection ends the deletion of a collection.
        assert [r["oldObject"]["metadata"]["name"] for r in hook.requests[:2]] == ["a", "s"]
        assert [s["metadata"]["name"] for s in server.manifests() if s["metadata"].get("namespace") == "case"] == [
            "a",
            "b",
        ]
    assert server.manifest(ApiResource("", "v1", "Namespace", "namespaces", False), ObjectKey("", "case")) is None


@virtual_time
async def test_unsupported_webhook_requests_are_rejected() -> None:
    _, api = new_api()
    (await api.create("serviceaccounts", {"metadata": {"name": "bot"}})).expect_success()
    access = "/apis/authorization.k8s.io/v1/namespaces/case/localsubjectaccessreviews"
    spec = {"user": "x", "resourceAttributes": {"namespace": "case", "verb": "get"}}
    calls: list[tuple[str, Any, str]] = [
        (api.path("serviceaccounts", "bot", "token"), {"spec": {}}, "serviceaccounts/token"),
        (access, {"spec": spec}, "localsubjectaccessreviews"),
    ]
    hook = WebhookStub()
    async with served_webhook(api, hook) as name:
        for path, body, about in calls:
            assert_not_implemented(
                await api.call("POST", path, body), f'calling the admission webhook "{name}" for {about}'
            )
    for path, body, _ in calls:
        (await api.call("POST", path, body)).expect_success()
    assert hook.requests == []


@virtual_time
async def test_unsupported_configurations_return_501() -> None:
    _, api = new_api()
    config = {"url": "https://example.com/"}
    conditions = [{"name": "a", "expression": "authorizer.group('').resource('pods').check('get').allowed()"}]
    denials: list[tuple[dict[str, Any], str]] = [
        ({"admissionReviewVersions": ["v1beta1"]}, 'the webhook "a.case.dev" without AdmissionReview v1'),
        ({"matchConditions": conditions}, "the variable authorizer of the match condition"),
    ]
    for fields, text in denials:
        with pytest.raises(AssertionError, match=text):
            async with installed_configuration(api, webhook_manifest(api, config, **fields)):
                pass


@pytest.mark.parametrize("family", ["validating", "mutating"])
@pytest.mark.parametrize("noun", ["admissionpolicies", "admissionpolicybindings"])
@virtual_time
async def test_admission_policies_are_rejected(family: str, noun: str) -> None:
    _, api = new_api()
    path = f"/apis/admissionregistration.k8s.io/v1/{family}{noun}"
    for method in ("GET", "POST"):
        assert_not_implemented(
            await api.call(method, path, {"metadata": {"name": "a"}}), f"admission policies ({family}{noun}"
        )


async def test_webhook_is_called_over_https_on_real_loop() -> None:
    server = InMemoryApiServer()
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    async with AsyncExitStack() as stack:
        api = Api(server, "case", RealBackend(ClusterConfig(server="http://127.0.0.1:1"), stack))
        hook = WebhookStub(lambda _: patch_response({"op": "add", "path": "/data", "value": {"k": "v"}}))
        async with served_webhook(api, hook, mutating=True):
            created = (await api.create("configmaps", config_map("a"))).expect_success()
        assert created.body["data"] == {"k": "v"}
        # A certificate other than that of the configuration is not trusted.
        config = await api.serve_webhook(hook)
        stranger = await api.serve_webhook(hook)
        async with installed_configuration(api, webhook_manifest(api, {**config, "caBundle": stranger["caBundle"]})):
            (await api.create("configmaps", config_map("b"))).expect_error(
                500, "InternalError", "failed to call webhook: "
            )
        hook.respond = lambda _: deny_response("no")
        async with served_webhook(api, hook, name="c"):
            rejected = await api.create("configmaps", config_map("b"))
        assert rejected.message.endswith("denied the request: no")


async def test_webhook_warnings_are_sent_as_headers() -> None:
    server = InMemoryApiServer()
    server.load({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "case"}})
    texts = ["careful", 'a "quoted" one, and a \\', "größer"]
    async with serve(server) as endpoint, connect(ClusterConfig(server=endpoint.url)) as transport:
        api = Api(server, "case", InMemoryBackend(server))
        async with served_webhook(api, WebhookStub(lambda _: allowing(warnings=texts))):
            body = json.dumps(config_map("x")).encode()
            response = await transport.request(HttpRequest(method="POST", path=api.path("configmaps"), body=body))
    assert response.warnings == tuple(texts)
