"""Features that the reference lists as not implemented are rejected with 501."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiserver_cases import CRDS, Api
from apiserver_cases.api import GROUP, ApiResponse, Json, config_map, definition, deployment
from apiserver_cases.backends import InMemoryBackend
from apiserver_cases.roles import RBAC, policy_rule, role_manifest
from apiserver_cases.subresources import create_service_account, request_token
from apiserver_cases.waiting import create_and_wait
from steersman.client import HttpRequest
from steersman.errors import ApiError
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.apiserver.kubectl.impersonation import ImpersonatedUser

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
COMPARED = {"rule": "timestamp(self.at) > timestamp(0) && duration(self.of) < duration('1us')"}
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
CONTAINERS = [{"name": "c", "image": "i:1"}]
CLAIM_SPEC: Json = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}


@pytest.fixture
def api() -> Api:
    server = InMemoryApiServer(virtual_runtime())
    server.load(*CRDS)
    return Api(server, "default")


def pod(**spec: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": {"containers": CONTAINERS, **spec}}


def pvc(**spec: Any) -> Json:
    return {"metadata": {"name": "a"}, "spec": {**CLAIM_SPEC, **spec}}


def assert_not_implemented(response: ApiResponse, text: str) -> None:
    response.expect_error(501, "NotImplemented", f"the in-memory API server does not implement this: {text}")


@pytest.mark.parametrize("subresource", ["attach", "binding", "ephemeralcontainers", "exec", "portforward", "proxy"])
@virtual_time
async def test_pod_subresources_return_501(api: Api, subresource: str) -> None:
    (await api.create("pods", pod())).expect_success()
    for method in ("GET", "POST"):
        answer = await api.call(method, api.path("pods", "a", subresource), {})
        assert_not_implemented(answer, f"the subresource pods/{subresource}")


@virtual_time
async def test_service_and_node_proxies_return_501(api: Api) -> None:
    assert_not_implemented(
        await api.call("GET", api.path("services", "a", "proxy")), "the subresource services/proxy"
    )
    assert_not_implemented(await api.call("GET", "/api/v1/nodes/a/proxy"), "the subresource nodes/proxy")
    assert_not_implemented(
        await api.call("GET", "/api/v1/nodes/a/proxy/stats/summary"), "the subresource nodes/proxy"
    )


@virtual_time
async def test_apply_to_scale_returns_501(api: Api) -> None:
    created = (await api.create("deployments", deployment("a"))).expect_success()
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 3}}
    assert_not_implemented(
        await api.apply("deployments", scale, subresource="scale"), "server-side apply to this subresource"
    )
    assert (await api.get("deployments", "a")).body == created.body


@pytest.mark.parametrize("field", ["priorityClassName", "runtimeClassName"])
@virtual_time
async def test_pod_classes_return_501(api: Api, field: str) -> None:
    assert_not_implemented(await api.create("pods", pod(**{field: "some"})), f"{field} of a pod")
    (await api.get("pods", "a")).expect_error(404, "NotFound")


@virtual_time
async def test_enforced_pod_security_returns_501(api: Api) -> None:
    label = "pod-security.kubernetes.io/enforce"
    for level in ("baseline", "restricted"):
        patch = {"metadata": {"labels": {label: level}}}
        path, content_type = "/api/v1/namespaces/default", "application/merge-patch+json"
        (await api.call("PATCH", path, patch, None, content_type)).expect_success()
        text = f"the Pod Security Standard {level}, which namespace default enforces"
        assert_not_implemented(await api.create("pods", pod()), text)
    (await api.create("configmaps", config_map("a"))).expect_success()


@virtual_time
async def test_limit_ranges_return_501(api: Api) -> None:
    limits = {"metadata": {"name": "l"}, "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}
    (await api.create("limitranges", limits)).expect_success()
    for plural, body in (("pods", pod()), ("persistentvolumeclaims", pvc())):
        assert_not_implemented(await api.create(plural, body), f"enforcing the LimitRange l on {plural}")
    (await api.create("configmaps", config_map("a"))).expect_success()


@pytest.mark.parametrize(
    ("hard", "plural", "body"),
    [
        ("pods", "pods", pod()),
        ("limits.cpu", "pods", pod()),
        ("requests.storage", "persistentvolumeclaims", pvc()),
        ("count/deployments.apps", "deployments", deployment("a")),
        ("count/secrets", "secrets", {"metadata": {"name": "a"}}),
        ("services.nodeports", "services", {"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}]}}),
        ("count/gadgets.cases.steersman.dev", "gadgets", None),
    ],
)
@virtual_time
async def test_quotas_return_501(api: Api, hard: str, plural: str, body: Json | None) -> None:
    (await api.create("resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": {hard: "1"}}})).expect_success()
    gadget = {"apiVersion": "cases.steersman.dev/v1", "kind": "Gadget", "metadata": {"name": "a"}}
    assert_not_implemented(await api.create(plural, body or gadget), f"counting {plural} for the ResourceQuota q")
    (await api.create("configmaps", config_map("a"))).expect_success()


@virtual_time
async def test_default_storage_class_returns_501(api: Api) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": "fast", "annotations": annotations}, "provisioner": "p"}
    (await api.call("POST", "/apis/storage.k8s.io/v1/storageclasses", body)).expect_success()
    text = "defaulting storageClassName of a PVC to the StorageClass fast"
    assert_not_implemented(await api.create("persistentvolumeclaims", pvc()), text)
    (await api.create("persistentvolumeclaims", pvc(storageClassName=""))).expect_success()


@virtual_time
async def test_table_of_deleted_object_returns_501(api: Api) -> None:
    (await api.create("configmaps", config_map("a", finalizers=["example.com/hold"]))).expect_success()
    for path in (api.path("configmaps", "a"), api.path("configmaps")):
        assert_not_implemented(await api.call("DELETE", path, accept=TABLE), "a Table of what was deleted")
    assert "deletionTimestamp" not in (await api.get("configmaps", "a")).metadata


@pytest.mark.parametrize("path", ["apis/certificates.k8s.io/v1/certificatesigningrequests", "api/v1/podtemplates"])
@virtual_time
async def test_unserved_kinds_return_404(api: Api, path: str) -> None:
    assert (await api.call("GET", f"/{path}")).code == 404


async def streamed(api: Api, path: str, method: str = "GET", body: Json | None = None) -> ApiError:
    request = HttpRequest(method=method, path=path, body=json.dumps(body).encode())
    with pytest.raises(ApiError) as denial:
        async with api.transport.stream(request):
            pass
    return denial.value


@virtual_time
async def test_streaming_other_paths_returns_an_error(api: Api) -> None:
    (await api.create("pods", pod())).expect_success()
    (await api.create("configmaps", config_map("a"))).expect_success()
    eviction: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
    for path, method, body in (
        (api.path("pods", "a", "status"), "GET", None),
        (api.path("pods", "a", "eviction"), "POST", eviction),
        (api.path("configmaps", "a", "log"), "GET", None),
        (api.path("configmaps", "a"), "GET", None),
    ):
        assert (await streamed(api, path, method, body)).code == 501, path
    assert "deletionTimestamp" not in (await api.get("pods", "a")).expect_success().metadata
    assert (await streamed(api, api.path("configmaps", "a", "status"))).code == 404


@virtual_time
async def test_rule_cost_at_runtime_is_limited(api: Api) -> None:
    rule = {"rule": "self.all(x, self.exists_one(y, x == y))", "message": "twice"}
    items = {"type": "array", "maxItems": 1500, "items": {"type": "integer"}, "x-kubernetes-validations": [rule]}
    path = await create_and_wait(
        api, definition("Budgeted", {"spec": {"type": "object", "properties": {"items": items}}}, {})
    )

    def body(*numbers: int) -> Json:
        return {
            "metadata": {"name": "a"},
            "kind": "Budgeted",
            "apiVersion": f"{GROUP}/v1",
            "spec": {"items": numbers},
        }

    text = "CEL rules on an object so large that they may cost more than the real server allows"
    assert_not_implemented(await api.call("POST", path, body(*range(1500))), text)
    (await api.call("POST", path, body(1, 1))).expect_error(422, "Invalid", "twice")
    assert_not_implemented(
        await api.call("POST", path, body(*range(101))), "CEL that goes over more than 10,000 items in one evaluation"
    )
    (await api.call("POST", path, body(*range(99)))).expect_success()


@virtual_time
async def test_rule_with_nanoseconds_returns_501(api: Api) -> None:
    times: Json = {"at": {"type": "string", "format": "date-time"}, "of": {"type": "string", "format": "duration"}}
    spec = {"type": "object", "properties": times, "x-kubernetes-validations": [{"rule": "true"}]}
    path = await create_and_wait(api, definition("Timed", {"spec": spec}, {}))

    async def dry_run(**spec: str) -> ApiResponse:
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Timed", "metadata": {"generateName": "a-"}, "spec": spec}
        return await api.call("POST", path, body)

    text = "parts of a microsecond in CEL, such as those of "
    for field, value in (("at", "2024-01-02T03:04:05.000006001Z"), ("of", "1500ns")):
        assert_not_implemented(await dry_run(**{field: value}), text + value)
    for field, value in (("at", "2024-01-02T03:04:05.000006000Z"), ("of", "2000ns")):
        (await dry_run(**{field: value})).expect_success()


@virtual_time
async def test_rule_converting_nanoseconds_returns_501(api: Api) -> None:
    sorted_ = "[timestamp(self.at), timestamp('2025-01-01T00:00:00Z')].isSorted()"
    rule = f"{sorted_} && [duration(self.of)].sum() > duration('1us')"
    texts: Json = {"type": "object", "properties": {"at": {"type": "string"}, "of": {"type": "string"}}}
    texts["x-kubernetes-validations"] = [{"rule": rule, "message": "late"}]
    path = await create_and_wait(api, definition("Parsed", {"spec": texts}, {}))

    def body(kind: str) -> Json:
        return {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"generateName": "a-"}}

    async def dry_run(at: str, of: str) -> ApiResponse:
        return await api.call("POST", path, {**body("Parsed"), "spec": {"at": at, "of": of}})

    text = "parts of a microsecond in CEL, such as those of "
    fine = "2024-01-02T03:04:05.1234567Z"
    assert_not_implemented(await dry_run(fine, "1s"), text + fine)
    assert_not_implemented(await dry_run("2024-01-02T03:04:05Z", "1m1.0000005s"), text + "1m1.0000005s")
    (await dry_run("2024-01-02T03:04:05.123456000Z", "1.5ms")).expect_success()
    (await dry_run("2026-01-02T03:04:05Z", "1s")).expect_error(422, "Invalid", "late")
    for of in ("1x", f"{10**40}h"):
        (await dry_run("2024-01-02T03:04:05Z", of)).expect_error(
            422, "Invalid", "type conversion error from 'string'"
        )
    compared = create_and_wait(
        api, definition("Compared", {"spec": {**texts, "x-kubernetes-validations": [COMPARED]}}, {})
    )
    (await api.call("POST", await compared, {**body("Compared"), "spec": {"at": fine, "of": "1ns"}})).expect_success()
    texts["x-kubernetes-validations"] = [{"rule": "'%s'.format([duration('1ns')]) != ''"}]
    written = await create_and_wait(api, definition("Written", {"spec": texts}, {}))
    assert_not_implemented(await api.call("POST", written, {**body("Written"), "spec": {}}), text + "1ns")
    texts["x-kubernetes-validations"] = [{"rule": "'%s'.format([timestamp(dyn(self.at))]) != ''"}]
    manifest = definition("Hidden", {"spec": texts}, {})
    assert_not_implemented(
        await api.call("POST", DEFINITIONS, manifest), "a timestamp that CEL makes of the type dyn"
    )


@virtual_time
async def test_rule_cost_includes_map_keys(api: Api) -> None:
    rule = {"rule": "self.all(k, self.all(l, k.contains(l) || true))"}
    named: Json = {"type": "object", "additionalProperties": {"type": "integer"}, "maxProperties": 50}
    named["x-kubernetes-validations"] = [rule]
    path = await create_and_wait(
        api, definition("Keyed", {"spec": {"type": "object", "properties": {"of": named}}}, {})
    )

    async def dry_run(length: int) -> ApiResponse:
        keys = {f"{n:0{length}}": n for n in range(50)}
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Keyed", "metadata": {"generateName": "a-"}}
        return await api.call("POST", path, {**body, "spec": {"of": keys}})

    (await dry_run(10)).expect_success()
    text = "CEL rules on an object so large that they may cost more than the real server allows"
    assert_not_implemented(await dry_run(10_000), text)


@virtual_time
async def test_apply_new_object_with_deletion_timestamp_returns_501(api: Api) -> None:
    body = config_map("new", deletionTimestamp="2020-01-01T00:00:00Z")
    assert_not_implemented(await api.apply("configmaps", body), "a deletionTimestamp that is applied to a new object")
    (await api.apply("configmaps", config_map("new"))).expect_success()
    (await api.apply("configmaps", body)).expect_error(422, "Invalid", "field is immutable")


@virtual_time
async def test_constrained_impersonation_returns_501() -> None:
    server = InMemoryApiServer(virtual_runtime())
    api = Api(server, "default", InMemoryBackend(server))
    await create_service_account(api)
    token = (await request_token(api)).expect_success().body["status"]["token"]
    as_jane = api.as_bearer(token, ImpersonatedUser("jane"))
    (await as_jane.list("configmaps")).expect_error(403, "Forbidden")
    narrow = policy_rule("impersonate:user-info", "users", "authentication.k8s.io", resourceNames=["jane"])
    server.grant(
        "system:serviceaccount:default:s",
        {**role_manifest("narrow", narrow), "kind": "ClusterRole", "apiVersion": f"{RBAC}/v1"},
    )
    assert_not_implemented(await as_jane.list("configmaps"), "the verb impersonate:user-info")
    (await api.as_bearer(token, ImpersonatedUser("kate")).list("configmaps")).expect_error(403, "Forbidden")


@virtual_time
async def test_rule_cost_uses_name_length_limit(api: Api) -> None:
    name = "self.metadata.name.matches('^[a-z]([-a-z0-9]{0,43}[a-z0-9])?$')"
    manifest = definition("Named", {"spec": {"type": "object"}}, {})
    manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": name}]
    path = await create_and_wait(api, manifest)
    body: dict[str, Any] = {"apiVersion": f"{GROUP}/v1", "kind": "Named", "spec": {}}
    (await api.call("POST", path, {**body, "metadata": {"name": "a-name"}})).expect_success()
    (await api.call("POST", path, {**body, "metadata": {"name": "1"}})).expect_error(422, "Invalid", "failed rule")


@virtual_time
async def test_quantity_with_thousands_of_digits_returns_501(api: Api) -> None:
    for written in ("9" * 5000, "1e1001"):
        body = {"metadata": {"name": "a"}, "spec": {"hard": {"cpu": written}}}
        assert_not_implemented(await api.create("resourcequotas", body), "quantities of thousands of digits")


@virtual_time
async def test_numbers_in_place_of_strings_return_400(api: Api) -> None:
    body = config_map("new", finalizers=[1.5])
    (await api.apply("configmaps", body)).expect_error(
        500, "", ".metadata.finalizers[=1.5]: expected string, got numeric"
    )
