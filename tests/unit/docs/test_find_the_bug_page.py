"""Run "Find the bug" and compare its reports with the page."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman_testing import SimulationFailed, simulate

PAGE = "tutorials/find-the-bug.md"
SECONDS = re.compile(r"in \d+\.\d s")


def code_block(title: str) -> str:
    found = re.search(rf'```text title="{title}"\n(.*?)\n```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def first_reconciler(mongodbs: Any) -> Any:
    """Return the first version of the class, which the page later replaces."""
    source = Path(inspect.getfile(mongodbs)).read_text()
    found = re.search(r"^class MongoDBReconciler.*?(?=^def setup)", source, re.DOTALL | re.MULTILINE)
    assert found is not None
    names: dict[str, Any] = mongodbs.__dict__.copy()
    exec(found[0], names)
    return names["MongoDBReconciler"]


def test_first_operator_passes_test_and_simulation_fails(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    mongodbs, tests = load("mongodbs"), load("test_mongodbs")
    monkeypatch.setattr(mongodbs, "MongoDBReconciler", first_reconciler(mongodbs))
    tests.test_both_secrets_are_made()
    with pytest.raises(SimulationFailed) as failed:
        tests.test_it_survives()
    assert str(failed.value) == code_block("story")
    with pytest.raises(SimulationFailed) as refused:
        simulate(mongodbs.setup, tests.making, kinds=[mongodbs.MongoDB], replay="500:3")
    assert refused.value.problems == failed.value.problems
    assert f"replay={str(failed.value.plan)!r})\n```" in (DOCS / PAGE).read_text().replace('"', "'")


def test_fixed_operator_passes_its_tests(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    tests = pages(PAGE)("test_mongodbs")
    tests.test_both_secrets_are_made()
    tests.test_it_survives()
    printed, expected = capsys.readouterr().out.rstrip("\n"), code_block("report")
    assert SECONDS.search(expected)
    assert SECONDS.sub("", printed) == SECONDS.sub("", expected)
