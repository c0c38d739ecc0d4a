"""Discovery of kinds, aggregated and unaggregated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from framework_support.transports import (
    ScriptedTransport,
    UnaggregatedDiscoveryTransport,
    error_response,
    json_response,
)
from framework_support.widget import Widget
from steersman.api.apps_v1 import Deployment
from steersman.api.core_v1 import ConfigMap
from steersman.client import ApiResourceInfo, Client, Discovery, Transport
from steersman.errors import ConnectionFailed, NoKindMatch, ServiceUnavailable
from steersman.meta import ApiResource, ObjectKey, unstructured
from steersman_testing import InMemoryApiServer, matching, virtual_runtime, virtual_time

DEPLOYMENTS = Deployment.api_resource


def aggregated(server: InMemoryApiServer) -> Transport:
    return server


FORMS = pytest.mark.parametrize(
    "form", [aggregated, UnaggregatedDiscoveryTransport], ids=["aggregated", "one document a version"]
)
Form = Callable[[InMemoryApiServer], Transport]


def make_discovery(form: Form = aggregated) -> tuple[Discovery, InMemoryApiServer]:
    runtime = virtual_runtime()
    server = InMemoryApiServer(runtime)
    return Discovery(Client(form(server)), runtime=runtime), server


@FORMS
@pytest.mark.parametrize(
    "name",
    ["Deployment", "deployment", "deployments", "DEPLOYMENTS", "deploy", "deployments.apps"],
)
@virtual_time
async def test_discovery_mapping_by_each_name(form: Form, name: str) -> None:
    discovery, _ = make_discovery(form)
    assert await discovery.mapping(name) == DEPLOYMENTS


@FORMS
@virtual_time
async def test_discovery_reports_resource_properties(form: Form) -> None:
    discovery, server = make_discovery(form)
    server.register(Widget)
    served = {r.resource: r for r in await discovery.resources()}
    widgets = served[Widget.api_resource]
    assert (widgets.singular, widgets.subresources) == ("widget", ("status",))
    assert {"get", "list", "watch", "patch"} <= set(widgets.verbs)
    namespaces = next(r for r in served.values() if r.resource.plural == "namespaces")
    assert (namespaces.resource.namespaced, namespaces.short_names) == (False, ("ns",))


@FORMS
@virtual_time
async def test_discovery_aggregated_equals_legacy(form: Form) -> None:
    def everything(resources: tuple[ApiResourceInfo, ...]) -> list[str]:
        return sorted(map(repr, resources))

    assert everything(await make_discovery(form)[0].resources()) == everything(await make_discovery()[0].resources())


@FORMS
@virtual_time
async def test_discovery_prefers_core_group(form: Form) -> None:
    discovery, _ = make_discovery(form)
    assert (await discovery.mapping("events")).group == ""
    assert (await discovery.mapping("events", group="events.k8s.io")).group == "events.k8s.io"
    assert (await discovery.mapping("events.events.k8s.io")).group == "events.k8s.io"
    assert (await discovery.mapping("pods", group="")).group == ""


def crd_manifest(plural: str, *versions: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    kind = "WebApp"
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "shortNames": [plural[:2]]},
            "versions": [
                {"name": v, "served": True, "storage": v == versions[0], "schema": schema} for v in versions
            ],
        },
    }


@FORMS
@virtual_time
async def test_discovery_selects_preferred_version(form: Form) -> None:
    discovery, server = make_discovery(form)
    server.load(crd_manifest("webapps", "v1beta1", "v1", "v2alpha1"))
    assert (await discovery.mapping("WebApp")).version == "v1"
    assert (await discovery.mapping("we", version="v2alpha1")).version == "v2alpha1"
    with pytest.raises(NoKindMatch, match=r"does not serve 'webapp' in group 'example.com' in version 'v3'"):
        await discovery.mapping("webapp", group="example.com", version="v3")


@FORMS
@virtual_time
async def test_discovery_finds_crd_installed_later(form: Form) -> None:
    discovery, server = make_discovery(form)
    assert not await discovery.is_served(Widget)
    with pytest.raises(NoKindMatch, match="CustomResourceDefinition is installed"):
        await discovery.mapping("widgets")
    server.register(Widget)
    await asyncio.sleep(1)
    assert await discovery.mapping("widgets") == Widget.api_resource
    assert await discovery.is_served(Widget)


@virtual_time
async def test_discovery_concurrent_lookups_share_one_request() -> None:
    discovery, server = make_discovery()
    await asyncio.gather(*(discovery.mapping("deploy") for _ in range(10)))
    await discovery.is_served(ConfigMap)
    await discovery.resources()
    assert [r.path for r in server.requests] == ["/api", "/apis"]


@virtual_time
async def test_discovery_misses_are_refreshed_once_a_second() -> None:
    discovery, server = make_discovery()

    async def ask() -> None:
        with pytest.raises(NoKindMatch):
            await discovery.mapping("nothing")
        assert not await discovery.is_served(Widget)

    await asyncio.gather(*(ask() for _ in range(5)))
    assert len(server.requests) == 2
    await asyncio.sleep(1)
    await asyncio.gather(*(ask() for _ in range(5)))
    assert len(server.requests) == 4


@virtual_time
async def test_discovery_matches_exact_version() -> None:
    discovery, _ = make_discovery()
    assert await discovery.is_served(DEPLOYMENTS)
    assert not await discovery.is_served(ApiResource("apps", "v1beta1", "Deployment", "deployments"))


@virtual_time
async def test_discovery_keeps_results_when_server_unreachable() -> None:
    discovery, server = make_discovery()
    await discovery.resources()
    server.fail_next(matching("GET", "/api"), ConnectionFailed("gone"), times=99)
    with pytest.raises(ConnectionFailed):
        await discovery.refresh()
    assert await discovery.mapping("deploy") == DEPLOYMENTS


@virtual_time
async def test_discovered_kind_without_type_is_usable() -> None:
    discovery, server = make_discovery()
    server.load(crd_manifest("webapps", "v1"))
    webapp = {
        "apiVersion": "example.com/v1",
        "kind": "WebApp",
        "metadata": {"name": "a", "namespace": "default"},
        "replicas": 2,
    }
    server.load(webapp)
    found = await Client(server).get(unstructured(await discovery.mapping("we")), ObjectKey("default", "a"))
    assert found.content["replicas"] == 2


@virtual_time
async def test_discovery_unavailable_group_hides_no_others() -> None:
    """An aggregated API server is unavailable, with unaggregated discovery."""
    discovery, server = make_discovery(UnaggregatedDiscoveryTransport)
    server.load(crd_manifest("webapps", "v1"))
    server.fail_next(matching("GET", "/apis/example.com/v1"), 503)
    assert await discovery.mapping("deploy") == DEPLOYMENTS
    assert list(discovery.failures) == ["example.com/v1"]
    with pytest.raises(NoKindMatch, match=r"Discovery failed for: example.com/v1 \(the server is currently unable"):
        await discovery.mapping("webapps")
    await discovery.refresh()
    assert discovery.failures == {}


@virtual_time
async def test_discovery_reports_stale_group() -> None:
    """Aggregated discovery returns a cached version of an unavailable group as stale."""
    pods = {"resource": "pods", "responseKind": {"kind": "PodMetrics"}, "scope": "Namespaced", "singularResource": ""}
    version = {"version": "v1beta1", "freshness": "Stale", "resources": [{**pods, "verbs": ["get"]}]}
    groups = {
        "kind": "APIGroupDiscoveryList",
        "items": [{"metadata": {"name": "metrics.k8s.io"}, "versions": [version]}],
    }
    core: dict[str, Any] = {
        "kind": "APIGroupDiscoveryList",
        "items": [{"metadata": {}, "versions": [{"version": "v1"}]}],
    }
    transport = ScriptedTransport(responses=[json_response(core), json_response(groups)])
    discovery = Discovery(Client(transport), runtime=virtual_runtime())
    assert await discovery.mapping("podmetrics") == ApiResource(
        "metrics.k8s.io", "v1beta1", "PodMetrics", "pods", True
    )
    assert list(discovery.failures) == ["metrics.k8s.io/v1beta1"]


@virtual_time
async def test_discovery_of_server_with_null_lists() -> None:
    """An aggregated API server may be queried directly. Empty lists are ``null``."""
    groups = {
        "kind": "APIGroupList",
        "groups": [{"name": "x.io", "versions": [{"groupVersion": "x.io/v1", "version": "v1"}]}],
    }
    listed = {"kind": "APIResourceList", "resources": [{"name": "xs", "kind": "X", "verbs": None}]}
    empty = {"kind": "APIResourceList", "resources": None}
    for resources, count in ((listed, 1), (empty, 0)):
        transport = ScriptedTransport(
            responses=[error_response(404, "NotFound"), json_response(groups), json_response(resources)]
        )
        assert len(await Discovery(Client(transport), runtime=virtual_runtime()).resources()) == count


@virtual_time
async def test_discovery_server_error_is_raised() -> None:
    transport = ScriptedTransport(responses=[error_response(503, "ServiceUnavailable")])
    with pytest.raises(ServiceUnavailable):
        await Discovery(Client(transport), runtime=virtual_runtime()).resources()
