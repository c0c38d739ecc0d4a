"""Run the code of "Test an operator", and check the reference."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from framework_support.documented_code import DOCS, documented_files
from steersman_testing import pytest_plugin

pytest_plugins = ["pytester"]

PAGE = "how-to/test-an-operator.md"


@pytest.mark.requirement("overview/unit-tests")
def test_testing_page_tests_pass(pytester: pytest.Pytester) -> None:
    files = documented_files(PAGE)
    assert {"pyproject.toml", "greetings.py", "test_in_memory.py", "test_faults.py"} < set(files)
    for name, text in files.items():
        (pytester.path / name).write_text(text)
    result = pytester.runpytest_subprocess(
        "-p", "steersman_testing.pytest_plugin", "-m", "not envtest", "--strict-markers"
    )
    result.assert_outcomes(passed=3, deselected=1)


def test_pytest_page_lists_every_option_and_fixture() -> None:
    page = (DOCS / "reference/pytest.md").read_text()
    tree = ast.parse(inspect.getsource(pytest_plugin))
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    options = {text for text in texts if re.fullmatch(r"steersman_\w+", text)}
    assert len(options) >= 5
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    fixtures = {f.name for f in functions if any("fixture" in ast.dump(d) for d in f.decorator_list)}
    assert {"apiserver", "envtest"} < fixtures
    assert sorted(name for name in options | fixtures if f"| `{name}` |" not in page) == []
