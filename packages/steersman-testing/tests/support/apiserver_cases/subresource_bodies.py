"""Bodies of subresources: decoding, comparison with the URL, validation."""

from __future__ import annotations

from typing import Any

from apiserver_cases.access_reviews import review_token, wait_until_token_invalid
from apiserver_cases.api import GROUP, Api, ApiResponse, Json, deployment, error_cases
from apiserver_cases.subresources import create_budget, create_pod, create_service_account, request_token, scaled

_MERGE = "application/merge-patch+json"
_NAMELESS = "was undeterminable: name must be provided"


def _scale(name: str = "a", **fields: Any) -> Json:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": name}, **fields}


async def _put_scale(api: Api, plural: str, body: Any, **query: str) -> ApiResponse:
    return await api.call("PUT", api.path(plural, "a", "scale"), body, query)


async def case_wrong_scale_types_are_rejected(api: Api) -> None:
    (await api.create("deployments", deployment("a", replicas=2))).expect_success()
    for body, text in error_cases(
        (None, "the object provided is unrecognized (must be of type Scale)"),
        ([], "json: cannot unmarshal array into Go value of type struct"),
        (b"{", "unexpected end of JSON input ({)"),
        ({**_scale(), "apiVersion": "autoscaling/v2"}, 'no kind "Scale" is registered for version "autoscaling/v2"'),
        ({**_scale(), "kind": "Odd"}, 'no kind "Odd" is registered for version "autoscaling/v1"'),
        ({**deployment("a")}, "converting (v1.Deployment) to (autoscaling.Scale): unknown conversion"),
        (
            _scale(spec={"replicas": "3"}),
            "cannot unmarshal string into Go struct field ScaleSpec.spec.replicas",
        ),
        (_scale(spec={"replicas": True}), "json: cannot unmarshal bool into Go struct field ScaleSpec.spec.replicas"),
        (_scale(spec="x"), "json: cannot unmarshal string into Go struct field Scale.spec of type v1.ScaleSpec"),
        (_scale(status={"replicas": "x"}), "Go struct field ScaleStatus.status.replicas of type int32"),
        ({**_scale(), "metadata": "x"}, "Go struct field Scale.metadata of type v1.ObjectMeta"),
        ({**_scale(), "metadata": {"name": "a", "labels": {"a": 1}}}, "Go struct field ObjectMeta.metadata.labels"),
    ):
        (await _put_scale(api, "deployments", body)).expect_error(400, "BadRequest", text)
    strict = await _put_scale(api, "deployments", _scale(spec={"odd": 1}), fieldValidation="Strict")
    strict.expect_error(400, "BadRequest", 'strict decoding error: unknown field "spec.odd"')
    assert (await api.get("deployments", "a", "scale")).expect_success().body["spec"] == {"replicas": 2}


async def case_wrong_custom_scale_types_are_rejected(api: Api) -> None:
    (await api.create("scaleds", scaled("a", replicas=2))).expect_success()
    text = 'no kind is registered for the type v1.Scale in scheme "pkg/runtime/scheme.go:111"'
    bodies: list[Any] = [None, [], {**_scale(), "kind": "Odd"}, _scale(spec={"replicas": "3"}), _scale(spec="x")]
    for body in bodies:
        (await _put_scale(api, "scaleds", body)).expect_error(400, "BadRequest", text)
    (await _put_scale(api, "scaleds", _scale(spec={"odd": 1}), fieldValidation="Strict")).expect_error(
        400, "BadRequest", text
    )


async def case_scale_kind_is_optional(api: Api) -> None:
    for plural, created in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        (await api.create(plural, created)).expect_success()
        changed = await _put_scale(
            api, plural, {"metadata": {"name": "a"}, "spec": {"replicas": 3, "odd": 1}, "more": 1}
        )
        assert changed.expect_success().body["spec"] == {"replicas": 3}


async def case_scale_must_match_url(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        created = (await api.create(plural, body)).expect_success()
        for meta, text in (
            ({"name": "b"}, "the name of the object (b) does not match the name on the URL (a)"),
            ({}, f"the name of the object (a based on URL) {_NAMELESS}"),
            (
                {"name": "a", "namespace": "other"},
                "the namespace of the provided object does not match",
            ),
        ):
            (await _put_scale(api, plural, {**_scale(), "metadata": meta})).expect_error(400, "BadRequest", text)
        text = f"Precondition failed: UID in precondition: other, UID in object meta: {created.metadata['uid']}"
        foreign = await _put_scale(api, plural, {**_scale(), "metadata": {"name": "a", "uid": "other"}})
        foreign.expect_error(409, "Conflict", text)
        malformed = await _put_scale(api, plural, {**_scale(), "metadata": {"name": "a", "resourceVersion": "x"}})
        malformed.expect_error(500, "", 'strconv.ParseUint: parsing "x": invalid syntax')
        own = {"name": "a", "uid": created.metadata["uid"], "resourceVersion": created.resource_version}
        (await _put_scale(api, plural, {**_scale(spec={"replicas": 3}), "metadata": own})).expect_success()
        missing = await api.call("PUT", api.path(plural, "no", "scale"), _scale("other"))
        missing.expect_error(
            400, "BadRequest", "the name of the object (other) does not match the name on the URL (no)"
        )
        missing = await api.call("PUT", api.path(plural, "no", "scale"), _scale("no"))
        missing.expect_error(404, "NotFound", '"no" not found')


async def case_patched_scale_is_validated(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        (await api.create(plural, body)).expect_success()
        for patch, text in error_cases(
            (
                {"spec": {"replicas": "3"}},
                "cannot unmarshal string into Go struct field ScaleSpec.spec.replicas",
            ),
            ({"kind": "Odd"}, 'no kind "Odd" is registered for version "autoscaling/v1"'),
            ({"apiVersion": "autoscaling/v2"}, 'no kind "Scale" is registered for version "autoscaling/v2"'),
        ):
            (await api.merge(plural, "a", patch, "scale")).expect_error(422, "Invalid", text)
        for meta in ({"name": "b"}, {"namespace": "b"}, {"name": None}):
            (await api.merge(plural, "a", {"metadata": meta}, "scale")).expect_error(400, "BadRequest")
        (await api.merge(plural, "a", {"metadata": {"resourceVersion": "x"}}, "scale")).expect_error(500, "")
        (await api.merge(plural, "a", {"metadata": {"labels": {"a": "b"}}}, "scale")).expect_success()
    foreign = await api.merge("deployments", "a", {"metadata": {"uid": "b"}}, "scale")
    foreign.expect_error(
        409, "Conflict", 'on deployments/scale.apps "a": Precondition failed: UID in precondition: b'
    )
    assert (await api.merge("scaleds", "a", {"metadata": {"uid": "b"}}, "scale")).expect_success().body["spec"] == {
        "replicas": 2
    }


async def case_scale_without_replicas_is_zero(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        (await api.create(plural, body)).expect_success()
        for scale in (_scale(), _scale(spec=None), _scale(spec={}), _scale(spec={"replicas": None})):
            (await api.merge(plural, "a", {"spec": {"replicas": 3}}, "scale")).expect_success()
            assert (await _put_scale(api, plural, scale)).expect_success().body["spec"] == {}
            assert (await api.get(plural, "a")).body["spec"]["replicas"] == 0
        assert (await api.merge(plural, "a", {"spec": {"replicas": None}}, "scale")).expect_success().body[
            "spec"
        ] == {}
        (await _put_scale(api, plural, _scale(spec={"replicas": -1}))).expect_error(
            422, "Invalid", "Invalid value: -1: "
        )


async def case_patch_must_set_missing_replicas(api: Api) -> None:
    (await api.create("scaleds", scaled("a", size=1))).expect_success()
    patches: list[Json] = [{"metadata": {"labels": {"a": "b"}}}, {"spec": {}}]
    for patch in patches:
        rejected = await api.merge("scaleds", "a", patch, "scale")
        rejected.expect_error(400, "BadRequest", 'the spec replicas field ".spec.replicas" cannot be empty')
    (await _put_scale(api, "scaleds", _scale())).expect_success()
    assert (await api.get("scaleds", "a")).body["spec"] == {"replicas": 0, "size": 1}


# Evictions


def _eviction(options: Any = None, **fields: Any) -> Json:
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}, **fields}
    return body if options is None else {**body, "deleteOptions": options}


async def _evict(api: Api, body: Any, **query: str) -> ApiResponse:
    return await api.call("POST", api.path("pods", "a", "eviction"), body, query)


async def case_wrong_eviction_types_are_rejected(api: Api) -> None:
    await create_pod(api)
    options = "Go struct field DeleteOptions.deleteOptions"
    for body, text in error_cases(
        (None, "the object provided is unrecognized (must be of type Eviction)"),
        ([], "json: cannot unmarshal array into Go value of type struct"),
        (_eviction(kind="Other"), 'no kind "Other" is registered for version "policy/v1"'),
        (_eviction(apiVersion="x/v1"), 'no kind "Eviction" is registered for version "x/v1"'),
        (_eviction(apiVersion="v1", kind="Pod"), "converting (v1.Pod) to (policy.Eviction): unknown conversion"),
        (_eviction(metadata={"name": "b"}), "name in URL does not match name in Eviction object"),
        (_eviction(metadata=None), "name in URL does not match name in Eviction object"),
        (_eviction(metadata={"name": "a", "namespace": "x"}), "the namespace of the provided object does not match"),
        (_eviction(metadata={"name": 1}), "Go struct field ObjectMeta.metadata.name of type string"),
        (_eviction("x"), "Go struct field Eviction.deleteOptions of type v1.DeleteOptions"),
        (_eviction({"dryRun": "All"}), f"json: cannot unmarshal string into {options}.dryRun of type []string"),
        (_eviction({"gracePeriodSeconds": "x"}), f"unmarshal string into {options}.gracePeriodSeconds of type int64"),
        (_eviction({"preconditions": {"uid": 1}}), "Preconditions.deleteOptions.preconditions.uid of type types.UID"),
    ):
        (await _evict(api, body)).expect_error(400, "BadRequest", text)
    strict = await _evict(api, _eviction({"odd": 1}), fieldValidation="Strict")
    strict.expect_error(400, "BadRequest", 'strict decoding error: unknown field "deleteOptions.odd"')
    (await api.get("pods", "a")).expect_success()
    loose = {"metadata": {"name": "a"}, "more": 2, "deleteOptions": {"dryRun": ["All"], "odd": 1, "kind": "Odd"}}
    assert (await _evict(api, loose)).code == 201


async def case_eviction_options_are_validated(api: Api) -> None:
    await create_pod(api)
    for options, text in error_cases(
        ({"dryRun": ["None"]}, 'dryRun: Unsupported value: ["None"]: supported values: "All"'),
        ({"propagationPolicy": "Odd"}, 'propagationPolicy: Unsupported value: "Odd"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, "cannot be both set"),
    ):
        (await _evict(api, _eviction(options))).expect_error(422, "Invalid", text)
    (await _evict(api, _eviction({"preconditions": {"resourceVersion": "1"}}))).expect_error(409, "Conflict")
    assert (await _evict(api, _eviction({"gracePeriodSeconds": -1, "propagationPolicy": "Foreground"}))).code == 201
    assert (await api.get("pods", "a")).metadata["finalizers"] == ["foregroundDeletion"]


async def case_eviction_body_requests_dry_run(api: Api) -> None:
    await create_pod(api)
    await create_budget(api, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    assert (await _evict(api, _eviction({"dryRun": ["All"]}))).code == 201
    (await api.get("pods", "a")).expect_success()
    assert (await api.get("poddisruptionbudgets", "a")).body["status"]["disruptionsAllowed"] == 1


async def case_failed_eviction_uses_budget(api: Api) -> None:
    await create_pod(api)
    await create_budget(api, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    (await _evict(api, _eviction({"preconditions": {"uid": "other"}}))).expect_error(409, "Conflict")
    rejected = (await _evict(api, _eviction())).expect_error(429, "TooManyRequests")
    (cause,) = rejected.body["details"]["causes"]
    assert cause["message"] == "The disruption budget a does not allow evicting pods currently"


# Namespaces


async def case_finalize_is_an_update(api: Api) -> None:
    name = f"{api.namespace}-n"
    body: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    created = (await api.call("POST", "/api/v1/namespaces", body)).expect_success()
    whole = {**body, "spec": {"finalizers": ["kubernetes"]}}

    async def put(sent: Any, **query: str) -> ApiResponse:
        return await api.call("PUT", f"/api/v1/namespaces/{name}/finalize", sent, query)

    for sent, text in error_cases(
        (None, "the object provided is unrecognized (must be of type Namespace)"),
        ({}, f"the name of the object ({name} based on URL) {_NAMELESS}"),
        ({**whole, "kind": "Pod"}, "converting (v1.Pod) to (core.Namespace): unknown conversion"),
        ({**whole, "apiVersion": "v2"}, 'no kind "Namespace" is registered for version "v2"'),
        (
            {**whole, "metadata": {"name": "other"}},
            "the name of the object (other) does not match the name on the URL",
        ),
        ({**whole, "spec": {"finalizers": "x"}}, "NamespaceSpec.spec.finalizers of type []v1.FinalizerName"),
        ({**whole, "spec": {"finalizers": [1]}}, "NamespaceSpec.spec.finalizers of type v1.FinalizerName"),
    ):
        (await put(sent)).expect_error(400, "BadRequest", text)
    strict = await put({**whole, "odd": 1}, fieldValidation="Strict")
    strict.expect_error(400, "BadRequest", 'strict decoding error: unknown field "odd"')
    foreign = await put({**whole, "metadata": {"name": name, "uid": "other"}})
    foreign.expect_error(409, "Conflict", "Precondition failed: UID in precondition: other")
    old = await put({**whole, "metadata": {"name": name, "resourceVersion": "1"}})
    old.expect_error(409, "Conflict", "the object has been modified")
    malformed = await put({**whole, "spec": {"finalizers": ["odd"]}})
    assert malformed.expect_error(422, "Invalid", "neither a standard finalizer name").causes() == [
        ("spec.finalizers[0]", "FieldValueInvalid")
    ]
    meta = {
        "name": name,
        "uid": created.metadata["uid"],
        "resourceVersion": created.resource_version,
        "labels": {"a": "b"},
    }
    changed = await put({**whole, "metadata": meta, "status": {"phase": "Terminating"}}, fieldManager="me")
    assert changed.expect_success().metadata["labels"] == {"a": "b", "kubernetes.io/metadata.name": name}
    assert changed.body["status"] == {"phase": "Active"}
    dry_run = await put({**body, "spec": {"finalizers": ["a.com/b", "kubernetes"]}}, dryRun="All")
    assert dry_run.expect_success().body["spec"] == {"finalizers": ["a.com/b", "kubernetes"]}
    (await api.call("PATCH", f"/api/v1/namespaces/{name}/finalize", {}, None, _MERGE)).expect_error(
        405, "MethodNotAllowed"
    )


# Tokens


async def case_wrong_token_request_types_are_rejected(api: Api) -> None:
    await create_service_account(api)
    path = api.path("serviceaccounts", "s", "token")
    called: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    for body, text in error_cases(
        (None, "the object provided is unrecognized (must be of type TokenRequest)"),
        ({**called, "kind": "Odd"}, 'no kind "Odd" is registered for version "authentication.k8s.io/v1"'),
        ({**called, "spec": "x"}, "Go struct field TokenRequest.spec of type v1.TokenRequestSpec"),
        ({**called, "spec": {"audiences": "x"}}, "Go struct field TokenRequestSpec.spec.audiences of type []string"),
        ({**called, "spec": {"expirationSeconds": "x"}}, "TokenRequestSpec.spec.expirationSeconds of type int64"),
        ({**called, "metadata": {"namespace": "x"}}, "the namespace of the provided object does not match"),
    ):
        (await api.call("POST", path, body)).expect_error(400, "BadRequest", text)
    for more in ({}, {"spec": {"odd": 1}}, {"metadata": {"name": "s", "labels": {"a": "b"}}}):
        (await api.call("POST", path, {**called, **more})).expect_success()
    other = await api.call("POST", path, {**called, "metadata": {"name": "other"}})
    other.expect_error(422, "Invalid", "must match the service account name if specified")


async def case_tokens_are_valid_for_ten_minutes_at_least(api: Api) -> None:
    await create_service_account(api)
    for seconds in (-1, 0, 599):
        rejected = await request_token(api, expirationSeconds=seconds)
        rejected.expect_error(
            422, "Invalid", f"Invalid value: {seconds}: may not specify a duration less than 10 minutes"
        )
    rejected = await request_token(api, expirationSeconds=2**32 + 1)
    rejected.expect_error(422, "Invalid", "may not specify a duration larger than 2^32 seconds")
    assert (await request_token(api, expirationSeconds=None)).expect_success().body["spec"][
        "expirationSeconds"
    ] == 3600


async def case_bindable_objects_of_tokens(api: Api) -> None:
    await create_service_account(api)
    await create_pod(api)
    (await api.create("secrets", {"metadata": {"name": "k"}})).expect_success()
    secret: Json = {"kind": "Secret", "apiVersion": "v1", "name": "k"}
    for bound, code, reason, text in (
        ({}, 400, "BadRequest", "cannot bind token to object of type /, Kind="),
        ({**secret, "kind": "Odd"}, 400, "BadRequest", "cannot bind token to object of type /v1, Kind=Odd"),
        ({"kind": "Secret", "apiVersion": "v1"}, 400, "BadRequest", "Name parameter required."),
        ({**secret, "name": "no"}, 404, "NotFound", 'secrets "no" not found'),
        ({**secret, "kind": "Pod", "name": "no"}, 404, "NotFound", 'pods "no" not found'),
        ({**secret, "uid": "other"}, 409, "Conflict", "the UID in the bound object reference (other) does not match"),
        (
            {**secret, "kind": "Pod", "name": "a"},
            400,
            "BadRequest",
            "to pod running with different serviceaccount",
        ),
    ):
        (await request_token(api, boundObjectRef=bound)).expect_error(code, reason, text)
    assert (await request_token(api, boundObjectRef=secret)).expect_success().body["spec"]["boundObjectRef"] == secret


async def case_bound_token_expires_with_its_pod(api: Api) -> None:
    await create_service_account(api)
    spec = {"serviceAccountName": "s", "nodeName": "nowhere", "containers": [{"name": "m", "image": "m"}]}
    for name in ("a", "b"):
        body = {"metadata": {"name": name}, "spec": {**spec, "serviceAccount": "s"}}
        created = (await api.create("pods", body)).expect_success()
        given = await request_token(api, boundObjectRef={"kind": "Pod", "apiVersion": "v1", "name": name})
        token = given.expect_success().body["status"]["token"]
        if name == "a":
            extra: Json = (await review_token(api, {"token": token}))["user"]["extra"]
            assert extra["authentication.kubernetes.io/pod-name"] == ["a"]
            assert extra["authentication.kubernetes.io/pod-uid"] == [created.metadata["uid"]]
            assert extra["authentication.kubernetes.io/node-name"] == ["nowhere"]
        else:
            (await api.delete("pods", name, {"gracePeriodSeconds": 0})).expect_success()
            await wait_until_token_invalid(api, token, "service account token has been invalidated")


async def case_bound_token_expires_with_its_secret(api: Api) -> None:
    await create_service_account(api)
    created = (await api.create("secrets", {"metadata": {"name": "k"}})).expect_success()
    given = await request_token(api, boundObjectRef={"kind": "Secret", "apiVersion": "v1", "name": "k"})
    (await api.delete("secrets", "k")).expect_success()
    again = (await api.create("secrets", {"metadata": {"name": "k"}})).expect_success()
    claim = f"service account secret ref claim ({created.metadata['uid']})"
    text = f"secret UID ({again.metadata['uid']}) does not match {claim}"
    await wait_until_token_invalid(api, given.expect_success().body["status"]["token"], text)


# Logs


async def case_log_options_are_validated(api: Api) -> None:
    await create_pod(api)
    path = api.path("pods", "a", "log")
    for query, text in (
        ({"tailLines": "-1"}, "tailLines: Invalid value: -1: must be greater than or equal to 0"),
        ({"limitBytes": "0"}, "limitBytes: Invalid value: 0: must be greater than 0"),
        ({"sinceSeconds": "0"}, "sinceSeconds: Invalid value: 0: must be greater than 0"),
        ({"sinceTime": "2020-01-01T00:00:00Z", "sinceSeconds": "1"}, "at most one of `sinceTime` or `sinceSeconds`"),
        ({"stream": "Stdout"}, "stream: Forbidden: may not be specified"),
    ):
        (await api.call("GET", path, None, query)).expect_error(422, "Invalid", text)
    for name in ("tailLines", "limitBytes", "sinceSeconds", "sinceTime"):
        (await api.call("GET", path, None, {name: "abc"})).expect_error(400, "BadRequest", "parsing")


async def case_a_pod_without_a_node_has_no_log(api: Api) -> None:
    await create_pod(api)
    for query in ({}, {"follow": "odd", "timestamps": "odd"}, {"tailLines": "0"}, {"container": "main"}):
        assert (await api.call("GET", api.path("pods", "a", "log"), None, query)).code == 204
    init, main, side = ({"name": n, "image": "m"} for n in ("init", "main", "side"))
    spec = {"containers": [main, side], "initContainers": [init]}
    (await api.create("pods", {"metadata": {"name": "b"}, "spec": spec})).expect_success()
    rejected = await api.get("pods", "b", "log")
    rejected.expect_error(400, "BadRequest", "choose one of: [init main side]")
    assert (await api.call("GET", api.path("pods", "b", "log"), None, {"container": "init"})).code == 204


async def case_custom_scale_allows_put_and_patch_only(api: Api) -> None:
    (await api.create("scaleds", scaled("a", replicas=1))).expect_success()
    rejected = await api.call("POST", api.path("scaleds", "a", "scale"), _scale())
    rejected.expect_error(405, "MethodNotAllowed", f'create is not supported on resources of kind "scaleds.{GROUP}"')
