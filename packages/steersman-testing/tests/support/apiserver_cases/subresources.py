"""Scale, eviction, tokens, logs, and the reviews."""

from __future__ import annotations

import re
from typing import Any

from apiserver_cases.api import GROUP, Api, Json, Reply, definition, deployment

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
    """A custom resource with a scale subresource."""
    return {"apiVersion": f"{GROUP}/v1", "kind": "Scaled", "metadata": {"name": name}, "spec": spec}


def managers(reply: Reply) -> dict[tuple[str, str], Json]:
    """Which fields each manager owns, by its name and subresource."""
    return {(m["manager"], m.get("subresource", "")): m["fieldsV1"] for m in reply.metadata["managedFields"]}


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
    got = (await api.get("deployments", "a", "scale")).ok().body
    assert (got["apiVersion"], got["kind"]) == ("autoscaling/v1", "Scale")
    assert got["metadata"] == {
        n: made.metadata[n] for n in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    assert got["spec"] == {"replicas": 2}
    assert got["status"] == {"replicas": 0, "selector": "app=a,app,!gone,z in (p,q)"}


async def case_scale_is_set(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2, size=1))):
        await api.create(plural, body, fieldManager="maker")
        changed = await api.merge(plural, "a", {"spec": {"replicas": 5}}, "scale", fieldManager="scaler")
        assert changed.ok().body["spec"] == {"replicas": 5}
        now = await api.get(plural, "a")
        assert now.body["spec"]["replicas"] == 5
        assert now.metadata["generation"] == 2
        assert now.version == changed.version
        owned = managers(now)
        assert owned["scaler", "scale"] == {"f:spec": {"f:replicas": {}}}
        assert "f:replicas" not in owned["maker", ""]["f:spec"]
        scale: Json = changed.body | {"spec": {"replicas": 3}}
        assert (await api.put(plural, scale, "scale")).ok().body["spec"] == {"replicas": 3}


async def case_scale_owns_no_field_that_nobody_owned(api: Api) -> None:
    body = deployment("a")
    (await api.apply("deployments", body)).ok()
    await api.merge("deployments", "a", {"spec": {"replicas": 5}}, "scale", fieldManager="scaler")
    assert list(managers(await api.get("deployments", "a"))) == [("tester", "")]


async def case_scale_has_preconditions(api: Api) -> None:
    for plural, body in (("deployments", deployment("a", replicas=2)), ("scaleds", scaled("a", replicas=2))):
        await api.create(plural, body)
        old = (await api.get(plural, "a", "scale")).body
        await api.merge(plural, "a", {"spec": {"replicas": 4}}, "scale")
        patch = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"replicas": 5}}
        text = "the object has been modified; please apply your changes to the latest version and try again"
        (await api.merge(plural, "a", patch, "scale")).refused(409, "Conflict", text)
        (await api.put(plural, old, "scale")).refused(409, "Conflict", text)


async def case_scale_is_checked(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2))
    refused = await api.merge("deployments", "a", {"spec": {"replicas": -1}}, "scale")
    refused.refused(422, "Invalid", 'Scale.autoscaling "a" is invalid: spec.replicas: Invalid value: -1: must be')
    await api.create("scaleds", scaled("a", replicas=2))
    refused = await api.merge("scaleds", "a", {"spec": {"replicas": -1}}, "scale")
    text = f'Scaled.{GROUP} "a" is invalid: .spec.replicas: Invalid value: -1: should be a non-negative integer'
    refused.refused(422, "Invalid", text)


async def case_scale_can_be_tried(api: Api) -> None:
    await api.create("deployments", deployment("a", replicas=2))
    tried = await api.merge("deployments", "a", {"spec": {"replicas": 9}}, "scale", dryRun="All")
    assert tried.ok().body["spec"] == {"replicas": 9}
    assert (await api.get("deployments", "a", "scale")).body["spec"] == {"replicas": 2}


async def case_a_custom_scale_says_what_the_status_says(api: Api) -> None:
    await api.create("scaleds", scaled("a", replicas=2))
    await api.merge("scaleds", "a", {"status": {"replicas": 1, "selector": "app=a"}}, "status")
    got = (await api.get("scaleds", "a", "scale")).ok().body
    assert got["status"] == {"replicas": 1, "selector": "app=a"}


async def case_a_custom_scale_needs_its_field(api: Api) -> None:
    await api.create("scaleds", scaled("a", size=1))
    refused = await api.get("scaleds", "a", "scale")
    refused.refused(500, "InternalError", 'the spec replicas field ".spec.replicas" does not exist')
    set_now = (await api.merge("scaleds", "a", {"spec": {"replicas": 3}}, "scale")).ok()
    assert set_now.body["spec"] == {"replicas": 3}


async def case_kinds_without_scale(api: Api) -> None:
    (await api.get("configmaps", "a", "scale")).refused(404, "NotFound", "could not find the requested resource")
    (await api.get("widgets", "a", "scale")).refused(404, "NotFound", 'widgets.cases.steersman.dev "a" not found')
    (await api.get("deployments", "a", "scale")).refused(404, "NotFound", 'deployments.apps "a" not found')
    (await api.call("DELETE", api.path("deployments", "a", "scale"))).refused(405, "MethodNotAllowed")


# Eviction


async def pod(api: Api, name: str = "a", *, phase: str = "Running", ready: bool = True) -> Reply:
    """A pod of the application ``a`` that somebody runs."""
    await api.create(
        "serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    )
    containers = [{"name": "main", "image": "main:1"}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}}}
    made = (await api.create("pods", {**body, "spec": {"containers": containers}})).ok()
    conditions = [{"type": "Ready", "status": str(ready)}]
    await api.merge("pods", name, {"status": {"phase": phase, "conditions": conditions}}, "status")
    return made


async def budget(api: Api, name: str = "a", **status: int) -> None:
    """A PodDisruptionBudget for the application ``a``, as its controller would have left it."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
    body: Json = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    (await api.create("poddisruptionbudgets", body)).ok()
    if status:
        (
            await api.merge("poddisruptionbudgets", name, {"status": {"observedGeneration": 1, **status}}, "status")
        ).ok()


async def evict(api: Api, name: str = "a", options: Json | None = None, **query: str) -> Reply:
    """Evicts a pod."""
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    if options is not None:
        body["deleteOptions"] = options
    return await api.call("POST", api.path("pods", name, "eviction"), body, query)


async def case_a_pod_is_evicted(api: Api) -> None:
    await pod(api)
    answer = await evict(api)
    assert answer.code == 201
    assert answer.body["status"] == "Success"
    (await api.get("pods", "a")).refused(404, "NotFound")
    (await evict(api)).refused(404, "NotFound", 'pods "a" not found')


async def case_an_eviction_can_be_tried(api: Api) -> None:
    await pod(api)
    assert (await evict(api, dryRun="All")).code == 201
    (await api.get("pods", "a")).ok()


async def case_an_eviction_has_preconditions(api: Api) -> None:
    await pod(api)
    refused = await evict(api, options={"preconditions": {"uid": "other"}})
    refused.refused(409, "Conflict", "the UID in the precondition (other) does not match the UID in record")


async def case_an_eviction_names_its_pod(api: Api) -> None:
    await pod(api)
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "b"}}
    refused = await api.call("POST", api.path("pods", "a", "eviction"), body)
    refused.refused(400, "BadRequest", "name in URL does not match name in Eviction object")


async def case_a_budget_refuses_an_eviction(api: Api) -> None:
    await pod(api)
    await budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1, expectedPods=1)
    refused = await evict(api)
    refused.refused(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    (cause,) = refused.body["details"]["causes"]
    assert cause == {
        "reason": "DisruptionBudget",
        "message": "The disruption budget a needs 1 healthy pods and has 1 currently",
    }
    (await api.get("pods", "a")).ok()


async def case_a_budget_is_used_up(api: Api) -> None:
    await pod(api, "a")
    await pod(api, "b")
    await budget(api, disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    assert (await evict(api, "a")).code == 201
    status = (await api.get("poddisruptionbudgets", "a")).body["status"]
    assert status["disruptionsAllowed"] == 0
    assert list(status["disruptedPods"]) == ["a"]
    (await evict(api, "b")).refused(429, "TooManyRequests")


async def case_pods_that_do_not_run_need_no_budget(api: Api) -> None:
    await pod(api, phase="Failed")
    await budget(api, disruptionsAllowed=0, currentHealthy=0, desiredHealthy=1, expectedPods=1)
    assert (await evict(api)).code == 201


async def case_pods_that_are_not_ready_cost_no_budget_while_enough_are(api: Api) -> None:
    await pod(api, ready=False)
    await budget(api, disruptionsAllowed=0, currentHealthy=1, desiredHealthy=1, expectedPods=2)
    assert (await evict(api)).code == 201


async def case_two_budgets_are_one_too_many(api: Api) -> None:
    await pod(api)
    await budget(api, "a", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    await budget(api, "b", disruptionsAllowed=1, currentHealthy=2, desiredHealthy=1, expectedPods=2)
    refused = await evict(api)
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert (refused.code, refused.message) == (500, text)


# Tokens, logs, reviews


async def account(api: Api) -> Reply:
    """A service account."""
    return (
        await api.create("serviceaccounts", {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}})
    ).ok()


async def request_token(api: Api, name: str = "s", **spec: Any) -> Reply:
    """Asks for a token."""
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    return await api.call("POST", api.path("serviceaccounts", name, "token"), body)


async def review(api: Api, group: str, plural: str, kind: str, spec: Json) -> Json:
    """The status of a review."""
    body: Json = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
    answer = await api.call("POST", f"/apis/{group}/v1/{plural}", body)
    assert answer.code == 201
    return answer.body["status"]


async def case_a_token_is_given_out(api: Api) -> None:
    made = await account(api)
    given = await request_token(api, expirationSeconds=600, audiences=["x"])
    assert given.code == 201
    assert given.metadata["uid"] == made.metadata["uid"]
    assert (given.body["spec"]["audiences"], given.body["spec"]["expirationSeconds"]) == (["x"], 600)
    assert given.body["status"]["token"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", given.body["status"]["expirationTimestamp"])
    assert (await request_token(api)).body["spec"]["expirationSeconds"] == 3600


async def case_token_requests_are_checked(api: Api) -> None:
    await account(api)
    refused = await request_token(api, expirationSeconds=10)
    refused.refused(422, "Invalid", "spec.expirationSeconds: Invalid value: 10: may not specify a duration less than")
    (await request_token(api, "other")).refused(404, "NotFound", 'serviceaccounts "other" not found')
    (await api.get("serviceaccounts", "s", "token")).refused(405, "MethodNotAllowed")


async def case_a_token_tells_who_holds_it(api: Api) -> None:
    await account(api)
    token = (await request_token(api)).body["status"]["token"]
    status = await review(api, "authentication.k8s.io", "tokenreviews", "TokenReview", {"token": token})
    assert status["authenticated"] is True
    assert status["user"]["username"] == f"system:serviceaccount:{api.namespace}:s"
    assert f"system:serviceaccounts:{api.namespace}" in status["user"]["groups"]


async def case_unknown_tokens_are_nobodys(api: Api) -> None:
    status = await review(api, "authentication.k8s.io", "tokenreviews", "TokenReview", {"token": "x"})
    assert status == {"user": {}, "error": "invalid bearer token"}


async def case_what_an_administrator_may_do(api: Api) -> None:
    spec = {"user": "root", "groups": ["system:masters"], "nonResourceAttributes": {"path": "/x", "verb": "get"}}
    status = await review(api, "authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", spec)
    assert status["allowed"] is True


async def case_logs_of_whom_there_is_not(api: Api) -> None:
    (await api.get("pods", "a", "log")).refused(404, "NotFound", 'pods "a" not found')
    await pod(api)
    refused = await api.call("GET", api.path("pods", "a", "log"), None, {"container": "other"})
    refused.refused(400, "BadRequest", "container other is not valid for pod a")


async def case_collections_of_all_namespaces_are_not_deleted(api: Api) -> None:
    (await api.call("DELETE", "/api/v1/configmaps")).refused(405, "MethodNotAllowed")


async def case_subresources_are_told_by_discovery(api: Api) -> None:
    found = (await api.call("GET", f"/apis/{GROUP}/v1")).ok().body
    scale = next(r for r in found["resources"] if r["name"] == "scaleds/scale")
    assert (scale["group"], scale["version"], scale["kind"]) == ("autoscaling", "v1", "Scale")
    found = (await api.call("GET", "/api/v1")).ok().body
    assert {"pods/eviction", "pods/log", "serviceaccounts/token"} <= {r["name"] for r in found["resources"]}
