"""The real helm, for the cluster that tests use."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steersman.meta.yaml_codec import load_yaml_documents


@dataclass(frozen=True)
class Helm:
    """Helm with a home of its own.

    Attributes:
        program: its path.
        home: where it keeps what it caches.
        kubeconfig: of the cluster, if it is to reach one.
    """

    program: Path
    home: Path
    kubeconfig: Path | None = None

    def run(self, *arguments: str, seconds: float = 300.0) -> subprocess.CompletedProcess[str]:
        """How a command ends, whatever it says."""
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
        """What a command says, which must succeed."""
        ended = self.run(*arguments)
        assert ended.returncode == 0, f"helm {' '.join(arguments)}:\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def template(self, chart: Path, *arguments: str, name: str = "post", namespace: str = "mail") -> list[Any]:
        """The manifests of a release."""
        return list(
            filled(load_yaml_documents(self("template", name, str(chart), "--namespace", namespace, *arguments)))
        )


def filled(found: Iterable[Any]) -> Iterable[Any]:
    """Those documents that are not empty."""
    return (d for d in found if d)
