"""``make install`` on a real API server."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from steersman import Client, MergePatch, ObjectKey, connect
from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman_testing.envtest import Envtest

ROOT = Path(__file__).parents[2]
KEY = ObjectKey("", "podmonitors.monitoring.coreos.com")


def install(project: Path, environment: Envtest) -> str:
    """Run the command, and return its output."""
    command = [sys.executable, "-m", "steersman_cli", "install", "--kubeconfig", environment.kubeconfig]
    completed = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


async def test_changed_crd_is_updated_unless_foreign(tmp_path: Path) -> None:
    for name in ("PROJECT", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    bases = tmp_path / "config/crd/bases"
    shutil.copytree(ROOT / "config/crd/bases", bases)
    changed = bases / "monitoring.coreos.com_podmonitors.yaml"
    with Envtest.start() as environment:
        install(tmp_path, environment)
        async with connect(environment.config) as transport:
            client = Client(transport)
            before = await client.get(CustomResourceDefinition, KEY)
            changed.write_text(changed.read_text().replace("- pmon", "- pmon\n    - podmon"))
            install(tmp_path, environment)
            after = await client.get(CustomResourceDefinition, KEY)
            assert (before.spec.names.short_names, after.spec.names.short_names) == (("pmon",), ("pmon", "podmon"))
            foreign = MergePatch({"metadata": {"labels": {"app.kubernetes.io/managed-by": None}}})
            await client.patch(CustomResourceDefinition, KEY, foreign)
            shutil.copytree(ROOT / "config/crd/bases", bases, dirs_exist_ok=True)
            assert f"{KEY.name} kept" in install(tmp_path, environment)
            kept = await client.get(CustomResourceDefinition, KEY)
            assert kept.spec == after.spec
