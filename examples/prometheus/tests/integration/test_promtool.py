"""promtool accepts each generated configuration, and agrees on invalid rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from configuration_cases import CASES
from monitoring_objects import prometheus, service_monitor
from monitoring_operator.configuration import Inputs, build
from prometheus_processes import program_directory, run_promtool


async def check(directory: Path, inputs: Inputs) -> tuple[int, str]:
    """Write the files of a configuration, and check them."""
    declared = build(inputs)
    running, credentials = directory / "running", directory / "declared"
    rules = running / declared.revision / "rules"
    rules.mkdir(parents=True)
    credentials.mkdir()
    (running / "prometheus.yaml").write_text(declared.text)
    for name, content in declared.rules.items():
        (rules / name).write_text(content)
    for name, data in declared.credentials.items():
        (credentials / name).write_bytes(data)
    return await run_promtool(program_directory(), "check", "config", str(running / "prometheus.yaml"))


@pytest.mark.parametrize("case", CASES)
async def test_promtool_accepts_generated_configuration(case: str, tmp_path: Path) -> None:
    status, output = await check(tmp_path, CASES[case])
    assert status == 0, output


@pytest.mark.parametrize(
    "relabeling",
    [
        {"targetLabel": "a$1", "replacement": "b"},
        {"targetLabel": "${1}_b"},
        {"action": "keepequal", "sourceLabels": ["a"], "targetLabel": "b"},
        {"action": "LowerCase", "sourceLabels": ["a"], "targetLabel": "b"},
        {"action": "labelkeep", "regex": "a|b"},
        {"regex": r"\pL+", "sourceLabels": ["a"], "targetLabel": "b"},
        {"targetLabel": "a-b"},
        {"targetLabel": "1a"},
        {"action": "hashmod", "targetLabel": "a"},
        {"action": "labelmap", "replacement": "a-b"},
        {"action": "labeldrop", "regex": "a", "replacement": "b"},
        {"action": "keepequal", "sourceLabels": ["a"], "targetLabel": "b", "regex": "c"},
        {"action": "uppercase", "sourceLabels": ["a"], "targetLabel": "b", "replacement": "c"},
        {"action": "uppercase", "sourceLabels": ["a"], "targetLabel": "$1"},
        {"action": "keep", "regex": "a{2000}"},
    ],
)
async def test_operator_and_promtool_agree(relabeling: dict[str, Any], tmp_path: Path) -> None:
    monitor = service_monitor("s", {"port": "web", "relabelings": [relabeling]})
    inputs = Inputs(prometheus=prometheus(), service_monitors=[monitor], contents={})
    declared = build(inputs)
    if declared.problems:
        # The same rule as the user wrote it, next to the rules of a valid monitor.
        valid = build(Inputs(prometheus=prometheus(), service_monitors=[service_monitor("s")], contents={}))
        names = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
        rule = {names.get(name, name): value for name, value in relabeling.items()}
        (tmp_path / "prometheus.yaml").write_text(f"{valid.text.rstrip()}\n  - {rule!r}\n")
        status, output = await run_promtool(program_directory(), "check", "config", str(tmp_path / "prometheus.yaml"))
        assert status != 0, output
    else:
        status, output = await check(tmp_path, inputs)
        assert status == 0, output
