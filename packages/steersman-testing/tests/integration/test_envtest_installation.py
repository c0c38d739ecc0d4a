"""Installation of definitions, webhooks and namespaces on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from framework_support.gadget import Gadget
from framework_support.loopback_server import running_server
from framework_support.widget import Widget, WidgetSpec
from steersman.api.admissionregistration_v1 import ValidatingWebhookConfiguration
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap, Namespace
from steersman.api.rbac_v1 import ClusterRole, ClusterRoleBinding, RoleBinding
from steersman.client import Client
from steersman.errors import BadRequest, ConfigurationError, Forbidden, Invalid, NotFound, SteersmanError
from steersman.meta import ApiResource, FrozenDict, ObjectKey, ObjectMeta, unstructured
from steersman_manifests.crd import definition
from steersman_testing.envtest import Envtest

pytestmark = pytest.mark.xdist_group("envtest-installation")

Json = dict[str, Any]

GROUP = "lights.example.com"
VERSIONS = ("v1", "v2")
SERVICE = {"service": {"name": "webapps", "namespace": "default", "path": "/convert"}}


@pytest.fixture(scope="module")
def own() -> Generator[Envtest]:
    """Start a separate server, because webhooks would affect other tests."""
    with Envtest.start() as environment:
        yield environment


async def test_install_crds_serves_the_type(envtest: Envtest, envtest_namespace: str) -> None:
    envtest.install_crds(Widget)
    async with envtest.client() as client:
        made = await client.create(_new_widget(envtest_namespace, depth=3))
        assert (await client.get(Widget, made.key)).spec.depth == 3
        with pytest.raises(Invalid, match="should be greater than or equal to 0"):
            await client.create(_new_widget(envtest_namespace, "b", depth=-1))


@pytest.mark.requirement("overview/integration-tests")
async def test_files_are_installed_and_changed(envtest: Envtest, envtest_namespace: str, tmp_path: Path) -> None:
    crd = definition(Gadget)
    crd["metadata"]["name"] = f"{crd['spec']['names']['plural']}.{GROUP}"
    crd["spec"]["group"] = GROUP
    # Formats of controller-gen and kubectl get -o yaml.
    crd["metadata"]["creationTimestamp"], crd["status"] = None, {"conditions": [], "storedVersions": []}
    (tmp_path / "lights.yaml").write_text(f"{yaml.safe_dump(crd)}---\nkind: Kustomization\n")
    envtest.install_crds(tmp_path)
    crd["spec"]["names"]["shortNames"] = ["lit"]
    (tmp_path / "lights.yaml").write_text(yaml.safe_dump(crd))
    envtest.install_crds(tmp_path / "lights.yaml")
    async with envtest.client() as client:
        found = await client.get(CustomResourceDefinition, ObjectKey("", crd["metadata"]["name"]))
    assert found.spec.names.short_names == ("lit",)


def test_install_crds_invalid_input_raises(envtest: Envtest, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"crds does not exist \(looked for in "):
        envtest.install_crds(tmp_path / "crds")
    with pytest.raises(ConfigurationError, match="has no MutatingWebhookConfiguration or ValidatingWebhook"):
        envtest.install_webhooks(Widget)
    beta = {**definition(Widget), "apiVersion": "apiextensions.k8s.io/v1beta1"}
    with pytest.raises(ConfigurationError, match=r"v1beta1, which is not served: use apiextensions\.k8s\.io/v1"):
        envtest.install_crds(beta)


async def test_webhooks_are_called_from_first_request(own: Envtest) -> None:
    def review(path: str, request: Json) -> Json:
        if path == "/mutate":
            patch = [{"op": "add", "path": "/data", "value": {"by": "webhook"}}]
            return {"patchType": "JSONPatch", "patch": base64.b64encode(json.dumps(patch).encode()).decode()}
        return {"allowed": request["object"]["data"]["by"] != "webhook" or request["name"] != "refused"}

    configurations = [_webhooks("Mutating", "/mutate"), _webhooks("Validating", "/validate")]
    async with _reviewing(own, review), own.client() as client:
        await asyncio.to_thread(own.install_webhooks, *configurations)
        made = await client.create(_config_map("taken"))
        assert made.data == {"by": "webhook"}
        with pytest.raises(BadRequest, match="denied the request"):
            await client.create(_config_map("refused"))


async def test_versions_are_converted_by_the_webhook_of_the_test(own: Envtest) -> None:
    def convert(_: str, request: Json) -> Json:
        wanted = request["desiredAPIVersion"]
        return {
            "result": {"status": "Success"},
            "convertedObjects": [{**o, "apiVersion": wanted, "via": "webhook"} for o in request["objects"]],
        }

    conversion = {"strategy": "Webhook", "webhook": {"clientConfig": SERVICE, "conversionReviewVersions": ["v1"]}}
    async with _reviewing(own, convert), own.client() as client:
        await asyncio.to_thread(own.install_crds, _versioned_crd(conversion))
        first, second = (unstructured(ApiResource(GROUP, v, "WebApp", "webapps")) for v in VERSIONS)
        metadata = {"name": "a", "namespace": "default"}
        await client.create(first.of({"apiVersion": f"{GROUP}/v1", "kind": "WebApp", "metadata": metadata}))
        converted = (await client.get(second, ObjectKey("default", "a"))).to_dict()
        assert (converted["apiVersion"], converted["via"]) == (f"{GROUP}/v2", "webhook")


async def test_namespace_is_unique_and_deleted_with_content(envtest: Envtest) -> None:
    envtest.install_crds(Widget)
    async with envtest.client() as client:
        with envtest.namespace("Test it[a/b]") as one, envtest.namespace("Test it[a/b]") as other:
            assert one != other
            assert one.startswith("test-it-a-b-")
            held = ObjectMeta(name="held", namespace=one, finalizers=("example.com/held",))
            await client.create(ConfigMap(metadata=held))
            await client.create(Widget(metadata=held, spec=WidgetSpec(depth=1)))
            await client.create(_new_widget(other, depth=1))
        assert [b.key for b in (await client.list(Widget)).items if b.metadata.namespace in (one, other)] == []
        for name in (one, other):
            with pytest.raises(NotFound):
                await client.get(Namespace, ObjectKey("", name))


async def test_namespace_deleted_by_test_is_not_an_error(envtest: Envtest) -> None:
    async with envtest.client() as client:
        with envtest.namespace() as name:
            await client.apply(core.ConfigMap(metadata=meta.ObjectMeta(name="a", namespace=name)))
            await client.delete(Namespace, ObjectKey("", name))
        with pytest.raises(NotFound):
            await client.get(Namespace, ObjectKey("", name))


async def test_existing_cluster_is_used_and_restored(envtest: Envtest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("USE_EXISTING_CLUSTER", "true")
    monkeypatch.setenv("KUBECONFIG", str(envtest.kubeconfig))
    async with envtest.client() as client:
        await client.create(ClusterRole(metadata=ObjectMeta(name="there")))
        before = await _rights(client)
        with Envtest.start(version="0.1", arguments={"no-such-flag": "x"}) as guest:
            assert guest.server == envtest.server
            with pytest.raises(SteersmanError, match="is an existing cluster"):
                _ = guest.control_plane
            rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]}
            user = guest.user("visitor", roles=[_role("there", rule), _role("made", rule)])
            assert user.config.impersonate is not None
            async with guest.client(user) as visitor:
                await visitor.list(ConfigMap)
                with pytest.raises(Forbidden, match='User "visitor" cannot list resource "namespaces"'):
                    await visitor.list(Namespace)
            configuration = _webhooks("Validating", "/validate", {"namespaceSelector": {"matchLabels": {"a": "b"}}})
            guest.install_webhooks(configuration)
        assert await _rights(client) == before
        with pytest.raises(NotFound):
            await client.get(ValidatingWebhookConfiguration, ObjectKey("", "validating"))
        await client.delete(ClusterRole, ObjectKey("", "there"))


@asynccontextmanager
async def _reviewing(environment: Envtest, answer: Callable[[str, Json], Json]) -> AsyncGenerator[None]:
    """Serve admission reviews with the responses of ``answer``."""

    async def respond(request: web.BaseRequest) -> web.StreamResponse:
        review = await request.json()
        asked = review["request"]
        review["response"] = {"uid": asked["uid"], "allowed": True, **answer(request.path, asked)}
        return web.json_response(review)

    place = environment.webhooks
    async with running_server(respond, place.ssl_context(), place.port):
        yield


async def _rights(client: Client) -> set[tuple[str, ObjectKey]]:
    return {
        (kind.__name__, obj.key)
        for kind in (ClusterRole, ClusterRoleBinding, RoleBinding)
        for obj in (await client.list(kind)).items
    }


def _role(name: str, *rules: Json) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }


def _new_widget(namespace: str, name: str = "a", *, depth: int) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, namespace=namespace), spec=WidgetSpec(depth=depth))


def _config_map(name: str) -> ConfigMap:
    labels = FrozenDict({"reviewed": "yes"})
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default", labels=labels))


def _webhooks(kind: str, path: str, more: Json | None = None) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": kind.lower()},
        "webhooks": [
            {
                "name": f"{kind.lower()}.example.com",
                "clientConfig": {"service": {"name": "hooks", "namespace": "default", "path": path}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
                ],
                "objectSelector": {"matchLabels": {"reviewed": "yes"}},
                "failurePolicy": "Fail",
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **(more or {}),
            }
        ],
    }


def _versioned_crd(conversion: Json) -> Json:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"via": {"type": "string"}}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"webapps.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"kind": "WebApp", "plural": "webapps", "singular": "webapp", "listKind": "WebAppList"},
            "conversion": conversion,
            "versions": [{"name": v, "served": True, "storage": v == "v1", "schema": schema} for v in VERSIONS],
        },
    }
