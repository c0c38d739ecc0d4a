"""Admission webhooks called by the in-memory API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from steersman.api.authorization_v1 import SubjectAccessReview
from steersman.api.core_v1 import ConfigMap, Pod, Secret
from steersman.client import Client, MergePatch
from steersman.errors import ConfigurationError, Forbidden, InternalError, Invalid
from steersman.manager import Manager
from steersman.meta import (
    ApiResource,
    FrozenDict,
    FrozenStruct,
    ObjectKey,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    Unstructured,
    resource,
    unstructured,
)
from steersman.webhook import (
    AdmissionRequest,
    AdmissionWarning,
    Denied,
    FieldError,
    UserInfo,
    WebhookOptions,
    WebhookServerOptions,
)
from steersman_manifests.crd import definition
from steersman_manifests.rbac import cluster_role
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time
from steersman_testing.webhooks import serve_webhooks


class Port(FrozenStruct):
    name: str
    number: int = 80


class ShopSpec(Spec):
    replicas: int = 1
    domain: str = ""
    ports: tuple[Port, ...] = ()


@resource(group="example.com", version="v1")
class Shop(Resource[ShopSpec, Status]):
    """A shop."""


KEY = ObjectKey("default", "till")


class AdmissionCluster:
    """An API server and a manager with webhooks for ``Shop``."""

    def __init__(self) -> None:
        runtime = virtual_runtime()
        self.server = InMemoryApiServer(runtime)
        self.manager = Manager(self.server, runtime=runtime)
        self.client = Client(self.server, field_manager="user")
        crd = definition(Shop)
        spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        # The operator that runs is older than the definition.
        spec["properties"]["colour"] = {"type": "string"}
        spec["properties"]["ports"]["items"]["properties"]["protocol"] = {"type": "string"}
        self.server.load(crd)

    def serve(self) -> None:
        serve_webhooks(self.server, self.manager)

    async def create_shop(self, **spec: Any) -> Unstructured:
        kind = unstructured(Shop.api_resource)
        return await self.client.create(
            kind.of({"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "spec": spec})
        )

    async def update_shop(self, **spec: Any) -> Unstructured:
        return await self.client.patch(unstructured(Shop.api_resource), KEY, MergePatch({"spec": spec}))


def default_shop(shop: Shop, request: AdmissionRequest) -> Shop:
    domain = shop.spec.domain or f"{request.name}.example.com"
    ports = tuple(replace(p, number=8080) if p.name == "http" else p for p in shop.spec.ports)
    return replace(shop, spec=replace(shop.spec, domain=domain, ports=(Port(name="probe"), *ports)))


@virtual_time
async def test_defaulting_patch_has_only_handler_changes() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).defaults(default_shop)
    cluster.serve()
    http, other = {"name": "http", "number": 1, "protocol": "TCP"}, {"name": "x", "protocol": "UDP"}
    made = await cluster.create_shop(colour="red", ports=[http, other])
    spec = json.loads(json.dumps(made.content["spec"]))
    probe = {"name": "probe", "number": 80}
    assert spec == {
        "replicas": 1,
        "colour": "red",
        "domain": "till.example.com",
        "ports": [probe, {**http, "number": 8080}, {**other, "number": 80}],
    }


@virtual_time
async def test_merge_reset_to_default_is_written() -> None:
    cluster = AdmissionCluster()

    def one(shop: Shop) -> Shop:
        return replace(shop, spec=replace(shop.spec, replicas=1, domain=""))

    cluster.manager.webhook(Shop).defaults(one)
    cluster.serve()
    made = await cluster.create_shop(replicas=7, domain="x")
    assert (made.content["spec"]["replicas"], made.content["spec"]["domain"]) == (1, "")


@virtual_time
async def test_defaulting_async_handler_and_untyped_object() -> None:
    cluster = AdmissionCluster()

    async def label(pod: Pod, request: AdmissionRequest) -> Pod:
        await asyncio.sleep(0.1)
        labels = {**pod.metadata.labels, "by/us": request.user.username}
        return replace(pod, metadata=replace(pod.metadata, labels=FrozenDict(labels)))

    def note(config: Unstructured) -> Unstructured:
        content = config.to_dict()
        content["metadata"]["annotations"] = {"a/b_c": "1"}
        return type(config).of(content)

    cluster.manager.webhook(Pod).defaults(label)
    cluster.manager.webhook(unstructured(ConfigMap.api_resource)).defaults(note)
    cluster.serve()
    config = await cluster.client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
    assert config.metadata.annotations == {"a/b_c": "1"}
    containers = [{"name": "a", "image": "b"}]
    pod = unstructured(Pod.api_resource).of(
        {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers}}
    )
    made = await cluster.client.create(pod)
    assert list(made.metadata.labels) == ["by/us"]


def validate_shop(shop: Shop, old: Shop | None) -> Iterator[FieldError | AdmissionWarning]:
    if shop.spec.replicas < 0:
        yield FieldError("spec.replicas", "must be 0 or more")
    if old is not None and old.spec.domain != shop.spec.domain:
        yield FieldError("spec.domain", "cannot be changed", reason="FieldValueForbidden")
    if shop.spec.replicas == 1:
        yield AdmissionWarning("one\nreplica " + "x" * 300)


@virtual_time
async def test_denial_lists_all_causes_with_fields() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates(validate_shop)
    cluster.serve()
    await cluster.create_shop(domain="a", replicas=2)
    with pytest.raises(Invalid) as caught:
        await cluster.update_shop(domain="b", replicas=-1)
    assert str(caught.value) == (
        'admission webhook "validate.shop.v1.example.com" denied the request: '
        "spec.replicas: must be 0 or more; spec.domain: cannot be changed"
    )
    assert [(c.field, c.reason) for c in caught.value.causes] == [
        ("spec.replicas", "FieldValueInvalid"),
        ("spec.domain", "FieldValueForbidden"),
    ]
    assert caught.value.status.details is not None
    assert (caught.value.status.details.kind, caught.value.status.details.name) == ("Shop", "till")
    await cluster.update_shop(replicas=3)


async def post_review(manager: Manager, path: str, query: str = "", **request: Any) -> tuple[int, Any]:
    asked: dict[str, Any] = {"uid": "1-2", "operation": "CREATE", "name": "till", "userInfo": {}, **request}
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    response = await manager.webhooks.handle(path, query, json.dumps(review).encode())
    content = json.loads(response.body)["response"] if response.status == 200 else response.body.decode()
    return response.status, content


VALIDATE, MUTATE = "/validate-example-com-v1-shop", "/mutate-example-com-v1-shop"


def document(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": "Shop", "metadata": {"name": "till"}, "spec": spec}


@virtual_time
async def test_warnings_are_sanitized_and_truncated() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates(validate_shop)
    status, response = await post_review(cluster.manager, VALIDATE, object=document())
    assert (status, response["allowed"], response["uid"]) == (200, True, "1-2")
    (warning,) = response["warnings"]
    assert warning.startswith("one replica xxx")
    assert len(warning) == 256


@virtual_time
async def test_deletion_handler_denies_delete() -> None:
    cluster = AdmissionCluster()

    async def keep(shop: Shop) -> AsyncIterator[FieldError]:
        if shop.spec.replicas > 1:
            yield FieldError("", "scale it down first")

    cluster.manager.webhook(Shop).validates_deletion(keep)
    cluster.serve()
    await cluster.create_shop(replicas=2)
    with pytest.raises(Invalid, match="denied the request: scale it down first"):
        await cluster.client.delete(Shop, KEY)
    await cluster.update_shop(replicas=1)
    await cluster.client.delete(Shop, KEY)
    assert cluster.server.read(Shop, KEY) is None


@virtual_time
async def test_denial_without_causes_has_message() -> None:
    cluster = AdmissionCluster()

    def closed(shop: Shop, old: Shop | None) -> None:
        raise Denied("the shop is closed")

    cluster.manager.webhook(Shop).validates(closed)
    cluster.serve()
    with pytest.raises(Forbidden, match="denied the request: the shop is closed"):
        await cluster.create_shop()


@virtual_time
async def test_failing_handler_returns_500_without_details() -> None:
    cluster = AdmissionCluster()

    def broken(shop: Shop, old: Shop | None) -> None:
        raise ValueError("hunter2")

    cluster.manager.webhook(Shop).validates(broken)
    cluster.manager.webhook(Shop, WebhookOptions(name="lenient", failure_policy="Ignore")).validates(broken)
    cluster.serve()
    with pytest.raises(
        InternalError, match=r"admission handler failed; see the logs of the operator \(review "
    ) as caught:
        await cluster.create_shop()
    assert "hunter2" not in str(caught.value)
    assert "lenient" not in str(caught.value)


@virtual_time
async def test_handler_timeout_precedes_webhook_timeout() -> None:
    cluster = AdmissionCluster()

    async def slow(shop: Shop, old: Shop | None) -> None:
        await asyncio.sleep(60)

    cluster.manager.webhook(Shop, WebhookOptions(timeout_seconds=5)).validates(slow)
    loop = asyncio.get_running_loop()
    for query, taken in (("", 4.5), ("timeout=2s", 1.8), ("timeout=30s", 4.5)):
        begun = loop.time()
        status, text = await post_review(cluster.manager, VALIDATE, query, object=document())
        assert (status, text) == (500, f"admission handler timed out after {taken} s (review 1-2)\n")
        assert loop.time() - begun == pytest.approx(taken)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"name": "other"}}, "metadata.name"),
        ({"status": {"observedGeneration": 1}}, "status"),
    ],
)
@virtual_time
async def test_defaulting_immutable_field_returns_500(change: dict[str, Any], message: str) -> None:
    cluster = AdmissionCluster()
    kind = unstructured(Shop.api_resource)
    cluster.manager.webhook(kind).defaults(lambda shop: type(shop).of({**shop.to_dict(), **change}))
    status, text = await post_review(cluster.manager, MUTATE, object=document())
    assert status == 500
    assert message not in text


@virtual_time
async def test_defaulting_status_subresource_changes_status() -> None:
    cluster = AdmissionCluster()
    options = WebhookOptions(subresource="status")
    cluster.manager.webhook(Shop, options).defaults(lambda shop: replace(shop, status=Status(observed_generation=3)))
    path = f"{MUTATE}-status"
    status, response = await post_review(cluster.manager, path, object=document(), subResource="status")
    patch = json.loads(base64.b64decode(response["patch"]))
    assert (status, patch) == (200, [{"op": "add", "path": "/status", "value": {"observedGeneration": 3}}])
    assert (await post_review(cluster.manager, path, object=document()))[0] == 400


@virtual_time
async def test_webhook_handles_undecodable_objects() -> None:
    cluster = AdmissionCluster()
    seen: list[Shop | None] = []

    def inspect_object(shop: Shop, old: Shop | None) -> None:
        seen.append(old)

    cluster.manager.webhook(Shop).validates(inspect_object).validates_deletion(lambda shop: [FieldError("", "no")])
    odd = document(replicas="many")
    status, response = await post_review(cluster.manager, VALIDATE, object=odd)
    assert (status, response["allowed"], response["status"]["code"]) == (200, False, 422)
    assert response["status"]["message"].endswith("Expected `int`, got `str` - at `$.spec.replicas`")
    # Stored invalid objects can be repaired.
    update = await post_review(cluster.manager, VALIDATE, object=document(), oldObject=odd, operation="UPDATE")
    assert update[1]["allowed"]
    assert seen == [None]


@pytest.mark.parametrize("replicas", ["many", None])
@virtual_time
async def test_deletion_of_undecodable_object_is_denied(replicas: str | None) -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates_deletion(lambda shop: [])
    stored: dict[str, Any] = {"oldObject": document(replicas=replicas)} if replicas else {}
    _, response = await post_review(cluster.manager, VALIDATE, operation="DELETE", **stored)
    assert not response["allowed"]


@virtual_time
async def test_deletion_without_validators_is_allowed() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates(validate_shop)
    odd = document(replicas="many")
    assert (await post_review(cluster.manager, VALIDATE, oldObject=odd, operation="DELETE"))[1]["allowed"]


@virtual_time
async def test_defaulting_of_integer_to_boolean_is_a_change() -> None:
    cluster = AdmissionCluster()

    def enable(shop: Unstructured) -> Unstructured:
        content = shop.to_dict()
        content["spec"]["enabled"] = True
        return type(shop).of(content)

    cluster.manager.webhook(unstructured(Shop.api_resource)).defaults(enable)
    _, response = await post_review(cluster.manager, MUTATE, object=document(enabled=1))
    patch = json.loads(base64.b64decode(response["patch"]))
    assert patch == [{"op": "replace", "path": "/spec/enabled", "value": True}]


@virtual_time
async def test_review_of_deeply_nested_object_returns_400() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates(validate_shop)
    deep = b'{"x":' * 3000 + b"1" + b"}" * 3000
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"object": "DEEP"}}
    body = json.dumps(review).encode().replace(b'"DEEP"', deep)
    assert (await cluster.manager.webhooks.handle(VALIDATE, "", body)).status == 400


@virtual_time
async def test_malformed_review_returns_400() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).validates(validate_shop)
    for body in (b"", b"{}", b"\xff", b'{"apiVersion":"x","kind":"y","request":{"operation":"CREATE"}}'):
        assert (await cluster.manager.webhooks.handle(VALIDATE, "", body)).status == 400
    assert (await cluster.manager.webhooks.handle("/validate-pods", "", b"{}")).status == 404


@virtual_time
async def test_authorizer_sends_access_review_for_user() -> None:
    cluster = AdmissionCluster()
    role = {"metadata": {"name": "one"}, "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}
    role |= {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    cluster.server.grant("jane", role, namespace="default")
    jane, john = UserInfo(username="jane"), UserInfo(username="john")
    assert await jane.is_allowed(cluster.client, "get", Secret, namespace="default", name="a")
    assert not await jane.is_allowed(cluster.client, "get", Secret, namespace="kube-system")
    assert not await john.is_allowed(cluster.client, "get", Secret, namespace="default")


def test_invalid_declarations_raise() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop)
    with pytest.raises(ConfigurationError, match="webhook example-com-v1-shop is declared twice"):
        cluster.manager.webhook(Shop)
    with pytest.raises(ConfigurationError, match=r"must take an object and, optionally, the AdmissionRequest"):
        cluster.manager.webhook(Pod).defaults(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="timeout_seconds must be between 1 and 30, not 31"):
        WebhookOptions(timeout_seconds=31)


def test_configurations_follow_declarations() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).defaults(default_shop).validates(validate_shop).validates_deletion(lambda _: None)
    conditions = {"ours": "object.metadata.name != 'x'"}
    options = WebhookOptions(
        name="exec",
        operations=("CONNECT",),
        resource=Pod.api_resource,
        subresource="exec",
        match_conditions=conditions,
        namespace_selector={"matchLabels": {"a": "b"}},
    )
    exec_options = unstructured(ApiResource("", "v1", "PodExecOptions", "pods"))
    cluster.manager.webhook(exec_options, options).validates(lambda asked, former: None)
    cluster.manager.webhook(Pod).needs(SubjectAccessReview, "create")
    serving = WebhookServerOptions(service="shop", namespace="sys")
    mutating, validating = cluster.manager.webhooks.configurations(serving)
    assert (mutating["kind"], mutating["metadata"]) == ("MutatingWebhookConfiguration", {"name": "shop"})
    (entry,) = mutating["webhooks"]
    assert entry == {
        "name": "mutate.shop.v1.example.com",
        "clientConfig": {"service": {"name": "shop", "namespace": "sys", "path": MUTATE, "port": 443}},
        "rules": [
            {
                "apiGroups": ["example.com"],
                "apiVersions": ["v1"],
                "resources": ["shops"],
                "operations": ["CREATE", "UPDATE"],
                "scope": "Namespaced",
            }
        ],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    }
    first, second = validating["webhooks"]
    assert first["rules"][0]["operations"] == ["CREATE", "UPDATE", "DELETE"]
    assert second["name"] == "validate.exec.exec.pod.v1.core.k8s.io"
    assert second["rules"][0]["resources"] == ["pods/exec"]
    assert second["matchConditions"] == [{"name": "ours", "expression": conditions["ours"]}]
    assert cluster.manager.webhooks.ca_bundle_targets(serving)[0][1] == "shop"
    rules = cluster_role("x", cluster.manager.webhooks.permissions(serving))["rules"]
    assert rules[0]["resources"] == ["subjectaccessreviews"]
    assert rules[1] == {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
        "verbs": ["get", "watch", "patch"],
        "resourceNames": ["shop"],
    }


@virtual_time
async def test_secrets_webhook_skips_its_own_secret() -> None:
    cluster = AdmissionCluster()

    def closed(secret: Secret, old: Secret | None) -> None:
        raise Denied("no secrets")

    serving = WebhookServerOptions(service="webhooks", namespace="default")
    cluster.manager.webhook(Secret).validates(closed)
    serve_webhooks(cluster.server, cluster.manager, serving)
    await cluster.client.create(Secret(metadata=ObjectMeta(name="webhooks-cert", namespace="default")))
    with pytest.raises(Forbidden, match="no secrets"):
        await cluster.client.create(Secret(metadata=ObjectMeta(name="other", namespace="default")))


@virtual_time
async def test_webhooks_served_in_process_log_no_warning() -> None:
    cluster = AdmissionCluster()
    cluster.manager.webhook(Shop).defaults(default_shop)
    cluster.serve()
    with capture_logs() as lines:
        running = asyncio.create_task(cluster.manager.run())
        await asyncio.sleep(1)
        cluster.manager.stop()
        await running
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == []
