"""promtool accepts each generated configuration, and agrees on invalid rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from configuration_cases import CASES
from monitoring_objects import prometheus, service_monitor
from monitoring_operator.configuration import Inputs, build
from prometheus_processes import program_directory, run_promtool

REGEXES = (
    *(r"\x{10FFFF}", r"\x{110000}", r"\Q", r"[\b]", "(a{10}){100}", "(a{1000}){1000}", f"({'a' * 4050}){{1000}}"),
    *("(?P<é>x)", "(?U)x**", "[[:^a b:]]", f"({'a*' * 790}){{1000}}"),
    *(r"\p{Greek}", r"\p{Foo}", r"[\P{^Lu}-]", r"[\\--~]", r"[\w-.]", r"[\s\S]", r"\101", r"\1", r"[\x41--]a]"),
)


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
        *({"action": "keep", "regex": regex} for regex in REGEXES),
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
        (tmp_path / "prometheus.yaml").write_text(f"{valid.text.rstrip()}\n  - {json.dumps(rule)}\n")
        status, output = await run_promtool(program_directory(), "check", "config", str(tmp_path / "prometheus.yaml"))
        assert status != 0, output
    else:
        status, output = await check(tmp_path, inputs)
        assert status == 0, output


@pytest.mark.parametrize("interval", ["292y", "300y", "292y24w3d24h"])
async def test_operator_and_promtool_agree_on_interval(interval: str, tmp_path: Path) -> None:
    valid = service_monitor("s", {"port": "web", "interval": "291y"})
    text = build(Inputs(prometheus=prometheus(), service_monitors=[valid], contents={})).text
    (tmp_path / "prometheus.yaml").write_text(text.replace("291y", interval))
    status, output = await run_promtool(program_directory(), "check", "config", str(tmp_path / "prometheus.yaml"))
    monitor = service_monitor("s", {"port": "web", "interval": interval})
    declared = build(Inputs(prometheus=prometheus(), service_monitors=[monitor], contents={}))
    assert bool(declared.problems) is (status != 0), output
