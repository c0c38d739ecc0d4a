"""``kubectl steersman``, as kubectl finds and runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from database_support.cluster_under_test import ClusterUnderTest


@dataclass
class Plugin:
    """The command, in the namespace of a cluster."""

    cluster: ClusterUnderTest
    directory: Path

    def __call__(self, *arguments: str, code: int = 0, seconds: float = 150) -> str:
        """What ``kubectl steersman arguments…`` prints; it ends with ``code``."""
        target = self.cluster.place.target
        path = f"{self.directory}:{Path(target.kubectl_path).parent}:{os.environ['PATH']}"
        config = {} if target.kubeconfig is None else {"KUBECONFIG": str(target.kubeconfig)}
        words = [target.kubectl_path, "steersman", arguments[0], "--namespace", self.cluster.place.namespace]
        done = subprocess.run(
            [*words, *arguments[1:]],
            env={**os.environ, **config, "PATH": path},
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def status(self) -> dict[str, Any]:
        return json.loads(self("status", self.cluster.name, "--output", "json"))


def install_plugin(cluster: ClusterUnderTest, directory: Path) -> Plugin:
    """In an empty directory: it is found by its name in PATH."""
    program = directory / "kubectl-steersman"
    program.write_text(f"#!{sys.executable}\nfrom steersman_databases.kubectl.app import main\nmain()\n")
    program.chmod(0o755)
    return Plugin(cluster, directory)
