"""What becomes of what admission webhooks answer."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

from apiserver_cases.api import Api, Json, config_map, deployment, widget
from apiserver_cases.backends import NOWHERE
from apiserver_cases.hooks import (
    EVERYTHING,
    PATH,
    Hook,
    allowed,
    configured,
    denied,
    forgotten,
    installed,
    patched,
    served,
    webhook,
)
from steersman.client import HttpRequest


def _failing(text: str) -> Json:
    """A whole Status."""
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


async def _create(api: Api, response: Json, *, mutating: bool = False) -> tuple[Json, str]:
    """What creating a ConfigMap is answered where the webhook says ``response``, and the webhook's name."""
    hook = Hook(lambda _: response)
    async with configured(api, hook, mutating=mutating) as name:
        made = await api.create("configmaps", config_map("x", {"k": "v"}))
    assert hook.requests
    return made.body, name


async def case_refusals(api: Api) -> None:
    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
    full = {"reason": "Conflict", "code": 409, "details": {"name": "x", "kind": "y"}}
    answers: list[tuple[Json, str, Json]] = [
        ({"allowed": False}, "denied the request without explanation", {"code": 400}),
        (denied("no way"), "denied the request: no way", {"code": 400}),
        ({"allowed": False, "status": {"reason": "Sad"}}, "denied the request: Sad", {"reason": "Sad", "code": 400}),
        (denied("no", **full), "denied the request: no", full),
        (denied("no", code=200), "denied the request: no", {"code": 400}),
        (denied("no", code=422), "denied the request: no", {"code": 422}),
        (denied("no", status="Success"), "denied the request: no", {"code": 400}),
    ]
    hook = Hook()
    for mutating in (False, True):
        async with configured(api, hook, mutating=mutating, name=f"a{mutating}".lower()) as name:
            for response, text, more in answers:
                hook.answer = lambda _, response=response: response
                made = await api.create("configmaps", config_map("x"))
                assert made.body == status | {"message": f'admission webhook "{name}" {text}'} | more
    (await api.get("configmaps", "x")).refused(404, "NotFound")


async def case_a_refused_update(api: Api) -> None:
    (await api.create("configmaps", config_map("x", {"k": "v"}))).ok()
    async with configured(api, Hook(lambda _: denied("stay"))):
        assert (await api.merge("configmaps", "x", {"data": {"k": "w"}})).code == 400
        assert (await api.delete("configmaps", "x")).code == 400
        assert (await api.call("DELETE", api.path("configmaps"))).code == 400
    assert (await api.get("configmaps", "x")).ok().body["data"] == {"k": "v"}


async def case_a_mutation(api: Api) -> None:
    operations = [
        {"op": "add", "path": "/data/added", "value": "1"},
        {"op": "replace", "path": "/data/k", "value": "w"},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
    ]
    body, _ = await _create(api, patched(*operations), mutating=True)
    assert body["data"] == {"k": "w", "added": "1"}
    assert body["metadata"]["labels"] == {"a": "b"}
    # What a webhook adds belongs to nobody.
    (entry,) = body["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {"f:data": {".": {}, "f:k": {}}}


async def case_a_mutated_update(api: Api) -> None:
    (await api.create("configmaps", config_map("x", {"k": "v"}))).ok()
    async with configured(
        api, Hook(lambda _: patched({"op": "add", "path": "/data/z", "value": "1"})), mutating=True
    ):
        changed = (await api.merge("configmaps", "x", {"data": {"k": "w"}})).ok()
        same = (await api.merge("configmaps", "x", {"data": {"k": "w"}})).ok()
    assert changed.body["data"] == {"k": "w", "z": "1"}
    assert same.version == changed.version


async def case_a_mutation_is_validated(api: Api) -> None:
    hook = Hook(lambda _: patched({"op": "replace", "path": "/spec/size", "value": 5000}))
    async with configured(api, hook, mutating=True):
        (await api.create("widgets", widget("w"))).refused(422, "Invalid", "spec.size in body should be less than")


async def case_a_mutation_makes_it_valid(api: Api) -> None:
    hook = Hook(lambda _: patched({"op": "replace", "path": "/spec/size", "value": 50}))
    async with configured(api, hook, mutating=True):
        made = (await api.create("widgets", widget("w", {"size": 5000}))).ok()
    assert made.body["spec"]["size"] == 50


async def case_a_mutation_is_pruned_and_defaulted(api: Api) -> None:
    spec = {"size": 2, "unknown": 1, "parts": [{"name": "a"}]}
    hook = Hook(lambda _: patched({"op": "replace", "path": "/spec", "value": spec}))
    async with configured(api, hook, mutating=True):
        made = (await api.create("widgets", widget("w"))).ok()
    expected = {"size": 2, "mode": "safe", "rollout": {"pace": "slow"}, "parts": [{"name": "a", "weight": 1}]}
    assert made.body["spec"] == expected


async def case_no_mutation(api: Api) -> None:
    for response in (patched(), {"allowed": True, "patchType": "Merge", "patch": base64.b64encode(b"[]").decode()}):
        body, _ = await _create(api, response, mutating=True)
        assert body["data"] == {"k": "v"}
        (await api.delete("configmaps", "x")).ok()


async def case_patches_that_do_not_fit(api: Api) -> None:
    missing = "Unable to remove nonexistent key: none: missing value"
    answers: list[tuple[Json, str]] = [
        ({"op": "remove", "path": "/none"}, f"error in remove for path: '/none': {missing}"),
        ({"op": "test", "path": "/metadata/name", "value": "y"}, "testing value /metadata/name failed: test failed"),
    ]
    hook = Hook()
    async with configured(api, hook, mutating=True):
        for operation, text in answers:
            hook.answer = lambda _, operation=operation: patched(operation)
            assert (await api.create("configmaps", config_map("x"))).body == _failing(text)


async def case_another_kind(api: Api) -> None:
    hook = Hook(lambda _: patched({"op": "replace", "path": "/kind", "value": "Secret"}))
    async with configured(api, hook, mutating=True):
        refused = await api.create("configmaps", config_map("x"))
    text = "converting (v1.Secret) to (core.ConfigMap): unknown conversion"
    assert (refused.code, refused.message) == (500, text), refused.body


async def case_another_namespace(api: Api) -> None:
    operation = {"op": "replace", "path": "/metadata/namespace", "value": "default"}
    body, _ = await _create(api, patched(operation), mutating=True)
    text = "the namespace of the provided object does not match the namespace sent on the request"
    assert (body["code"], body["message"]) == (400, text)


async def case_another_name(api: Api) -> None:
    body, _ = await _create(
        api, patched({"op": "replace", "path": "/metadata/name", "value": "other"}), mutating=True
    )
    assert body["metadata"]["name"] == "other"
    (await api.get("configmaps", "other")).ok()


async def case_a_mutated_deletion(api: Api) -> None:
    (await api.create("configmaps", config_map("x"))).ok()
    async with configured(
        api, Hook(lambda _: patched({"op": "add", "path": "/data", "value": {}})), mutating=True
    ) as name:
        refused = await api.delete("configmaps", "x")
    because = "attempted to modify the object, which is not supported for this operation"
    assert refused.body == _failing(f'admission webhook "{name}" {because}')


async def case_malformed_answers(api: Api) -> None:
    patch = base64.b64encode(b"[]").decode()
    names = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    wanted = "admission.k8s.io/v1, Kind=AdmissionReview"
    common: list[tuple[Json, str]] = [
        ({"whole": names}, "webhook response was absent"),
        (allowed(uid="x"), 'expected response.uid="{uid}", got "x"'),
    ]
    validating = [
        *common,
        (allowed(patch=patch), "validating webhook may not return response.patch"),
        (allowed(patchType="JSONPatch"), "validating webhook may not return response.patchType"),
    ]
    mutating = [
        *common,
        (allowed(patch=patch), "webhook returned response.patch but not response.patchType"),
        (allowed(patchType="JSONPatch"), "webhook returned response.patchType but not response.patch"),
    ]
    for kind, answers in (("mutating", mutating), ("validating", validating)):
        hook = Hook()
        async with configured(api, hook, mutating=kind == "mutating", name=kind) as name:
            for response, text in answers:
                hook.answer = lambda _, response=response: response
                made = await api.create("configmaps", config_map("x"))
                problem = text.replace("{uid}", hook.requests[-1]["uid"])
                expected = f'failed calling webhook "{name}": received invalid webhook response: {problem}'
                assert made.body == _failing(expected)

            def bare(request: Json) -> Json:
                return {"whole": {"response": {"uid": request["uid"], "allowed": True}}}

            hook.answer = bare
            made = await api.create("configmaps", config_map("x"))
            problem = f"received invalid webhook response: expected webhook response of {wanted}, got /, Kind="
            assert made.body == _failing(f'failed calling webhook "{name}": {problem}')


async def case_a_patch_that_is_none(api: Api) -> None:
    response = allowed(patchType="JSONPatch", patch=base64.b64encode(b"{").decode())
    body, name = await _create(api, response, mutating=True)
    text = "received undecodable patch in webhook response: unexpected end of JSON input"
    assert body == _failing(f'failed calling webhook "{name}": {text}')


async def case_a_malformed_answer_is_ignored(api: Api) -> None:
    for mutating in (False, True):
        hook = Hook(lambda _: allowed(uid="x"))
        async with configured(api, hook, mutating=mutating, failurePolicy="Ignore"):
            (await api.create("configmaps", config_map("x"))).ok()
        assert hook.requests
        (await api.delete("configmaps", "x")).ok()


async def case_a_refusal_is_not_ignored(api: Api) -> None:
    async with configured(api, Hook(lambda _: denied("no")), failurePolicy="Ignore"):
        assert (await api.create("configmaps", config_map("x"))).code == 400


async def case_an_unreachable_webhook(api: Api) -> None:
    """Those that are ignored come first: the real server takes several configurations at once, or none."""
    hook = Hook()
    rules = [EVERYTHING | {"resources": ["secrets"]}]
    strict = webhook(api, {"url": NOWHERE}, "b", rules=rules)
    lax = webhook(api, {"url": NOWHERE}, "c", rules=[_rule(resources=["services"])], failurePolicy="Ignore")
    config = await api.serve_webhook(hook)
    for mutating in (False, True):
        async with installed(api, webhook(api, config), strict, lax, mutating=mutating):
            await served(api, hook)
            refused = await api.create("secrets", {"metadata": {"name": "s"}})
            service = {"metadata": {"generateName": "s-"}, "spec": {"ports": [{"port": 1}]}}
            (await api.create("services", service)).ok()
        call = 'Post "https://127.0.0.1:1/review?timeout=10s": dial tcp 127.0.0.1:1: connect: connection refused'
        text = f'failed calling webhook "{strict["name"]}": failed to call webhook: {call}'
        assert refused.body == _failing(text)
        await forgotten(api, hook)


async def case_a_webhook_that_is_too_slow(api: Api) -> None:
    never = asyncio.Event()
    specs: list[Json] = []
    for name, resources, policy in (("b", "secrets", "Fail"), ("c", "services", "Ignore")):
        hook = Hook(gate=never)
        config = await api.serve_webhook(hook)
        rules = [EVERYTHING | {"resources": [resources]}]
        specs.append(webhook(api, config, name, rules=rules, timeoutSeconds=1, failurePolicy=policy))
    ready = Hook()
    async with installed(api, webhook(api, await api.serve_webhook(ready)), *specs):
        await served(api, ready)
        refused = await api.create("secrets", {"metadata": {"name": "s"}})
        (await api.create("services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 1}]}})).ok()
    call = f'Post "{specs[0]["clientConfig"]["url"]}?timeout=1s": context deadline exceeded'
    assert refused.body == _failing(f'failed calling webhook "{specs[0]["name"]}": failed to call webhook: {call}')


async def case_a_scale_is_judged_and_changed(api: Api) -> None:
    (await api.create("deployments", deployment("d"))).ok()
    scale: Json = {"spec": {"replicas": 3}}
    async with configured(api, Hook(lambda _: denied("enough"))):
        assert (await api.merge("deployments", "d", scale, "scale")).code == 400
    assert (await api.get("deployments", "d")).body["spec"]["replicas"] == 1
    fewer = patched({"op": "replace", "path": "/spec/replicas", "value": 2})
    async with configured(api, Hook(lambda _: fewer), mutating=True):
        (await api.merge("deployments", "d", scale, "scale")).ok()
    assert (await api.get("deployments", "d")).body["spec"]["replicas"] == 2


async def case_an_eviction_is_judged(api: Api) -> None:
    pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.create("pods", pod)).ok()
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    async with configured(api, Hook(lambda _: denied("stay"))) as name:
        refused = await api.call("POST", api.path("pods", "p", "eviction"), body)
    assert (refused.code, refused.message) == (400, f'admission webhook "{name}" denied the request: stay')
    (await api.get("pods", "p")).ok()


async def case_no_such_service(api: Api) -> None:
    hook = Hook()
    service = {"service": {"name": "gone", "namespace": api.namespace, "path": "/review"}}
    spec = webhook(api, service, "b", rules=[EVERYTHING | {"resources": ["secrets"]}], timeoutSeconds=3)
    config = await api.serve_webhook(hook)
    async with installed(api, webhook(api, config), spec):
        await served(api, hook)
        refused = await api.create("secrets", {"metadata": {"name": "s"}})
    call = f'Post "https://gone.{api.namespace}.svc:443/review?timeout=3s": service "gone" not found'
    assert refused.body == _failing(f'failed calling webhook "{spec["name"]}": failed to call webhook: {call}')


async def case_warnings(api: Api) -> None:
    response = allowed(warnings=["careful", 'a "quoted" one', "careful"], auditAnnotations={"a": "b"})
    async with configured(api, Hook(lambda _: response)):
        body = json.dumps(config_map("x")).encode()
        request = HttpRequest(method="POST", path=api.path("configmaps"), body=body)
        assert (await api.transport.request(request)).warnings == ("careful", 'a "quoted" one')
    async with configured(api, Hook(lambda _: {**response, "allowed": False}), name="b"):
        refused = await api.transport.request(request)
        assert (refused.status, refused.warnings) == (400, ("careful", 'a "quoted" one'))


async def case_what_a_configuration_is_completed_by(api: Api) -> None:
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
        made = (await api.call("POST", path, body, {"dryRun": "All"})).ok()
        (found,) = made.body["webhooks"]
        body["webhooks"] = [spec | {"namespaceSelector": None, "timeoutSeconds": None}]
        assert (await api.call("POST", path, body, {"dryRun": "All"})).ok().body["webhooks"] == [found]
        assert found == spec | more | {
            "clientConfig": {"service": {"name": "s", "namespace": api.namespace, "port": 443}},
            "rules": [spec["rules"][0] | {"scope": "*"}],
            "failurePolicy": "Fail",
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "timeoutSeconds": 10,
        }


def _rule(**fields: Any) -> Json:
    return EVERYTHING | fields


async def case_malformed_configurations(api: Api) -> None:
    config = {"url": "https://127.0.0.1:1/"}
    good = webhook(api, config)
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
        ({"rules": [_rule(operations=[])]}, "rules[0].operations: Required value"),
        (
            {"rules": [_rule(operations=["MOVE"])]},
            (
                'rules[0].operations[0]: Unsupported value: "MOVE": supported values: "*", "CONNECT", "CREATE", '
                '"DELETE", "UPDATE"'
            ),
        ),
        (
            {"rules": [_rule(operations=["*", "CREATE"])]},
            (
                'rules[0].operations: Invalid value: ["*","CREATE"]: '
                "if '*' is present, must not specify other operations"
            ),
        ),
        ({"rules": [_rule(apiGroups=[])]}, "rules[0].apiGroups: Required value"),
        (
            {"rules": [_rule(apiVersions=["*", "v1"])]},
            (
                'rules[0].apiVersions: Invalid value: ["*","v1"]: '
                "if '*' is present, must not specify other API versions"
            ),
        ),
        ({"rules": [_rule(resources=[])]}, "rules[0].resources: Required value"),
        (
            {"rules": [_rule(scope="Here")]},
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
        refused = (await api.call("POST", path, body, {"dryRun": "All"})).refused(422, "Invalid")
        named = f'ValidatingWebhookConfiguration.admissionregistration.k8s.io "a-{api.namespace}" is invalid'
        assert refused.message == f"{named}: webhooks[0].{text}", refused.message


async def case_an_eviction_is_changed(api: Api) -> None:
    pod: Json = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
    (await api.create("pods", pod)).ok()
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    tried = patched({"op": "add", "path": "/deleteOptions", "value": {"dryRun": ["All"]}})
    hook = Hook(lambda request: tried if request.get("subResource") == "eviction" else allowed())
    async with configured(api, hook, mutating=True):
        assert (await api.call("POST", api.path("pods", "p", "eviction"), body)).code == 201
    assert "deletionTimestamp" not in (await api.get("pods", "p")).ok().metadata


async def case_applied_nulls_beside_a_webhook(api: Api) -> None:
    wrong, fine = widget("a", {"size": None}), widget("a", {"size": 1, "note": None})
    async with configured(api, Hook()):
        (await api.apply("widgets", wrong)).refused(422, "Invalid", "spec.size")
        (await api.apply("widgets", fine)).ok()
        (await api.apply("widgets", wrong)).refused(422, "Invalid", "spec.size")
    async with configured(
        api,
        Hook(lambda _: patched({"op": "add", "path": "/metadata/labels", "value": {"l": "1"}})),
        mutating=True,
        name="b",
    ):
        (await api.apply("widgets", widget("b", {"size": None}))).refused(422, "Invalid", "spec.size")
