"""Run "Your first operator" with `steersman dev`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from framework_support.projects import prepare_directory
from framework_support.tutorial_runner import TutorialRunner, blocks_of
from steersman_testing.envtest.binaries import find_binaries

PAGE = "tutorials/first-operator.md"

pytestmark = pytest.mark.timeout(300)


def test_first_operator_page_steps_pass(tmp_path: Path) -> None:
    root = tmp_path / "greetings"
    root.mkdir()
    known = prepare_directory(tmp_path / "bin", root.name)
    environment = {
        **known,
        "PATH": f"{known['PATH']}{os.pathsep}{find_binaries()}",
        # Shells of the page share it.
        "KUBECONFIG": str(root / "kubeconfig"),
    }
    TutorialRunner(root, environment, ("steersman dev", "Press Ctrl-C to stop")).run_blocks(blocks_of(PAGE))
