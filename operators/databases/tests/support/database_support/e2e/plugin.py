"""``kubectl steersman``, as kubectl finds and runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from database_support.e2e.cluster import ClusterUnderTest


@dataclass
class InstalledPlugin:
    """The command, in the namespace of a cluster."""

    cluster: ClusterUnderTest
    directory: Path

    def __call__(self, *arguments: str, code: int = 0, seconds: float = 150) -> str:
        """What ``kubectl steersman arguments…`` prints; it ends with ``code``."""
        target = self.cluster.namespace_client.target
        path = f"{self.directory}:{Path(target.kubectl_path).parent}:{os.environ['PATH']}"
        config = {} if target.kubeconfig is None else {"KUBECONFIG": str(target.kubeconfig)}
        # Options belong to the last subcommand.
        subcommands = 2 if arguments[0] == "store" else 1
        namespace = f"--namespace={self.cluster.namespace_client.namespace}"
        done = subprocess.run(
            [
                target.kubectl_path,
                "steersman",
                *arguments[:subcommands],
                namespace,
                *arguments[subcommands:],
            ],
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


def install_plugin(cluster: ClusterUnderTest, directory: Path) -> InstalledPlugin:
    """In an empty directory: it is found by its name in PATH."""
    program = directory / "kubectl-steersman"
    program.write_text(f"#!{sys.executable}\nfrom steersman_databases.kubectl.app import main\nmain()\n")
    program.chmod(0o755)
    return InstalledPlugin(cluster, directory)
