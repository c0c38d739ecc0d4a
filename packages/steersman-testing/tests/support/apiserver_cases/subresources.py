"""Scale, eviction, resize, tokens, logs and reviews."""

from __future__ import annotations

import re
from typing import Any

from apiserver_cases.api import GROUP, Api, ApiResponse, Json, definition, deployment

_SCALED = {
    "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}, "size": {"type": "integer"}}},
    "status": {
        "type": "object",
        "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
    },
}
CRD = definition(
    "Scaled",
    _SCALED,
    {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    },
)


def scaled(name: str, **spec: int) -> Json:
    """Return a custom resource with a scale subresource."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Scaled", "metadata": {"name": name}, "spec": spec}


def fields_by_manager(response: ApiResponse) -> dict[tuple[str, str], Json]:
    """Return the fields of each manager by name and subresource."""
    return {(m["manager"], m.get("subresource", "")): m["fieldsV1"] for m in response.metadata["managedFields"]}


def _pod(name: str, **resources: Json) -> Json:
    container = {"name": "app", "image": "app:1", "resources": resources}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container]}}


def _resources_patch(value: Json, **metadata: str) -> Json:
    return {"metadata": metadata, "spec": {"containers": [{"name": "app", "resources": value}]}}


async def case_pods_are_resized(api: Api) -> None:
    small = {"requests": {"cpu": "100m"}, "limits": {"memory": "64Mi"}}
    made = await api.create("pods", _pod("a", **small), fieldManager="maker")
    assert made.expect_success().body["spec"]["containers"][0]["resources"]["requests"]["memory"] == "64Mi"
    larger = {"requests": {"cpu": "0.2", "memory": "128Mi"}, "limits": {"memory": "128Mi"}}
    patch = _resources_patch(larger, uid=made.metadata["uid"])
    resized = await api.strategic("pods", "a", patch, "resize", fieldManager="resizer")
    pod = resized.expect_success().body
    assert pod["spec"]["containers"][0]["resources"] == {**larger, "requests": {"cpu": "200m", "memory": "128Mi"}}
    assert pod["metadata"]["generation"] == made.metadata["generation"] + 1
    assert (await api.get("pods", "a")).body == pod == (await api.get("pods", "a", "resize")).body
    assert ("resizer", "resize") in fields_by_manager(resized)


async def case_resize_changes_nothing_else(api: Api) -> None:
    await api.create("pods", _pod("a", limits={"cpu": "1"}))
    labels = {"metadata": {"labels": {"a": "b"}}}
    container = {"name": "app", "image": "app:2", "resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "2"}}}
    patch = {**labels, "spec": {"containers": [container], "activeDeadlineSeconds": 5}, "status": {"phase": "Failed"}}
    pod = (await api.strategic("pods", "a", patch, "resize")).expect_success().body
    assert pod["spec"]["containers"][0]["image"] == "app:1"
    assert "activeDeadlineSeconds" not in pod["spec"] and pod["status"]["phase"] == "Pending"
    await api.strategic("pods", "a", _resources_patch({"limits": {"cpu": "3"}}))


async def case_resize_is_validated(api: Api) -> None:
    burstable = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    made = await api.create("pods", _pod("a", **burstable))
    equal = {"cpu": "1", "memory": "1Gi"}
    for value in (
        {"requests": equal, "limits": equal},
        {"$patch": "replace", "limits": {"memory": "2Gi"}},
        {"$patch": "replace", "requests": {"cpu": "1", "memory": "1Gi"}},
        {"requests": {"memory": "4Gi"}},
        {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "4Mi"}},
    ):
        await api.strategic("pods", "a", _resources_patch(value), "resize")
    await api.strategic("pods", "a", _resources_patch({"limits": {"memory": "3Gi"}}, uid="other"), "resize")
    await api.strategic("pods", "b", _resources_patch({}), "resize")
    another = {"name": "second", "image": "app:1"}
    await api.strategic("pods", "a", {"spec": {"containers": [another]}}, "resize")
    unchanged = await api.strategic("pods", "a", _resources_patch(burstable), "resize")
    assert unchanged.resource_version == made.resource_version


async def case_scale_of_a_built_in_kind(api: Api) -> None:
    expressions = [
        {"key": "z", "operator": "In", "values": ["q", "p"]},
        {"key": "app", "operator": "Exists"},
        {"key": "gone", "operator": "DoesNotExist"},
    ]
    template = {
        "metadata": {"labels": {"app": "a", "z": "q"}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    }
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": expressions}
    made = await api.create("deployments", deployment("a", replicas=2, selector=selector, template=template))
    actual = (await api.get("deployments", "a", "scale")).expect_success().body
    assert (actual["apiVersion"], actual["kind"]) == ("autoscaling/v1", "Scale")
    assert actual["metadata"] == {
        n: made.metadata[n] for n in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    assert actual["spec"] == {"replicas": 2}
    assert actual["status"] == {"replicas": 0, "selector": "app=a,app,!gone,z in (p,q)"}


async def case_scale_is_set(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2, size=1))):
        await api.create(plural, body, fieldManager="maker")
        changed = await api.merge(plural, "a", {"spec": {"replicas": 5}}, "scale", fieldManager="scaler")
        assert changed.expect_success().body["spec"] == {"replicas": 5}
        now = await api.get(plural, "a")
        assert now.body["spec"]["replicas"] == 5
        assert now.metadata["generation"] == 2
        assert now.resource_version == changed.resource_version
        owned = fields_by_manager(now)
        assert owned["scaler", "scale"] == {"f:spec": {"f:replicas": {}}}
        assert "f:replicas" not in owned["maker", ""]["f:spec"]
        scale: Json = changed.body | {"spec": {"replicas": 3}}
        assert (await api.put(plural, scale, "scale")).expect_success().body["spec"] == {"replicas": 3}


async def case_scale_keeps_unowned_replicas_unowned(api: Api) -> None:
    body = deployment("a")
    (await api.apply("deployments", body)).expect_success()
    await api.merge("deployments", "a", {"spec": {"replicas": 5}}, "scale", fieldManager="scaler")
    assert list(fields_by_manager(await api.get("deployments", "a"))) == [("tester", "")]


async def case_scale_has_preconditions(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        await api.create(plural, body)
        old = (await api.get(plural, "a", "scale")).body
        await api.merge(plural, "a", {"spec": {"replicas": 4}}, "scale")
        patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"replicas": 5}}
        text = "the object has been modified; please apply your changes to the latest version and try again"
        (await api.merge(plural, "a", patch, "scale")).expect_error(409, "Conflict", text)
        (await api.put(plural, old, "scale")).expect_error(409, "Conflict", text)


async def case_scale_is_validated(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2))
    rejected = await api.merge("deployments", "a", {"spec": {"replicas": -1}}, "scale")
    rejected.expect_error(
        422, "Invalid", 'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value: -1: must be'
    )
    await api.create("scaleds", scaled("a", replicas=2))
    rejected = await api.merge("scaleds", "a", {"spec": {"replicas": -1}}, "scale")
    text = f'Scaled.{GROUP} "a" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer'
    rejected.expect_error(422, "Invalid", text)


async def case_scale_supports_dry_run(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2))
    dry_run = await api.merge("deployments", "a", {"spec": {"replicas": 9}}, "scale", dryRun="All")
    assert dry_run.expect_success().body["spec"] == {"replicas": 9}
    assert (await api.get("deployments", "a", "scale")).body["spec"] == {"replicas": 2}


async def case_custom_scale_shows_status(api: Api) -> None:
    await api.create("scaleds", scaled("a", replicas=2))
    await api.merge("scaleds", "a", {"status": {"replicas": 1, "selector": "app=a"}}, "status")
    actual = (await api.get("scaleds", "a", "scale")).expect_success().body
    assert actual["status"] == {"replicas": 1, "selector": "app=a"}


async def case_a_custom_scale_needs_its_field(api: Api) -> None:
    await api.create("scaleds", scaled("a", size=1))
    rejected = await api.get("scaleds", "a", "scale")
    rejected.expect_error(500, "InternalError", 'the spec replicas field ".spec.replicas" does not exist')
    set_now = (await api.merge("scaleds", "a", {"spec": {"replicas": 3}}, "scale")).expect_success()
    assert set_now.body["spec"] == {"replicas": 3}


async def case_kinds_without_scale(api: Api) -> None:
    (await api.get("configmaps", "a", "scale")).expect_error(404, "NotFound", "could not find the requested resource")
    (await api.get("widgets", "a", "scale")).expect_error(
        404, "NotFound", 'widgets.cases.steersman.dev "a" not found'
    )
    (await api.get("deployments", "a", "scale")).expect_error(404, "NotFound", 'deployments.apps "a" not found')
    (await api.call("DELETE", api.path("deployments", "a", "scale"))).expect_error(405, "MethodNotAllowed")


# Eviction


async def create_pod(api: Api, name: str = "a", *, phase: str = "Running", ready: bool = True) -> ApiResponse:
    """Create a running pod of the application ``a``."""
    await api.create(
        "serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    )
    containers = [{"name": "main", "image": "main:1"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}}}
    created = (await api.create("pods", {**body, "spec": {"containers": containers}})).expect_success()
    conditions = [{"type": "Ready", "status": str(ready)}]
    await api.merge("pods", name, {"status": {"phase": phase, "conditions": conditions}}, "status")
    return created


async def create_budget(api: Api, name: str = "a", **status: int) -> None:
    """Create a PodDisruptionBudget for the application ``a`` with a status."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    body: Json = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    (await api.create("poddisruptionbudgets", body)).expect_success()
    if status:
        (
            await api.merge("poddisruptionbudgets", name, {"status": {"observedGeneration": 1, **status}}, "status")
        ).expect_success()


async def evict_pod(api: Api, name: str = "a", options: Json | None = None, **query: str) -> ApiResponse:
    """Evict a pod."""
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options is not None:
        body["deleteOptions"] = options
    return await api.call("POST", api.path("pods", name, "eviction"), body, query)


async def case_a_pod_is_evicted(api: Api) -> None:
    await create_pod(api)
    answer = await evict_pod(api)
    assert answer.code == 201
    assert answer.body["status"] == "Success"
    (await api.get("pods", "a")).expect_error(404, "NotFound")
    (await evict_pod(api)).expect_error(404, "NotFound", 'pods "a" not found')


async def case_eviction_supports_dry_run(api: Api) -> None:
    await create_pod(api)
    assert (await evict_pod(api, dryRun="All")).code == 201
    (await api.get("pods", "a")).expect_success()


async def case_an_eviction_has_preconditions(api: Api) -> None:
    await create_pod(api)
    rejected = await evict_pod(api, options={"preconditions": {"uid": "other"}})
    rejected.expect_error(409, "Conflict", "the UID in the precondition (other) does not match the UID in record")


async def case_eviction_name_must_match_pod(api: Api) -> None:
    await create_pod(api)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}
    rejected = await api.call("POST", api.path("pods", "a", "eviction"), body)
    rejected.expect_error(400, "BadRequest", "name in URL does not match name in Eviction object")


async def case_budget_rejects_eviction(api: Api) -> None:
    await create_pod(api)
    await create_budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1, expectedPods=1)
    rejected = await evict_pod(api)
    rejected.expect_error(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    (cause,) = rejected.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget a needs 1 healthy pods and has 1 currently",
    }
    (await api.get("pods", "a")).expect_success()


async def case_budget_is_exhausted(api: Api) -> None:
    await create_pod(api, "a")
    await create_pod(api, "b")
    await create_budget(api, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    assert (await evict_pod(api, "a")).code == 201
    status = (await api.get("poddisruptionbudgets", "a")).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    (await evict_pod(api, "b")).expect_error(429, "TooManyRequests")


async def case_pods_that_are_not_running_need_no_budget(api: Api) -> None:
    await create_pod(api, phase="Failed")
    await create_budget(api, disruptionsAllowed=0, currentHealthy=0, desiredHealthy=1, expectedPods=1)
    assert (await evict_pod(api)).code == 201


async def case_unready_pods_are_free_while_enough_are_ready(api: Api) -> None:
    await create_pod(api, ready=False)
    await create_budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1, expectedPods=2)
    assert (await evict_pod(api)).code == 201


async def case_two_budgets_for_a_pod_are_rejected(api: Api) -> None:
    await create_pod(api)
    await create_budget(api, "a", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    await create_budget(api, "b", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    rejected = await evict_pod(api)
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert (rejected.code, rejected.message) == (500, text)


# Tokens, logs, reviews


async def create_service_account(api: Api) -> ApiResponse:
    """Create a service account."""
    return (
        await api.create("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}})
    ).expect_success()


async def request_token(api: Api, name: str = "s", **spec: Any) -> ApiResponse:
    """Request a token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return await api.call("POST", api.path("serviceaccounts", name, "token"), body)


async def post_review(api: Api, group: str, plural: str, kind: str, spec: Json) -> Json:
    """Return the status of a review."""
    body: Json = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    response = await api.call("POST", f"/apis/{group}/v1/{plural}", body)
    assert response.code == 201
    return response.body["status"]


async def case_token_is_issued(api: Api) -> None:
    made = await create_service_account(api)
    given = await request_token(api, expirationSeconds=600, audiences=["x"])
    assert given.code == 201
    assert given.metadata["uid"] == made.metadata["uid"]
    assert (given.body["spec"]["audiences"], given.body["spec"]["expirationSeconds"]) == (["x"], 600)
    assert given.body["status"]["token"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", given.body["status"]["expirationTimestamp"])
    assert (await request_token(api)).body["spec"]["expirationSeconds"] == 3600


async def case_token_requests_are_validated(api: Api) -> None:
    await create_service_account(api)
    rejected = await request_token(api, expirationSeconds=10)
    rejected.expect_error(
        422, "Invalid", "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than"
    )
    (await request_token(api, "other")).expect_error(404, "NotFound", 'serviceaccounts "other" not found')
    (await api.get("serviceaccounts", "s", "token")).expect_error(405, "MethodNotAllowed")


async def case_token_identifies_its_user(api: Api) -> None:
    await create_service_account(api)
    token = (await request_token(api)).body["status"]["token"]
    status = await post_review(api, "authentication.k8s.io", "tokenreviews", "TokenReview", {"token": token})
    assert status["authenticated"] is True
    assert status["user"]["username"] == f"system:serviceaccount:{api.namespace}:s"
    assert f"system:serviceaccounts:{api.namespace}" in status["user"]["groups"]


async def case_unknown_tokens_are_rejected(api: Api) -> None:
    status = await post_review(api, "authentication.k8s.io", "tokenreviews", "TokenReview", {"token": "x"})
    assert status == {"user": {}, "error": "invalid bearer token"}


async def case_administrator_is_allowed_everything(api: Api) -> None:
    spec = {"user": "root", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/x", "verb": "get"}}
    status = await post_review(api, "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", spec)
    assert status["allowed"] is True


async def case_logs_of_missing_containers_are_rejected(api: Api) -> None:
    (await api.get("pods", "a", "log")).expect_error(404, "NotFound", 'pods "a" not found')
    await create_pod(api)
    rejected = await api.call("GET", api.path("pods", "a", "log"), None, {"container": "other"})
    rejected.expect_error(400, "BadRequest", "container other is not valid for pod a")


async def case_collections_of_all_namespaces_are_not_deleted(api: Api) -> None:
    (await api.call("DELETE", "/api/v1/configmaps")).expect_error(405, "MethodNotAllowed")


async def case_discovery_lists_subresources(api: Api) -> None:
    found = (await api.call("GET", f"/apis/{GROUP}/v1")).expect_success().body
    scale = next(r for r in found["resources"] if r["name"] == "scaleds/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    found = (await api.call("GET", "/api/v1")).expect_success().body
    assert {"pods/eviction", "pods/log", "serviceaccounts/token"} <= {r["name"] for r in found["resources"]}
