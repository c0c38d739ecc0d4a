"""Discovery and capabilities of the real API server and older servers."""

from __future__ import annotations

import asyncio
import importlib
import pkgutil
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import steersman.api
from framework_support.transports import UnaggregatedDiscoveryTransport
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.client import (
    Client,
    Discovery,
    Transport,
    connect,
)
from steersman.errors import NoKindMatch
from steersman.meta import ApiResource, Object, ObjectKey, Resource, decode_builtins, unstructured
from steersman_testing import InMemoryApiServer
from steersman_testing.envtest import Envtest

APISERVICE = ApiResource("apiregistration.k8s.io", "v1", "APIService", "apiservices", False)


def aggregated(transport: Transport) -> Transport:
    return transport


FORMS = pytest.mark.parametrize(
    "form", [aggregated, UnaggregatedDiscoveryTransport], ids=["aggregated", "one document a version"]
)
Form = Callable[[Transport], Transport]


@pytest.fixture
async def transport(envtest: Envtest) -> AsyncGenerator[Transport, None]:
    async with connect(envtest.config) as transport:
        yield transport


async def test_discovery_aggregated_equals_legacy(transport: Transport) -> None:
    told = [
        await Discovery(Client(form(transport))).resources() for form in (aggregated, UnaggregatedDiscoveryTransport)
    ]
    one, other = ({r.resource: r for r in resources} for resources in told)
    assert one.keys() == other.keys()
    for resource, served in one.items():
        assert set(served.subresources) == set(other[resource].subresources)
        assert (served.verbs, served.short_names) == (other[resource].verbs, other[resource].short_names)
        assert (served.singular, served.categories) == (other[resource].singular, other[resource].categories)


@FORMS
@pytest.mark.parametrize(
    ("name", "api_version", "kind"),
    [
        ("po", "v1", "Pod"),
        ("Deployment", "apps/v1", "Deployment"),
        ("hpa", "autoscaling/v2", "HorizontalPodAutoscaler"),
        ("events", "v1", "Event"),
        ("events.events.k8s.io", "events.k8s.io/v1", "Event"),
        ("customresourcedefinition", "apiextensions.k8s.io/v1", "CustomResourceDefinition"),
    ],
)
async def test_names(transport: Transport, form: Form, name: str, api_version: str, kind: str) -> None:
    found = await Discovery(Client(form(transport))).mapping(name)
    assert (found.api_version, found.kind) == (api_version, kind)


def built_in_kinds() -> set[ApiResource]:
    found: set[ApiResource] = set()
    for module in pkgutil.iter_modules(steersman.api.__path__, "steersman.api."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Object) and value not in (Object, Resource):
                found.add(value.api_resource)
    return found


async def test_discovery_serves_every_built_in_kind(transport: Transport) -> None:
    found = await Discovery(Client(transport)).resources()
    served, below = {r.resource for r in found}, {s for r in found for s in r.subresources}
    kinds = built_in_kinds()
    assert len(kinds) > 40
    # A kind that only a subresource accepts, such as Eviction, has the name of the subresource.
    assert {k for k in kinds - served if k.plural not in below} == set()


async def test_discovery_in_memory_equals_real_server(transport: Transport) -> None:
    served = {r.resource: r for r in await Discovery(Client(transport)).resources()}
    imitated = await Discovery(Client(InMemoryApiServer())).resources()
    assert len(imitated) > 30
    for found in imitated:
        real = served[found.resource]
        assert (real.singular, real.short_names) == (found.singular, found.short_names)


def crd_manifest(plural: str) -> dict[str, Any]:
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    names = {"plural": plural, "kind": plural.removesuffix("s").capitalize()}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "late.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return {"metadata": {"name": f"{plural}.late.example.com"}, "spec": spec}


@FORMS
async def test_discovery_finds_crd_installed_later(transport: Transport, form: Form) -> None:
    plural = "ferries" if form is aggregated else "barges"
    client = Client(form(transport))
    discovery = Discovery(client, interval=0.1)
    with pytest.raises(NoKindMatch):
        await discovery.mapping(plural)
    await client.create(decode_builtins(crd_manifest(plural), CustomResourceDefinition))
    found = await wait_for_mapping(discovery, plural)
    assert found == ApiResource("late.example.com", "v1", crd_manifest(plural)["spec"]["names"]["kind"], plural, True)
    assert (await client.list(unstructured(found))).items == ()


async def wait_for_mapping(discovery: Discovery, name: str) -> ApiResource:
    async with asyncio.timeout(30):
        while True:
            try:
                return await discovery.mapping(name)
            except NoKindMatch:
                await asyncio.sleep(0.1)


@FORMS
async def test_discovery_unavailable_apiservice_hides_no_others(transport: Transport, form: Form) -> None:
    client = Client(form(transport))
    discovery = Discovery(client)
    group = "down.example.com" if form is aggregated else "away.example.com"
    service = unstructured(APISERVICE)
    spec = {
        "group": group,
        "version": "v1",
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
        "insecureSkipTLSVerify": True,
        "service": {"namespace": "default", "name": "nobody"},
    }
    body = {
        "apiVersion": APISERVICE.api_version,
        "kind": "APIService",
        "metadata": {"name": f"v1.{group}"},
        "spec": spec,
    }
    await client.create(decode_builtins(body, service))
    try:
        async with asyncio.timeout(30):
            while f"{group}/v1" not in discovery.failures:
                await discovery.refresh()
        assert (await discovery.mapping("deploy")).kind == "Deployment"
        with pytest.raises(NoKindMatch, match=f"Discovery failed for: .*{group}/v1"):
            await discovery.mapping("nothing")
    finally:
        await client.delete(service, ObjectKey("", f"v1.{group}"))


async def test_discovery_of_older_server_maps_names() -> None:
    with Envtest.start(arguments={"emulated-version": "1.33"}) as older:
        async with connect(older.config) as transport:
            assert (await Discovery(Client(transport)).mapping("deploy")).kind == "Deployment"
