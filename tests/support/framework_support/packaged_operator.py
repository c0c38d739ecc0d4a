"""Manifests of the tutorial project with webhooks and all optional components."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from framework_support.projects import CREATE, INIT, KIND, create_project
from steersman_cli.packaging import OperatorManifests

Manifest = dict[str, Any]
WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")


@pytest.fixture(scope="session")
def webhook_project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with webhooks. Do not change it."""
    return create_project(tmp_path_factory.mktemp("packages") / "databaseuser", INIT, CREATE, WEBHOOK)


@pytest.fixture(scope="session")
def installation(webhook_project: Path) -> OperatorManifests:
    """Manifests of the project."""
    return OperatorManifests.read(webhook_project / "config", "databaseuser")


def single_manifest(found: Iterable[Manifest], kind: str, name: str = "") -> Manifest:
    """The only manifest of ``kind`` and ``name``."""
    (manifest,) = (m for m in found if m["kind"] == kind and name in ("", m["metadata"]["name"]))
    return manifest


def operator_container(found: Iterable[Manifest]) -> dict[str, Any]:
    """The only container of the Deployment."""
    (only,) = single_manifest(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def with_changed(installation: OperatorManifests, kind: str, change: Callable[[Manifest], None]) -> OperatorManifests:
    """Copy of the manifests with each one of ``kind`` changed."""
    manifests = copy.deepcopy(installation.manifests)
    for manifest in manifests:
        if manifest["kind"] == kind:
            change(manifest)
    return replace(installation, manifests=manifests)
