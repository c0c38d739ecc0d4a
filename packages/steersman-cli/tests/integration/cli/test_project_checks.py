"""A scaffolded project with all features passes its own checks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from framework_support.projects import CREATE, KIND, create_project, ours, write_project

WEBHOOK = ("create", "webhook", *KIND, "--defaulting", "--programmatic-validation")
LONG = ("--group", "mygroup", "--version", "v1", "--kind", "LongNamedKindOfRegionalPolicy")


@pytest.mark.requirement("programming/toolchain", "overview/project-commands")
def test_project_with_all_features_passes_checks(tmp_path: Path) -> None:
    root = write_project(
        tmp_path / "shop-operator",
        ("init", "--domain", "example.com", "--owner", "Jane Doe"),
        CREATE,
        WEBHOOK,
        (*CREATE, "--version", "v1"),
        ("create", "webhook", *KIND, "--conversion", "--spoke", "v1"),
        ("create", "api", *LONG, "--namespaced=false"),
        ("create", "api", "--group", "mygroup", "--version", "v1", "--kind", "Class", "--controller=false"),
        ("create", "api", "--group", "apps", "--version", "v1", "--kind", "Deployment", "--resource=false"),
        ("create", "webhook", "--group", "", "--version", "v1", "--kind", "Pod", "--programmatic-validation"),
    )
    create_project(root, ("manifests",))
    assert "# Copyright 20" in (root / "src/shop_operator/main.py").read_text()
    types = ("pyright", "--pythonpath", sys.executable)
    for check in (("ruff", "check", "."), ("ruff", "format", "--check", "."), ("pytest", "-q", "tests/unit"), types):
        completed = subprocess.run(
            [sys.executable, "-m", *check],
            cwd=root,
            env=ours(root / "src"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stdout + completed.stderr
