"""Target cluster of demo and end-to-end tests.

The default is the devcluster. `CLUSTER=current` selects the current context of the user's kubeconfig.
"""

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from devcluster import binaries, cluster, layout
from devcluster.errors import CommandFailed, NotReady, Unsupported
from devcluster.progress import Progress

T = TypeVar("T")


@dataclass(frozen=True)
class Target:
    """A cluster and the kubectl that reaches it.

    `kubeconfig` is None for the user's own cluster; kubectl then uses its default.
    """

    kubectl_path: str
    kubeconfig: Path | None

    @property
    def is_devcluster(self) -> bool:
        """Return True for the devcluster, which supports image loading and faults."""
        return self.kubeconfig is not None

    def kubectl(self, *arguments: str, stdin: str = "", seconds: float = 60.0) -> str:
        """Run kubectl to its end and return what it printed.

        Raises CommandFailed with kubectl's output, also when it takes longer than `seconds`.
        """
        done = self.try_kubectl(*arguments, stdin=stdin, seconds=seconds)
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip()
            raise CommandFailed(f"kubectl {' '.join(arguments)}: {output}")
        return done.stdout

    def try_kubectl(
        self, *arguments: str, stdin: str = "", seconds: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and ignore its exit code. Raises CommandFailed on timeout."""
        command = [self.kubectl_path, *arguments]
        if self.kubeconfig is not None:
            command.insert(1, f"--kubeconfig={self.kubeconfig}")
        try:
            return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"kubectl {' '.join(arguments)}: no end after {seconds:.0f} s") from error

    def get(self, *arguments: str) -> dict[str, Any] | None:
        """`kubectl get … -o json`, or None where there is no such object."""
        done = self.try_kubectl("get", *arguments, "--output=json", "--ignore-not-found")
        if done.returncode != 0:
            raise CommandFailed(f"kubectl get {' '.join(arguments)}: {done.stderr.strip()}")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def apply(self, manifest: str, namespace: str | None = None) -> str:
        """`kubectl apply --server-side` of YAML text. Raises CommandFailed with the API server's refusal."""
        scope = ["--namespace", namespace] if namespace else []
        return self.kubectl("apply", "--server-side", *scope, "--filename=-", stdin=manifest)


def wait_until(description: str, probe: Callable[[], T | None], *, seconds: float, interval: float = 0.25) -> T:
    """Poll `probe` until its result is neither None nor False.

    Raises NotReady with `description` after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = probe()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise NotReady(f"not within {seconds:.0f} s: {description}")
        time.sleep(interval)


def select_target(progress: Progress) -> Target:
    """The cluster that `$CLUSTER` names; the devcluster is started if need be.

    Raises Unsupported for an unknown name, or where there is no kubectl.
    """
    name = os.environ.get("CLUSTER", "devcluster") or "devcluster"
    if name == "current":
        kubectl_path = shutil.which("kubectl")
        if kubectl_path is None:
            raise Unsupported("CLUSTER=current needs kubectl in PATH")
        return Target(kubectl_path, None)
    if name != "devcluster":
        raise Unsupported(f'CLUSTER={name} is unknown: use "devcluster" or "current"')
    cluster.up(progress)
    return Target(str(binaries.ensure(progress) / "kubectl"), layout.KUBECONFIG)
