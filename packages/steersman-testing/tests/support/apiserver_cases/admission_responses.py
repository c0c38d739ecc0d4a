"""Effects of the responses of admission webhooks."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget
from apiserver_cases.backends import UNREACHABLE_URL
from apiserver_cases.hooks import (
    MATCH_ALL_RULE,
    PATH,
    WebhookStub,
    allow_response,
    deny_response,
    installed_configuration,
    patch_response,
    served_webhook,
    wait_until_removed,
    wait_until_served,
    webhook_manifest,
)
from steersman.client import HttpRequest


def _internal_error_status(text: str) -> Json:
    """Return a Status for an internal error."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {text}",
        "reason": "InternalError",
        "details": {"causes": [{"message": text}]},
        "code": 500,
    }


async def _create_with_hook(api: Api, response: Json, *, mutating: bool = False) -> tuple[Json, str]:
    """Create a ConfigMap while a webhook responds ``response``.

    Returns the response of the server and the name of the webhook.
    """
    hook = WebhookStub(lambda _: response)
    async with served_webhook(api, hook, mutating=mutating) as name:
        created = await api.create("configmaps", config_map("x", {"k": "v"}))
    assert hook.requests
    return created.body, name


async def case_denials(api: Api) -> None:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    full = {"reason": "Conflict", "code": 409, "details": {"name": "x", "kind": "y"}}
    responses: list[tuple[Json, str, Json]] = [
        ({"allowed": False}, "denied the request without explanation", {"code": 400}),
        (deny_response("no way"), "denied the request: no way", {"code": 400}),
        ({"allowed": False, "status": {"reason": "Sad"}}, "denied the request: Sad", {"reason": "Sad", "code": 400}),
        (deny_response("no", **full), "denied the request: no", full),
        (deny_response("no", code=200), "denied the request: no", {"code": 400}),
        (deny_response("no", code=422), "denied the request: no", {"code": 422}),
        (deny_response("no", status="Success"), "denied the request: no", {"code": 400}),
    ]
    hook = WebhookStub()
    for mutating in (False, True):
        async with served_webhook(api, hook, mutating=mutating, name=f"a{mutating}".lower()) as name:
            for response, text, more in responses:
                hook.respond = lambda _, response=response: response
                made = await api.create("configmaps", config_map("x"))
                assert made.body == status | {"message": f'admission webhook "{name}" {text}'} | more
    (await api.get("configmaps", "x")).expect_error(404, "NotFound")


async def case_denied_update(api: Api) -> None:
    (await api.create("configmaps", config_map("x", {"k": "v"}))).expect_success()
    async with served_webhook(api, WebhookStub(lambda _: deny_response("stay"))):
        assert (await api.merge("configmaps", "x", {"data": {"k": "w"}})).code == 400
        assert (await api.delete("configmaps", "x")).code == 400
        assert (await api.call("DELETE", api.path("configmaps"))).code == 400
    assert (await api.get("configmaps", "x")).expect_success().body["data"] == {"k": "v"}


async def case_mutation(api: Api) -> None:
    operations = [
        {"op": "add", "path": "/data/added", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "w"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    body, _ = await _create_with_hook(api, patch_response(*operations), mutating=True)
    assert body["data"] == {"k": "w", "added": "1"}
    assert body["metadata"]["labels"] == {"a": "b"}
    # Fields that a webhook adds have no manager.
    (entry,) = body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


async def case_mutated_update(api: Api) -> None:
    (await api.create("configmaps", config_map("x", {"k": "v"}))).expect_success()
    async with served_webhook(
        api, WebhookStub(lambda _: patch_response({"op": "add", "path": "/data/z", "value": "1"})), mutating=True
    ):
        changed = (await api.merge("configmaps", "x", {"data": {"k": "w"}})).expect_success()
        same = (await api.merge("configmaps", "x", {"data": {"k": "w"}})).expect_success()
    assert changed.body["data"] == {"k": "w", "z": "1"}
    assert same.resource_version == changed.resource_version


async def case_mutation_is_validated(api: Api) -> None:
    hook = WebhookStub(lambda _: patch_response({"op": "replace", "path": "/spec/size", "value": 5000}))
    async with served_webhook(api, hook, mutating=True):
        (await api.create("widgets", widget("w"))).expect_error(
            422, "Invalid", "spec.size in body should be less than"
        )


async def case_mutation_makes_object_valid(api: Api) -> None:
    hook = WebhookStub(lambda _: patch_response({"op": "replace", "path": "/spec/size", "value": 50}))
    async with served_webhook(api, hook, mutating=True):
        made = (await api.create("widgets", widget("w", {"size": 5000}))).expect_success()
    assert made.body["spec"]["size"] == 50


async def case_mutation_is_pruned_and_defaulted(api: Api) -> None:
    spec = {"size": 2, "unknown": 1, "parts": [{"name": "a"}]}
    hook = WebhookStub(lambda _: patch_response({"op": "replace", "path": "/spec", "value": spec}))
    async with served_webhook(api, hook, mutating=True):
        made = (await api.create("widgets", widget("w"))).expect_success()
    expected = {"size": 2, "mode": "safe", "rollout": {"pace": "slow"}, "parts": [{"name": "a", "weight": 1}]}
    assert made.body["spec"] == expected


async def case_empty_patch(api: Api) -> None:
    for response in (
        patch_response(),
        {"allowed": True, "patchType": "Merge", "patch": base64.b64encode(b"[]").decode()},
    ):
        body, _ = await _create_with_hook(api, response, mutating=True)
        assert body["data"] == {"k": "v"}
        (await api.delete("configmaps", "x")).expect_success()


async def case_inapplicable_patches(api: Api) -> None:
    missing = "Unable to remove nonexistent key: none: missing value"
    responses: list[tuple[Json, str]] = [
        ({"op": "remove", "path": "/none"}, f"error in remove for path: '/none': {missing}"),
        ({"op": "test", "path": "/metadata/name", "value": "y"}, "testing value /metadata/name failed: test failed"),
    ]
    hook = WebhookStub()
    async with served_webhook(api, hook, mutating=True):
        for operation, text in responses:
            hook.respond = lambda _, operation=operation: patch_response(operation)
            assert (await api.create("configmaps", config_map("x"))).body == _internal_error_status(text)


async def case_mutated_kind(api: Api) -> None:
    hook = WebhookStub(lambda _: patch_response({"op": "replace", "path": "/kind", "value": "Secret"}))
    async with served_webhook(api, hook, mutating=True):
        rejected = await api.create("configmaps", config_map("x"))
    text = "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    assert (rejected.code, rejected.message) == (500, text), rejected.body


async def case_mutated_namespace(api: Api) -> None:
    operation = {"op": "replace", "path": "/metadata/namespace", "value": "default"}
    body, _ = await _create_with_hook(api, patch_response(operation), mutating=True)
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert (body["code"], body["message"]) == (400, text)


async def case_mutated_name(api: Api) -> None:
    body, _ = await _create_with_hook(
        api, patch_response({"op": "replace", "path": "/metadata/name", "value": "other"}), mutating=True
    )
    assert body["metadata"]["name"] == "other"
    (await api.get("configmaps", "other")).expect_success()


async def case_mutated_deletion(api: Api) -> None:
    (await api.create("configmaps", config_map("x"))).expect_success()
    async with served_webhook(
        api, WebhookStub(lambda _: patch_response({"op": "add", "path": "/data", "value": {}})), mutating=True
    ) as name:
        rejected = await api.delete("configmaps", "x")
    because = "attempted to modify the object, which is not supported for this operation"
    assert rejected.body == _internal_error_status(f'admission webhook "{name}" {because}')


async def case_malformed_responses(api: Api) -> None:
    patch = base64.b64encode(b"[]").decode()
    names = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    wanted = "admission.k8s.io/v1, Kind=AdmissionReview"
    common: list[tuple[Json, str]] = [
        ({"whole": names}, "webhook response was absent"),
        (allow_response(uid="x"), 'expected response.uid="{uid}", got "x"'),
    ]
    validating = [
        *common,
        (allow_response(patch=patch), "validating webhook may not return response.patch"),
        (allow_response(patchType="JSONPatch"), "validating webhook may not return response.patchType"),
    ]
    mutating = [
        *common,
        (allow_response(patch=patch), "webhook returned response.patch but not response.patchType"),
        (allow_response(patchType="JSONPatch"), "webhook returned response.patchType but not response.patch"),
    ]
    for kind, responses in (("mutating", mutating), ("validating", validating)):
        hook = WebhookStub()
        async with served_webhook(api, hook, mutating=kind == "mutating", name=kind) as name:
            for response, text in responses:
                hook.respond = lambda _, response=response: response
                made = await api.create("configmaps", config_map("x"))
                problem = text.replace("{uid}", hook.requests[-1]["uid"])
                expected = f'failed calling webhook "{name}": received invalid webhook response: {problem}'
                assert made.body == _internal_error_status(expected)

            def bare(request: Json) -> Json:
                return {"whole": {"response": {"uid": request["uid"], "allowed": True}}}

            hook.respond = bare
            made = await api.create("configmaps", config_map("x"))
            problem = f"received invalid webhook response: expected webhook response of {wanted}, got /, Kind="
            assert made.body == _internal_error_status(f'failed calling webhook "{name}": {problem}')


async def case_malformed_patch(api: Api) -> None:
    response = allow_response(patchType="JSONPatch", patch=base64.b64encode(b"{").decode())
    body, name = await _create_with_hook(api, response, mutating=True)
    text = "received undecodable patch in webhook response: unexpected end of JSON input"
    assert body == _internal_error_status(f'failed calling webhook "{name}": {text}')


async def case_malformed_response_is_ignored(api: Api) -> None:
    for mutating in (False, True):
        hook = WebhookStub(lambda _: allow_response(uid="x"))
        async with served_webhook(api, hook, mutating=mutating, failurePolicy="Ignore"):
            (await api.create("configmaps", config_map("x"))).expect_success()
        assert hook.requests
        (await api.delete("configmaps", "x")).expect_success()


async def case_denial_is_not_ignored(api: Api) -> None:
    async with served_webhook(api, WebhookStub(lambda _: deny_response("no")), failurePolicy="Ignore"):
        assert (await api.create("configmaps", config_map("x"))).code == 400


async def case_unreachable_webhook(api: Api) -> None:
    """Unreachable webhooks fail the request unless they are ignored.

    Ignored ones are tested first, because the real server may load several configurations at once.
    """
    hook = WebhookStub()
    rules = [MATCH_ALL_RULE | {"resources": ["secrets"]}]
    strict = webhook_manifest(api, {"url": UNREACHABLE_URL}, "b", rules=rules)
    lax = webhook_manifest(
        api, {"url": UNREACHABLE_URL}, "c", rules=[_rule_with(resources=["services"])], failurePolicy="Ignore"
    )
    config = await api.serve_webhook(hook)
    for mutating in (False, True):
        async with installed_configuration(api, webhook_manifest(api, config), strict, lax, mutating=mutating):
            await wait_until_served(api, hook)
            rejected = await api.create("secrets", {"metadata": {"name": "s"}})
            service = {"metadata": {"generateName": "s-"}, "spec": {"ports": [{"port": 1}]}}
            (await api.create("services", service)).expect_success()
        call = 'Post "https://127.0.0.1:1/review?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
        text = f'failed calling webhook "{strict["name"]}": failed to call webhook: {call}'
        assert rejected.body == _internal_error_status(text)
        await wait_until_removed(api, hook)


async def case_webhook_timeout(api: Api) -> None:
    never = asyncio.Event()
    specs: list[Json] = []
    for name, resources, policy in (("b", "secrets", "Fail"), ("c", "services", "Ignore")):
        hook = WebhookStub(gate=never)
        config = await api.serve_webhook(hook)
        rules = [MATCH_ALL_RULE | {"resources": [resources]}]
        specs.append(webhook_manifest(api, config, name, rules=rules, timeoutSeconds=1, failurePolicy=policy))
    ready = WebhookStub()
    async with installed_configuration(api, webhook_manifest(api, await api.serve_webhook(ready)), *specs):
        await wait_until_served(api, ready)
        rejected = await api.create("secrets", {"metadata": {"name": "s"}})
        (await api.create("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})).expect_success()
    call = f'Post "{specs[0]["clientConfig"]["url"]}?timeout=1s": context deadline exceeded'
    assert rejected.body == _internal_error_status(
        f'failed calling webhook "{specs[0]["name"]}": failed to call webhook: {call}'
    )


async def case_scale_is_mutated_and_denied(api: Api) -> None:
    (await api.create("deployments", deployment("d"))).expect_success()
    scale: Json = {"spec": {"replicas": 3}}
    async with served_webhook(api, WebhookStub(lambda _: deny_response("enough"))):
        assert (await api.merge("deployments", "d", scale, "scale")).code == 400
    assert (await api.get("deployments", "d")).body["spec"]["replicas"] == 1
    fewer = patch_response({"op": "replace", "path": "/spec/replicas", "value": 2})
    async with served_webhook(api, WebhookStub(lambda _: fewer), mutating=True):
        (await api.merge("deployments", "d", scale, "scale")).expect_success()
    assert (await api.get("deployments", "d")).body["spec"]["replicas"] == 2


async def case_eviction_is_denied(api: Api) -> None:
    pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.create("pods", pod)).expect_success()
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with served_webhook(api, WebhookStub(lambda _: deny_response("stay"))) as name:
        rejected = await api.call("POST", api.path("pods", "p", "eviction"), body)
    assert (rejected.code, rejected.message) == (400, f'admission webhook "{name}" denied the request: stay')
    (await api.get("pods", "p")).expect_success()


async def case_missing_service(api: Api) -> None:
    hook = WebhookStub()
    service = {"service": {"name": "gone", "namespace": api.namespace, "path": "/review"}}
    spec = webhook_manifest(api, service, "b", rules=[MATCH_ALL_RULE | {"resources": ["secrets"]}], timeoutSeconds=3)
    config = await api.serve_webhook(hook)
    async with installed_configuration(api, webhook_manifest(api, config), spec):
        await wait_until_served(api, hook)
        rejected = await api.create("secrets", {"metadata": {"name": "s"}})
    call = f'Post "https://gone.{api.namespace}.svc:443/review?timeout=3s": service "gone" not found'
    assert rejected.body == _internal_error_status(
        f'failed calling webhook "{spec["name"]}": failed to call webhook: {call}'
    )


async def case_warnings(api: Api) -> None:
    response = allow_response(warnings=["careful", 'a "quoted" one', "careful"], auditAnnotations={"a": "b"})
    async with served_webhook(api, WebhookStub(lambda _: response)):
        body = json.dumps(config_map("x")).encode()
        request = HttpRequest(method="POST", path=api.path("configmaps"), body=body)
        assert (await api.transport.request(request)).warnings == ("careful", 'a "quoted" one')
    async with served_webhook(api, WebhookStub(lambda _: {**response, "allowed": False}), name="b"):
        rejected = await api.transport.request(request)
        assert (rejected.status, rejected.warnings) == (400, ("careful", 'a "quoted" one'))


async def case_configuration_defaults(api: Api) -> None:
    spec: Json = {
        "name": f"a.{api.namespace}.dev",
        "clientConfig": {"service": {"name": "s", "namespace": api.namespace}},
        "rules": [{"operations": ["CREATE"], "apiGroups": ["x.dev"], "apiVersions": ["v1"], "resources": ["xs"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    for plural, more in (("mutating", {"reinvocationPolicy": "Never"}), ("validating", {})):
        path = f"{PATH}/{plural}webhookconfigurations"
        body: Json = {"metadata": {"name": f"a-{api.namespace}"}, "webhooks": [spec]}
        made = (await api.call("POST", path, body, {"dryRun": "All"})).expect_success()
        (found,) = made.body["webhooks"]
        body["webhooks"] = [spec | {"namespaceSelector": None, "timeoutSeconds": None}]
        assert (await api.call("POST", path, body, {"dryRun": "All"})).expect_success().body["webhooks"] == [found]
        assert found == spec | more | {
            "clientConfig": {"service": {"name": "s", "namespace": api.namespace, "port": 443}},
            "rules": [spec["rules"][0] | {"scope": "*"}],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
        }


def _rule_with(**fields: Any) -> Json:
    return MATCH_ALL_RULE | fields


async def case_malformed_configurations(api: Api) -> None:
    config = {"url": "https://127.0.0.1:1/"}
    good = webhook_manifest(api, config)
    broken: list[tuple[dict[str, Any], str]] = [
        ({"sideEffects": "Some"}, 'sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"'),
        ({"sideEffects": None}, "sideEffects: Required value: must specify one of None, NoneOnDryRun"),
        (
            {"timeoutSeconds": 31},
            "timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds",
        ),
        (
            {"name": "a"},
            'name: Invalid value: "a": should be a domain with at least three segments separated by dots',
        ),
        ({"admissionReviewVersions": []}, "admissionReviewVersions: Required value: must specify one of v1, v1beta1"),
        ({"clientConfig": {}}, "clientConfig: Required value: exactly one of url or service is required"),
        (
            {"clientConfig": {"url": "http://127.0.0.1:1/"}},
            (
                "clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme; "
                "desired format: https://host[/path]"
            ),
        ),
        (
            {"clientConfig": {"service": {"name": "", "namespace": "x"}}},
            "clientConfig.service.namespace: Required value",
        ),
        (
            {"clientConfig": {"service": {"name": "x", "namespace": "x", "path": "yes"}}},
            "clientConfig.service.path: Invalid value: \"yes\": must start with a '/'",
        ),
        ({"failurePolicy": "X"}, 'failurePolicy: Unsupported value: "X": supported values: "Fail", "Ignore"'),
        ({"matchPolicy": "X"}, 'matchPolicy: Unsupported value: "X": supported values: "Equivalent", "Exact"'),
        ({"rules": [_rule_with(operations=[])]}, "rules[0].operations: Required value"),
        (
            {"rules": [_rule_with(operations=["MOVE"])]},
            (
                'rules[0].operations[0]: Unsupported value: "MOVE": supported values: "*", "CONNECT", "CREATE", '
                '"DELETE", "UPDATE"'
            ),
        ),
        (
            {"rules": [_rule_with(operations=["*", "CREATE"])]},
            (
                'rules[0].operations: Invalid value: ["*","CREATE"]: '
                "if '*' is present, must not specify other operations"
            ),
        ),
        ({"rules": [_rule_with(apiGroups=[])]}, "rules[0].apiGroups: Required value"),
        (
            {"rules": [_rule_with(apiVersions=["*", "v1"])]},
            (
                'rules[0].apiVersions: Invalid value: ["*","v1"]: '
                "if '*' is present, must not specify other API versions"
            ),
        ),
        ({"rules": [_rule_with(resources=[])]}, "rules[0].resources: Required value"),
        (
            {"rules": [_rule_with(scope="Here")]},
            'rules[0].scope: Unsupported value: "Here": supported values: "*", "Cluster", "Namespaced"',
        ),
        ({"matchConditions": [{"name": "a"}]}, "matchConditions[0].expression: Required value"),
        ({"matchConditions": [{"expression": "true"}]}, "matchConditions[0].name: Required value"),
        (
            {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
            'matchConditions[1].name: Duplicate value: "a"',
        ),
        (
            {"matchConditions": [{"name": "a", "expression": "'text'"}]},
            "matchConditions[0].expression: Invalid value: \"'text'\": must evaluate to bool but got string",
        ),
    ]
    path = f"{PATH}/validatingwebhookconfigurations"
    for fields, text in broken:
        spec = {k: v for k, v in {**good, **fields}.items() if v is not None}
        body: Json = {"metadata": {"name": f"a-{api.namespace}"}, "webhooks": [spec]}
        rejected = (await api.call("POST", path, body, {"dryRun": "All"})).expect_error(422, "Invalid")
        named = f'ValidatingWebhookConfiguration.admissionregistration.k8s.io "a-{api.namespace}" is invalid'
        assert rejected.message == f"{named}: webhooks[0].{text}", rejected.message


async def case_eviction_is_mutated(api: Api) -> None:
    pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.create("pods", pod)).expect_success()
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    dry_run = patch_response({"op": "add", "path": "/deleteOptions", "value": {"dryRun": ["All"]}})
    hook = WebhookStub(lambda request: dry_run if request.get("subResource") == "eviction" else allow_response())
    async with served_webhook(api, hook, mutating=True):
        assert (await api.call("POST", api.path("pods", "p", "eviction"), body)).code == 201
    assert "deletionTimestamp" not in (await api.get("pods", "p")).expect_success().metadata


async def case_applied_nulls_with_webhook(api: Api) -> None:
    wrong, fine = widget("a", {"size": None}), widget("a", {"size": 1, "note": None})
    async with served_webhook(api, WebhookStub()):
        (await api.apply("widgets", wrong)).expect_error(422, "Invalid", "spec.size")
        (await api.apply("widgets", fine)).expect_success()
        (await api.apply("widgets", wrong)).expect_error(422, "Invalid", "spec.size")
    async with served_webhook(
        api,
        WebhookStub(lambda _: patch_response({"op": "add", "path": "/metadata/labels", "value": {"l": "1"}})),
        mutating=True,
        name="b",
    ):
        (await api.apply("widgets", widget("b", {"size": None}))).expect_error(422, "Invalid", "spec.size")
