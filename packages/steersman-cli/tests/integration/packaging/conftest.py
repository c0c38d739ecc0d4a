"""The real helm, built when the first of these tests runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster import binaries, tools
from framework_support.helm import Helm
from framework_support.packaged import installation, webhooked
from steersman_cli.packaging import About, Installation
from steersman_cli.packaging.chart import chart

__all__ = ["installation", "webhooked"]

ABOUT = About("databaseuser", "1.2.0", "Users of databases.", license="Apache-2.0", keywords=("database",))


@dataclass(frozen=True)
class Chart:
    """A chart in a directory.

    Attributes:
        directory: of the chart.
        helm: which reads it.
    """

    directory: Path
    helm: Helm

    def template(self, *arguments: str, name: str = "post", namespace: str = "mail") -> list[dict[str, Any]]:
        """The manifests of a release."""
        return self.helm.template(self.directory, *arguments, name=name, namespace=namespace)

    def refuses(self, *arguments: str) -> str:
        """What helm says of a release that cannot be."""
        ended = self.helm.run("template", "post", str(self.directory), *arguments)
        assert ended.returncode != 0, ended.stdout
        return ended.stderr


Write = Callable[..., Chart]
"""Writes the chart of an installation."""


@pytest.fixture(scope="session", autouse=True)
def kubectl() -> Iterator[None]:
    """Puts a kubectl, which puts manifests together, in PATH."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(binaries.ensure()), prepend=os.pathsep)
        yield


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Without a cluster."""
    return Helm(tools.helm(), tmp_path_factory.mktemp("helm"))


@pytest.fixture
def charted(tmp_path: Path, helm: Helm) -> Write:
    """Writes the chart of an installation."""

    def write(installation: Installation, **options: Any) -> Chart:
        for name, text in chart(installation, ABOUT, **options).items():
            path = tmp_path / "chart" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return Chart(tmp_path / "chart", helm)

    return write
