"""Definitions and rules on a real API server."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import msgspec
import pytest

import steersman.api
from framework_support.crd_twins import TWINS, v1
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.client import Client, MergePatch, connect
from steersman.errors import Invalid
from steersman.meta import FrozenStruct, ObjectKey, ObjectMeta, Resource, Rule, Spec, Status, resource, unstructured
from steersman.meta.frozen import FrozenStructMeta
from steersman_manifests.crd import SchemaError, definition
from steersman_manifests.openapi import published_schema_name, published_schemas
from steersman_testing.envtest import Envtest

Definition = unstructured(CustomResourceDefinition.api_resource)


@pytest.fixture
async def client(envtest: Envtest) -> AsyncGenerator[Client]:
    async with connect(envtest.config) as transport:
        yield Client(transport, field_manager="tests")


@pytest.mark.requirement("overview/extended-api")
@pytest.mark.parametrize("plural", TWINS)
@pytest.mark.parametrize("builtin_descriptions", [False, True])
async def test_crds_are_stored_unchanged(client: Client, plural: str, builtin_descriptions: bool) -> None:
    manifest = definition(*TWINS[plural], builtin_descriptions=builtin_descriptions)
    stored = await client.create(Definition.of(manifest), dry_run=True, field_validation="Strict")
    kept = stored.to_dict()["spec"]
    assert kept.pop("conversion") == {"strategy": "None"}
    assert kept == manifest["spec"]


def builtin_structs() -> Iterator[type[FrozenStruct]]:
    """Yield all built-in types that can be part of a custom resource."""
    for found in pkgutil.iter_modules(steersman.api.__path__):
        module = importlib.import_module(f"steersman.api.{found.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, msgspec.Struct)
                and published_schema_name(value) in published_schemas()
            ):
                yield value  # pyright: ignore[reportReturnType]


def holder(kind: type[FrozenStruct]) -> type[Resource[Any, Any]]:
    """A kind whose spec has a field of the type."""
    spec: Any = FrozenStructMeta(
        "HolderSpec", (Spec,), {"__module__": __name__, "__annotations__": {"held": kind | None}, "held": None}
    )

    class Holder(Resource[spec, Status]):
        pass

    return resource(group="holders.example.com", version="v1")(Holder)


async def test_crds_accept_every_kubernetes_type(client: Client) -> None:
    refused: dict[str, str] = {}
    for kind in builtin_structs():
        try:
            manifest = definition(holder(kind))
        except SchemaError as error:
            assert "contains itself" in str(error)
            continue
        try:
            await client.create(Definition.of(manifest), dry_run=True, field_validation="Strict")
        except Invalid as error:
            refused[kind.__name__] = str(error)
    assert refused == {}


async def test_immutable_field_rejects_change(client: Client, envtest: Envtest, envtest_namespace: str) -> None:
    envtest.install_crds(definition(v1.Fixed))
    spec = v1.FixedSpec(engine="a", size=1)
    fixed = await client.create(v1.Fixed(metadata=ObjectMeta(name="a", namespace=envtest_namespace), spec=spec))
    assert fixed.spec.class_ == "gold"

    async def refusal(change: dict[str, Any]) -> str:
        with pytest.raises(Invalid) as caught:
            await client.patch(v1.Fixed, fixed.key, MergePatch({"spec": change}))
        return str(caught.value)

    assert "spec.engine" in await refusal({"engine": "b"})
    assert "spec.class" in await refusal({"class": "silver"})
    assert "region is immutable" in await refusal({"region": "here"})
    assert "it only grows" in await refusal({"size": 0})
    await client.patch(v1.Fixed, fixed.key, MergePatch({"spec": {"address": "x", "size": 2}}))
    assert "cannot be changed once it is set" in await refusal({"address": "y"})
    assert "address cannot be removed" in await refusal({"address": None})


async def test_union_rule_rejects_two_members(client: Client, envtest: Envtest, envtest_namespace: str) -> None:
    envtest.install_crds(definition(v1.Union))

    async def create(name: str, spec: v1.UnionSpec) -> ObjectKey:
        meta = ObjectMeta(name=name, namespace=envtest_namespace)
        return (await client.create(v1.Union(metadata=meta, spec=spec))).key

    http, tcp = v1.HTTP(path="/"), v1.TCP(port=80)
    await create("a", v1.UnionSpec(probe=v1.Probe(http=http), source=v1.Source(type="TCP", tcp=tcp)))
    for spec, message in (
        (v1.UnionSpec(), "at least one of the fields in [probe source] must be set"),
        (v1.UnionSpec(probe=v1.Probe()), "exactly one of the fields in [http tcp] must be set"),
        (v1.UnionSpec(probe=v1.Probe(http=http, tcp=tcp)), "exactly one of the fields in [http tcp] must be set"),
        (v1.UnionSpec(source=v1.Source(type="HTTP", tcp=tcp)), "set the one that type names"),
        (v1.UnionSpec(source=v1.Source(type="TCP", tcp=tcp, http=http)), "set the one that type names"),
    ):
        with pytest.raises(Invalid) as caught:
            await create("b", spec)
        assert message in str(caught.value)


@pytest.mark.requirement("programming/defaults")
async def test_defaults_of_nested_structs_are_set(client: Client, envtest: Envtest, envtest_namespace: str) -> None:
    envtest.install_crds(definition(v1.Nested))
    meta = ObjectMeta(name="a", namespace=envtest_namespace)
    made = await client.create(
        unstructured(v1.Nested.api_resource).of(
            {"metadata": {"name": meta.name, "namespace": meta.namespace}, "spec": {"needed": {}}}
        )
    )
    assert made.to_dict()["spec"] == {
        "backup": {"keepDays": 7},
        "third": {"keepDays": 3},
        "needed": {"cron": "0 0 * * *"},
    }


async def test_rule_may_have_field_path_of_name(client: Client) -> None:
    rule = Rule(rule="self.metadata.name != 'titanic'", message="choose another", field_path=".metadata.name")

    @resource(group="holders.example.com", version="v1", rules=[rule])
    class Named(Resource[v1.TaskSpec, Status]):
        """A kind with a rule on its name."""

    await client.create(Definition.of(definition(Named)), dry_run=True, field_validation="Strict")
