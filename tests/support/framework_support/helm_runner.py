"""helm for the cluster of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman_manifests.yaml_codec import load_yaml_documents


@dataclass(frozen=True)
class Helm:
    """helm with separate cache and configuration directories.

    Attributes:
        program: path of helm.
        home: directory of caches and configuration.
        kubeconfig: kubeconfig of the cluster, if any.
    """

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """Run helm and return the completed process."""
        places = {f"HELM_{name}_HOME": str(self.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        cluster = {} if self.kubeconfig is None else {"KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(
            [str(self.program), *arguments],
            env={**os.environ, **places, **cluster},
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )

    def __call__(self, *arguments: str) -> str:
        """Run helm, which must succeed, and return its output."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, f"helm {' '.join(arguments)}:\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def template(self, chart: Path, *arguments: str, name: str = "post", namespace: str = "mail") -> list[Any]:
        """Render the manifests of a release."""
        return list(
            filled(load_yaml_documents(self("template", name, str(chart), "--namespace", namespace, *arguments)))
        )


def filled(found: Iterable[Any]) -> Iterable[Any]:
    """Documents that are not empty."""
    return (d for d in found if d)
