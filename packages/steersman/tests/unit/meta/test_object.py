"""URL paths of objects, and valid names."""

from __future__ import annotations

import pytest

from steersman.api.apply import meta
from steersman.meta import ApiResource, ApplyConfiguration, ObjectKey, Resource, Spec, Status, resource

PODS = ApiResource("", "v1", "Pod", "pods")
DEPLOYMENTS = ApiResource("apps", "v1", "Deployment", "deployments")
NODES = ApiResource("", "v1", "Node", "nodes", namespaced=False)


class WidgetSpec(Spec):
    """A spec."""


class WidgetStatus(Status):
    """A status."""


@resource(group="orders.example.com", version="v1beta1", short_names=["ti"], namespaced=False)
class Widget(Resource[WidgetSpec, WidgetStatus]):
    """A kind."""


@resource(group="orders.example.com", version="v1", plural="webappery")
class WebApp(Resource[WidgetSpec, WidgetStatus]):
    """A kind with an irregular plural."""


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
    with pytest.raises(ValueError, match="not a valid name of a Pod"):
        PODS.path(ObjectKey("a", name))


def test_declared_kind_has_api_resource() -> None:
    assert Widget.api_resource == ApiResource("orders.example.com", "v1beta1", "Widget", "widgets", namespaced=False)
    assert Widget.api_resource.api_version == "orders.example.com/v1beta1"
    assert Widget.resource_options.short_names == ("ti",)
    assert WebApp.api_resource.plural == "webappery"
    assert PODS.api_version == "v1"


def test_keys_read_well() -> None:
    assert str(ObjectKey("ns", "x")) == "ns/x"
    assert str(ObjectKey("", "x")) == "x"


def test_apply_type_has_key() -> None:
    class WidgetApply(ApplyConfiguration[Widget]):
        read_type = Widget

    assert WidgetApply(metadata=meta.ObjectMeta(name="x")).key == ObjectKey("", "x")
    assert WidgetApply(metadata=meta.ObjectMeta(name="x", namespace="n")).key == ObjectKey("n", "x")
