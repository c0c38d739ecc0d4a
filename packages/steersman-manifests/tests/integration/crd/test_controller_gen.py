"""Definitions equal those of controller-gen for the same types in Go."""

from __future__ import annotations

from typing import Any

import pytest

from framework_support.crd_twins import TWINS
from framework_support.crd_twins.controller_gen import generated, kept_by_v1beta1
from framework_support.crd_twins.normal import differences, normal
from steersman.webhook import ConversionWebhook
from steersman_manifests.crd import definition

# A fresh checkout builds controller-gen first.
pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("controller-gen")]

OWN = sorted(TWINS.keys() - {"builtins", "templates"})


def test_each_example_kind_has_go_types() -> None:
    assert generated(0).keys() == TWINS.keys()
    assert len(TWINS) >= 12


@pytest.mark.parametrize("plural", TWINS)
def test_definition_equals_controller_gen(plural: str) -> None:
    assert list(differences(normal(generated(0)[plural]), normal(definition(*TWINS[plural])))) == []


def undescribed(plural: str) -> set[str]:
    """Differences in descriptions. Those of built-in types are left out by default."""
    ours = normal(definition(*TWINS[plural]), descriptions=True)
    found = differences(normal(generated()[plural], descriptions=True), ours)
    head = ("properties.apiVersion", "properties.kind", "properties.status.properties.conditions")
    return {d for d in found if not any(part in d for part in head)}


@pytest.mark.parametrize("plural", OWN)
def test_descriptions_equal_controller_gen(plural: str) -> None:
    assert undescribed(plural) == set()


def test_crd_builtin_descriptions_are_optional() -> None:
    def image(manifest: dict[str, Any]) -> list[str]:
        schema = manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for name in ("spec", "template", "spec", "containers"):
            schema = schema["properties"][name]
        return schema["items"]["properties"]["image"]["description"].split()

    ours = definition(*TWINS["templates"], builtin_descriptions=True)
    assert image(ours) == image(generated()["templates"])


@pytest.mark.parametrize("plural", TWINS)
def test_v1beta1_crd_matches_its_go_type(plural: str) -> None:
    kinds = TWINS[plural]
    webhook = ConversionWebhook(service=("default", "webhook"), ca_bundle=b"ca") if len(kinds) > 1 else None
    manifest = definition(*kinds, conversion=webhook, api_version="v1beta1")
    # Go adds an empty status.
    lost = differences(manifest, kept_by_v1beta1(manifest))
    assert [d for d in lost if not d.endswith("only in the second")] == []
