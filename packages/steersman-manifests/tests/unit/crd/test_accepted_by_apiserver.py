"""The in-memory API server accepts the definitions of all example kinds."""

from __future__ import annotations

import pytest

from framework_support.crd_twins import TWINS, v1, v1beta1
from steersman.client import Client
from steersman.meta import ObjectMeta, unstructured
from steersman_manifests.crd import definition
from steersman_testing import InMemoryApiServer


@pytest.mark.parametrize("plural", TWINS)
def test_definition_is_accepted_by_in_memory_server(plural: str) -> None:
    InMemoryApiServer().load(definition(*TWINS[plural]))


async def test_definition_with_several_versions_serves_all() -> None:
    server = InMemoryApiServer()
    server.register(v1beta1.Versioned, v1.Versioned)
    client = Client(server)
    meta = ObjectMeta(name="a", namespace="default")
    made = await client.create(v1.Versioned(metadata=meta, spec=v1.VersionedSpec(host_port="a:1")))
    shown = await client.get(unstructured(v1beta1.Versioned.api_resource), made.key)
    assert shown.metadata.uid == made.metadata.uid
    assert shown.content["apiVersion"] == "twins.example.com/v1beta1"
