"""Decoding of the responses and patches of webhooks."""

from __future__ import annotations

from typing import Any

from apiserver_cases.api import Api, Json, config_map, error_cases
from apiserver_cases.hooks import WebhookStub, allow_response, deny_response, raw_patch_response, served_webhook


async def case_wrong_response_types(api: Api) -> None:
    hook = WebhookStub()
    inside = "Go struct field AdmissionResponse.response"
    async with served_webhook(api, hook, mutating=True):
        for answer, text in error_cases(
            ({"allowed": "yes"}, f"json: cannot unmarshal string into {inside}.allowed of type bool"),
            ({"allowed": True, "uid": 1}, f"json: cannot unmarshal number into {inside}.uid of type types.UID"),
            ({"allowed": True, "warnings": "x"}, f"{inside}.warnings of type []string"),
            ({"allowed": True, "warnings": [1]}, f"{inside}.warnings of type string"),
            ({"allowed": True, "auditAnnotations": {"a": 1}}, f"{inside}.auditAnnotations of type string"),
            ({"allowed": True, "status": "x"}, f"{inside}.status of type v1.Status"),
            ({"allowed": True, "patch": 1, "patchType": "JSONPatch"}, f"{inside}.patch of type []uint8"),
            ({"allowed": False, "status": {"message": 1}}, "Go struct field Status.response.status.message of type"),
            (
                {"allowed": False, "status": {"code": "x"}},
                "field Status.response.status.code of type int32",
            ),
            ({"allowed": False, "status": {"details": "x"}}, "Status.response.status.details of type v1.Status"),
        ):
            hook.respond = lambda _, answer=answer: answer
            rejected = await api.create("configmaps", config_map("a"), dryRun="All")
            rejected.expect_error(500, "InternalError", text)
        hook.respond = lambda _: allow_response(
            odd=1, status={"message": "fine", "code": 400}, auditAnnotations={"a": "b"}
        )
        (await api.create("configmaps", config_map("a"), dryRun="All")).expect_success()


async def case_responses_are_reviews(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook):
        for changes, text in error_cases(
            ({"kind": "Odd"}, 'no kind "Odd" is registered for version "admission.k8s.io/v1" in scheme'),
            ({"apiVersion": "v1"}, 'no kind "AdmissionReview" is registered for version "v1" in scheme'),
            ({"apiVersion": "a/b/c"}, "unexpected GroupVersion string: a/b/c"),
            ({"apiVersion": 1}, "json: cannot unmarshal number into Go struct field .apiVersion of type string"),
            ({"apiVersion": "admission.k8s.io/v1beta1"}, "converting (v1beta1.AdmissionReview) to (v1.Admission"),
            ({"kind": None}, "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got"),
            ({"response": None}, "webhook response was absent"),
            ({"response": "x"}, "Go struct field AdmissionReview.response of type v1.AdmissionResponse"),
        ):

            def answer(request: Json, changes: Json = changes) -> Json:
                response = {"uid": request["uid"], "allowed": True}
                names = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
                return {"whole": {**names, "response": response, **changes}}

            hook.respond = answer
            (await api.create("configmaps", config_map("a"), dryRun="All")).expect_error(500, "InternalError", text)


async def case_denial_code_is_an_error_code(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook):
        for code in (0, -1, 100, 200, 302, 399, 400):
            hook.respond = lambda _, code=code: deny_response("m", code=code)
            (await api.create("configmaps", config_map("a"))).expect_error(400, "", "denied the request: m")
        for code in (418, 500, 503, 600):
            hook.respond = lambda _, code=code: deny_response("m", code=code, reason="Odd", odd=1)
            rejected = await api.create("configmaps", config_map("a"))
            assert (rejected.code, rejected.reason, rejected.body["code"]) == (code, "Odd", code)
        hook.respond = lambda _: {"allowed": False, "status": None}
        (await api.create("configmaps", config_map("a"))).expect_error(
            400, "", "denied the request without explanation"
        )


async def case_wrong_patch_types(api: Api) -> None:
    hook = WebhookStub()
    unread = "received undecodable patch in webhook response: json: cannot unmarshal"
    async with served_webhook(api, hook, mutating=True):
        for patch, text in error_cases(
            ({}, f"{unread} object into Go value of type jsonpatch.Patch"),
            ("x", f"{unread} string into Go value of type jsonpatch.Patch"),
            ([1], f"{unread} number into Go value of type jsonpatch.Operation"),
            ([{}], "Unexpected kind: unknown"),
            ([{"op": "odd", "path": "/data"}], "Unexpected kind: odd"),
            ([{"op": "add", "value": 1}], "add operation failed to decode path: missing value"),
            ([{"op": "add", "path": "data", "value": 1}], 'operation does not apply: doc is missing path: "data"'),
            ([{"op": "add", "path": "", "value": {}}], 'add operation does not apply: doc is missing path: ""'),
            ([{"op": "remove", "path": "/a/b"}], 'remove operation does not apply: doc is missing path: "/a/b"'),
            ([{"op": "copy", "path": "/data"}], "copy operation failed to decode from: operation, missing from"),
            ([{"op": "move", "path": "/data", "from": "/no"}], "error in move for path: 'no': Unable to remove"),
            (
                [{"op": "add", "path": "/data", "value": "x"}],
                "field ConfigMap.data of type map[string]string",
            ),
            ([{"op": "add", "path": "/data", "value": {"a": 1}}], "Go struct field ConfigMap.data of type string"),
            (
                [{"op": "add", "path": "/metadata/labels", "value": {"a": 1}}],
                "ObjectMeta.metadata.labels of type str",
            ),
            ([{"op": "add", "path": "/metadata/labels", "value": "x"}], "ObjectMeta.metadata.labels of type map["),
            ([{"op": "add", "path": "/metadata", "value": "x"}], "field ConfigMap.metadata of type v1.ObjectMeta"),
            ([{"op": "replace", "path": "/kind", "value": "Odd"}], 'no kind "Odd" is registered for version "v1"'),
            ([{"op": "replace", "path": "/kind", "value": 1}], "unmarshal number into Go struct field .kind of"),
        ):
            hook.respond = lambda _, patch=patch: raw_patch_response(patch)
            rejected = await api.create("configmaps", config_map("a", {"k": "v"}), dryRun="All")
            rejected.expect_error(500, "InternalError", text)
        hook.respond = lambda _: {**raw_patch_response([]), "patchType": ""}
        rejected = await api.create("configmaps", config_map("a"), dryRun="All")
        rejected.expect_error(500, "InternalError", 'webhook returned invalid response.patchType of ""')


async def case_tolerated_patches(api: Api) -> None:
    hook = WebhookStub()
    async with served_webhook(api, hook, mutating=True):
        patches: list[Any] = [
            None,
            [],
            [{"op": "add", "path": "/data"}],
            [{"op": "replace", "path": "/odd", "value": {}}],
            [{"op": "copy", "path": "/odd", "from": "/no"}],
            [{"op": "remove", "path": "/kind"}],
            [{"op": "remove", "path": "/apiVersion"}],
            [{"op": "add", "path": "/metadata/uid", "value": "x"}],
        ]
        for patch in patches:
            hook.respond = lambda _, patch=patch: raw_patch_response(patch)
            (await api.create("configmaps", config_map("a", {"k": "v"}), dryRun="All")).expect_success()
        hook.respond = lambda _: raw_patch_response(
            [{"op": "add", "path": "/metadata/labels", "value": {"a b": "c"}}]
        )
        (await api.create("configmaps", config_map("a"), dryRun="All")).expect_error(
            422, "Invalid", "metadata.labels"
        )
        hook.respond = lambda _: raw_patch_response([{"op": "remove", "path": "/metadata"}])
        rejected = await api.create("configmaps", config_map("a"), dryRun="All")
        rejected.expect_error(422, "Invalid", "metadata.name: Required value: name or generateName is required")
