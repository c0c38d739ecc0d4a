"""The installation of the tutorial's project, with webhooks and every optional component; manifests among others."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from framework_support.projects import CREATE, INIT, KIND, made
from steersman_cli.packaging import Installation

Manifest = dict[str, Any]
WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")


@pytest.fixture(scope="session")
def webhooked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with webhooks. Do not change it."""
    return made(tmp_path_factory.mktemp("packages") / "databaseuser", INIT, CREATE, WEBHOOK)


@pytest.fixture(scope="session")
def installation(webhooked: Path) -> Installation:
    """What it deploys."""
    return Installation.read(webhooked / "config", "databaseuser")


def one(found: Iterable[Manifest], kind: str, name: str = "") -> Manifest:
    """The only one of ``kind``, and of ``name`` if given."""
    (manifest,) = (m for m in found if m["kind"] == kind and name in ("", m["metadata"]["name"]))
    return manifest


def container(found: Iterable[Manifest]) -> dict[str, Any]:
    """The only container of the Deployment."""
    (only,) = one(found, "Deployment")["spec"]["template"]["spec"]["containers"]
    return only


def changed(installation: Installation, kind: str, change: Callable[[Manifest], None]) -> Installation:
    """With each manifest of ``kind`` changed."""
    manifests = copy.deepcopy(installation.manifests)
    for manifest in manifests:
        if manifest["kind"] == kind:
            change(manifest)
    return replace(installation, manifests=manifests)
