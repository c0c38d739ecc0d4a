"""Bundles pass the validators of the Operator Framework and OperatorHub."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from framework_support.olm_validator import validated
from framework_support.projects import CREATE, INIT, KIND, create_project

pytestmark = [
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
    pytest.mark.xdist_group("bundles"),
]

OPERATOR = Path(__file__).parents[5] / "operators/databases"
BUNDLE = ("bundle", "--image", "registry.example.com/databaseuser:v1")
WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
# The validators report the beta API of `events`, because a role does not contain the version.
FALSE_POSITIVE = "Migrate the API(s) for events"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return create_project(tmp_path_factory.mktemp("bundles") / "databaseuser", INIT, CREATE, WEBHOOK)


def test_scaffolded_project_bundle_is_valid(project: Path) -> None:
    create_project(project, BUNDLE)
    found = validated(project / "bundle")
    assert found.errors == []
    assert [w for w in found.warnings if FALSE_POSITIVE not in w] == [
        "Warning: Value : (databaseuser.v0.1.0) csv.Spec.Icon not specified"
    ]


def test_complete_project_bundle_is_valid(project: Path) -> None:
    (project / "icon.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    settings = project / "pyproject.toml"
    settings.write_text(
        settings.read_text()
        + '\n[tool.steersman.bundle]\nicon = "icon.svg"\ncategories = ["Database"]\ncapabilities = "Auto Pilot"\n'
        + 'channels = ["stable"]\nreplaces = "databaseuser.v0.0.9"\n'
    )
    create_project(project, BUNDLE)
    found = validated(project / "bundle")
    assert (found.errors, [w for w in found.warnings if FALSE_POSITIVE not in w]) == ([], [])


@pytest.mark.requirement("overview/olm")
def test_database_operator_bundle_is_valid(tmp_path: Path) -> None:
    create_project(OPERATOR, (*BUNDLE, "--output", str(tmp_path / "bundle")))
    found = validated(tmp_path / "bundle")
    assert (found.errors, [w for w in found.warnings if FALSE_POSITIVE not in w]) == (
        [],
        ["Warning: Value : (steersman-databases.v0.1.0) csv.Spec.Icon not specified"],
    )


def test_validator_reports_invalid_bundle(project: Path) -> None:
    create_project(project, BUNDLE)
    service_version = project / "bundle/manifests/databaseuser.clusterserviceversion.yaml"
    service_version.write_text(service_version.read_text().replace("kind: DatabaseUser", "kind: Somebody"))
    assert any("Kind=Somebody" in error for error in validated(project / "bundle").errors)
