"""Where objects live in the API, and which names can be part of a path."""

from __future__ import annotations

import pytest

from steersman.meta import (
    ApiResource,
    ApplyConfiguration,
    ObjectKey,
    ObjectMetaApply,
    Resource,
    Spec,
    Status,
    resource,
)

PODS = ApiResource("", "v1", "Pod", "pods")
DEPLOYMENTS = ApiResource("apps", "v1", "Deployment", "deployments")
NODES = ApiResource("", "v1", "Node", "nodes", namespaced=False)


class TideSpec(Spec):
    """A spec."""


class TideStatus(Status):
    """A status."""


@resource(group="sea.example.com", version="v1beta1", short_names=["ti"], namespaced=False)
class Tide(Resource[TideSpec, TideStatus]):
    """A kind."""


@resource(group="sea.example.com", version="v1", plural="buoyage")
class Buoy(Resource[TideSpec, TideStatus]):
    """A kind with a plural of its own."""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (PODS.path(), "/api/v1/pods"),
        (PODS.path(namespace="a"), "/api/v1/namespaces/a/pods"),
        (PODS.path(ObjectKey("a", "b"), subresource="log"), "/api/v1/namespaces/a/pods/b/log"),
        (DEPLOYMENTS.path(ObjectKey("a", "b")), "/apis/apps/v1/namespaces/a/deployments/b"),
        (NODES.path(ObjectKey("", "n")), "/api/v1/nodes/n"),
        (NODES.path(namespace="ignored"), "/api/v1/nodes"),
        (NODES.path(ObjectKey("", "system:node")), "/api/v1/nodes/system:node"),
        (NODES.path(ObjectKey("", "a b?c#d")), "/api/v1/nodes/a%20b%3Fc%23d"),
    ],
)
def test_paths(path: str, expected: str) -> None:
    assert path == expected


@pytest.mark.parametrize("name", ["", ".", "..", "a/status", "../secrets/x", "a%2fb"])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="not a possible name of a Pod"):
        PODS.path(ObjectKey("a", name))


def test_a_declared_kind_knows_where_it_lives() -> None:
    assert Tide.api_resource == ApiResource("sea.example.com", "v1beta1", "Tide", "tides", namespaced=False)
    assert Tide.api_resource.api_version == "sea.example.com/v1beta1"
    assert Tide.resource_options.short_names == ("ti",)
    assert Buoy.api_resource.plural == "buoyage"
    assert PODS.api_version == "v1"


def test_keys_read_well() -> None:
    assert str(ObjectKey("ns", "x")) == "ns/x"
    assert str(ObjectKey("", "x")) == "x"


def test_an_apply_type_knows_its_key() -> None:
    class TideApply(ApplyConfiguration[Tide]):
        read_type = Tide

    assert TideApply(metadata=ObjectMetaApply(name="x")).key == ObjectKey("", "x")
    assert TideApply(metadata=ObjectMetaApply(name="x", namespace="n")).key == ObjectKey("n", "x")
