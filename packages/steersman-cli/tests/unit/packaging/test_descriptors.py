"""Descriptors of fields for web consoles."""

from __future__ import annotations

from typing import Annotated, Literal

import pytest

from steersman.api.core_v1 import LocalObjectReference, ResourceRequirements
from steersman.meta import Field, Resource, Scale, Spec, Status, resource
from steersman_cli.packaging.bundle.descriptors import Descriptor, humanize, spec_descriptors, status_descriptors
from steersman_manifests.crd import definition


class WidgetSpec(Spec):
    chairs: int = 1
    """Number of concurrent customers."""
    tables: int = 1
    open: bool = True
    style: Literal["Plain", "Grand"] = "Plain"
    greeting: Annotated[str, Field(title="What is said at the door")] = "hello"
    door_code: Annotated[str, Field(format="password")] = "none"
    resources: ResourceRequirements | None = None
    admin_secret_name: str | None = None
    price_list_config_map: LocalObjectReference | None = None
    hairdresserservice: str | None = None
    service_account: str | None = None
    image_pull_policy: str | None = None
    labels: tuple[str, ...] = ()


class WidgetStatus(Status):
    chairs: int | None = None
    phase: str | None = None
    reason: str | None = None
    page: Annotated[str | None, Field(format="uri")] = None
    secret_ref: LocalObjectReference | None = None
    guests: int | None = None


@resource(group="salons.example.com", version="v1", scale=Scale(".spec.chairs", ".status.chairs"))
class Widget(Resource[WidgetSpec, WidgetStatus]):
    """A salon."""


UI, ALM = "urn:alm:descriptor:com.tectonic.ui:", "urn:alm:descriptor:"


@pytest.fixture(scope="module")
def spec() -> dict[str, Descriptor]:
    return {d["path"]: d for d in spec_descriptors(definition(Widget)["spec"]["versions"][0])}


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("chairs", [f"{UI}podCount"]),
        ("tables", [f"{UI}number"]),
        ("open", [f"{UI}booleanSwitch"]),
        ("style", [f"{UI}select:Plain", f"{UI}select:Grand"]),
        ("greeting", [f"{UI}text"]),
        ("doorCode", [f"{UI}password"]),
        ("resources", [f"{UI}resourceRequirements"]),
        ("adminSecretName", [f"{ALM}io.kubernetes:Secret"]),
        ("priceListConfigMap.name", [f"{ALM}io.kubernetes:ConfigMap"]),
        ("hairdresserservice", [f"{UI}text"]),
        ("serviceAccount", [f"{ALM}io.kubernetes:ServiceAccount"]),
        ("imagePullPolicy", [f"{UI}imagePullPolicy"]),
        ("labels", None),
    ],
)
def test_spec_descriptors_match_schema(spec: dict[str, Descriptor], path: str, shown: list[str] | None) -> None:
    assert spec[path].get("x-descriptors") == shown


def test_names_and_descriptions(spec: dict[str, Descriptor]) -> None:
    assert spec["chairs"]["displayName"] == "Chairs"
    assert spec["chairs"]["description"] == "Number of concurrent customers."
    assert spec["adminSecretName"]["displayName"] == "Admin Secret Name"
    assert spec["greeting"]["displayName"] == "What is said at the door"


def test_status_descriptors_match_schema() -> None:
    found = {d["path"]: d["x-descriptors"] for d in status_descriptors(definition(Widget)["spec"]["versions"][0])}
    assert found == {
        "observedGeneration": [f"{ALM}text"],
        "conditions": [f"{ALM}io.kubernetes.conditions"],
        "chairs": [f"{UI}podCount"],
        "phase": [f"{ALM}io.kubernetes.phase"],
        "reason": [f"{ALM}io.kubernetes.phase:reason"],
        "page": [f"{ALM}org.w3:link"],
        "secretRef.name": [f"{ALM}io.kubernetes:Secret"],
        "guests": [f"{ALM}text"],
    }


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("my-operator", "My Operator"),
        ("readyReplicas", "Ready Replicas"),
        ("HTTPRoute", "HTTP Route"),
        ("DatabaseUser", "Database User"),
    ],
)
def test_display_name_splits_camel_case(name: str, spoken: str) -> None:
    assert humanize(name) == spoken
