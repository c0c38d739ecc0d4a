"""What is generated, the API server in memory takes."""

from __future__ import annotations

import pytest

from framework_support.crd_twins import TWINS, v1, v1beta1
from steersman.client import Client
from steersman.crd import definition
from steersman.meta import ObjectMeta, unstructured
from steersman_testing import InMemoryApiServer


@pytest.mark.parametrize("plural", TWINS)
def test_definitions_are_accepted(plural: str) -> None:
    InMemoryApiServer().load(definition(*TWINS[plural]))


async def test_versions_of_one_kind_are_registered_together() -> None:
    server = InMemoryApiServer()
    server.register(v1beta1.Versioned, v1.Versioned)
    client = Client(server)
    meta = ObjectMeta(name="a", namespace="default")
    made = await client.create(v1.Versioned(metadata=meta, spec=v1.VersionedSpec(host_port="a:1"), status=None))
    shown = await client.get(unstructured(v1beta1.Versioned.api_resource), made.key)
    assert shown.metadata.uid == made.metadata.uid
    assert shown.content["apiVersion"] == "twins.example.com/v1beta1"
