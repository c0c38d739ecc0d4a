"""The commands of the tutorial on backups, as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from database_support.e2e.cluster import NamespaceClient
from devcluster.store import ObjectStore, manifests
from framework_support.documented_code import DOCS

pytestmark = [pytest.mark.xdist_group("backup"), pytest.mark.timeout(1500)]

PAGE = (DOCS / "tutorials" / "backup-and-restore.md").read_text()
BLOCKS = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
# The fixtures start the cluster and the object store, and delete the namespace.
_OF_FIXTURES = ("make demo", "devcluster", "kubectl delete namespace")


def commands() -> str:
    """Return the commands that only use the cluster."""
    return "\n".join(block for block in BLOCKS if not any(each in block for each in _OF_FIXTURES))


def test_tutorial_restores_a_verified_backup(shared: NamespaceClient, store: ObjectStore, tmp_path: Path) -> None:
    target = shared.target
    assert target.kubeconfig is not None
    assert f"storeRef: {{name: {manifests.STORE}}}" in PAGE
    config = tmp_path / "kubeconfig"
    config.write_bytes(target.kubeconfig.read_bytes())
    plugin = tmp_path / "kubectl-steersman"
    plugin.write_text(f"#!{sys.executable}\nfrom steersman_databases.kubectl.app import main\nmain()\n")
    plugin.chmod(0o755)
    path = f"{tmp_path}:{Path(target.kubectl_path).parent}:{os.environ['PATH']}"
    select = f"kubectl config set-context --current --namespace {shared.namespace}\n"
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", select + commands()],
        env={**os.environ, "PATH": path, "KUBECONFIG": str(config)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    # When it is filled, after undrop, and in the clone.
    assert done.stdout.count("1000\n") == 3, done.stdout[-3000:]
    assert '"recoverySeconds"' in done.stdout
