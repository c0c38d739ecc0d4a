"""Fixtures with the real helm, which the first test builds."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster import binaries, tools
from framework_support.helm_runner import Helm
from framework_support.packaged_operator import installation, webhook_project
from framework_support.project_fixtures import pristine, project
from steersman_cli.packaging import OperatorManifests, ProjectMetadata
from steersman_cli.packaging.chart import build_chart

__all__ = ["installation", "pristine", "project", "webhook_project"]

ABOUT = ProjectMetadata("databaseuser", "1.2.0", "Users of databases.", license="Apache-2.0", keywords=("database",))


@dataclass(frozen=True)
class RenderedChart:
    """A chart that helm can render.

    Attributes:
        directory: directory of the chart.
        helm: runner of helm.
    """

    directory: Path
    helm: Helm

    def template(self, *arguments: str, name: str = "post", namespace: str = "mail") -> list[dict[str, Any]]:
        """Render the manifests of a release."""
        return self.helm.template(self.directory, *arguments, name=name, namespace=namespace)

    def template_error(self, *arguments: str) -> str:
        """Return the error of helm for an invalid release."""
        completed = self.helm.run("template", "post", str(self.directory), *arguments)
        assert completed.returncode != 0, completed.stdout
        return completed.stderr


WriteChart = Callable[..., RenderedChart]
"""Writes the chart of an installation."""


@pytest.fixture(scope="session", autouse=True)
def kubectl() -> Iterator[None]:
    """Add a kubectl that builds manifests to PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(binaries.ensure()), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Return helm without a cluster."""
    return Helm(tools.helm(), tmp_path_factory.mktemp("helm"))


@pytest.fixture
def write_chart(tmp_path: Path, helm: Helm) -> WriteChart:
    """Writes the chart of an installation."""

    def write(installation: OperatorManifests, **options: Any) -> RenderedChart:
        for name, text in build_chart(installation, ABOUT, **options).items():
            path = tmp_path / "chart" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return RenderedChart(tmp_path / "chart", helm)

    return write
