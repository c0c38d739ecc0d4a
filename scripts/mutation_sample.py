"""Measure how many mutants of a fixed sample the unit tests kill.

``mutation_sample.py choose --other DIRECTORY`` writes a sample of mutants whose lines exist in this checkout and in
another one, so that both can be measured. ``mutation_sample.py cover`` records which test executes which line.
``mutation_sample.py run`` changes one line at a time and runs the tests that execute it. It restores each file.

The package coverage must be installed; it is not a requirement of the workspace.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SEED = 37
COUNT = 100
MAX_TESTS_SECONDS = 25.0
MUTANT_TIMEOUT_SECONDS = 60
TEST_TIMEOUT_SECONDS = 15
MIN_LINE_CHARACTERS = 20

_SWAPPED_OPERATORS = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "==": "!=",
    "!=": "==",
    "is": "is not",
    "is not": "is",
    "in": "not in",
    "not in": "in",
    "and": "or",
    "or": "and",
    "+": "-",
    "-": "+",
}
# Changes of logs and metrics are not defects that a unit test must find.
_IGNORED_CALLS = ("log.", "logger.", "metrics.", "self._log.", "warnings.")


class Mutant(NamedTuple):
    """A changed line of a module.

    Attributes:
        module: name of the file.
        operator: what was changed.
        line: the line without indentation.
        mutated: the changed line without indentation.
    """

    module: str
    operator: str
    line: str
    mutated: str


class _Replacement(NamedTuple):
    operator: str
    line_number: int
    start: int
    end: int
    text: str


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield all mutants of a module that change one line."""
    source = file.read_text(encoding="utf-8")
    lines = source.splitlines()
    tree = ast.parse(source)
    ignored = set(_annotation_nodes(tree))
    for node in ast.walk(tree):
        if node in ignored:
            continue
        for found in _replacements(node, lines):
            line = lines[found.line_number - 1]
            mutated = line[: found.start] + found.text + line[found.end :]
            yield Mutant(file.name, found.operator, line.strip(), mutated.strip())


def _annotation_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for annotation in (getattr(node, "annotation", None), getattr(node, "returns", None)):
            if annotation is not None:
                yield from ast.walk(annotation)


def _replacements(node: ast.AST, lines: list[str]) -> Iterator[_Replacement]:
    match node:
        case ast.Compare(left, [_], [right]):
            yield from _swap("comparison", left, right, lines)
        case ast.BoolOp(_, [left, right, *_]):
            yield from _swap("boolean operator", left, right, lines)
        case ast.BinOp(left, ast.Add() | ast.Sub(), right):
            yield from _swap("arithmetic", left, right, lines)
        case ast.UnaryOp(ast.Not(), operand) if node.lineno == operand.end_lineno:
            yield _Replacement("negation", node.lineno, node.col_offset, operand.col_offset, "")
        case ast.Constant(bool() as value):
            yield _Replacement("constant", node.lineno, node.col_offset, node.end_col_offset or 0, str(not value))
        case ast.Constant(int() as value):
            yield _Replacement("constant", node.lineno, node.col_offset, node.end_col_offset or 0, str(value + 1))
        case ast.Return(ast.expr() as value) if node.lineno == node.end_lineno:
            if not (isinstance(value, ast.Constant) and value.value is None):
                yield _Replacement("return", node.lineno, node.col_offset, node.end_col_offset or 0, "return None")
        case ast.Expr(ast.Call() | ast.Await()) if node.lineno == node.end_lineno:
            text = lines[node.lineno - 1].strip()
            if not text.startswith(_IGNORED_CALLS):
                yield _Replacement("statement", node.lineno, node.col_offset, node.end_col_offset or 0, "pass")
        case ast.If(test) if test.lineno == test.end_lineno:
            start, end = test.col_offset, test.end_col_offset or 0
            text = lines[test.lineno - 1][start:end]
            yield _Replacement("condition", test.lineno, start, end, f"not ({text})")
        case _:
            return


def _swap(operator: str, left: ast.expr, right: ast.expr, lines: list[str]) -> Iterator[_Replacement]:
    start, end = left.end_col_offset or 0, right.col_offset
    if left.end_lineno != right.lineno:
        return
    between = lines[right.lineno - 1][start:end]
    if (swapped := _SWAPPED_OPERATORS.get(between.strip())) is not None:
        yield _Replacement(operator, right.lineno, start, end, f" {swapped} ")


def source_files(source: Path) -> list[Path]:
    """Return the hand-written modules below a directory."""
    return sorted(f for f in source.rglob("*.py") if "api" not in f.relative_to(source).parts[:1])


def _line_counts(source: Path) -> Counter[str]:
    return Counter(line.strip() for file in source_files(source) for line in file.read_text("utf-8").splitlines())


def choose(source: Path, other: Path, sample: Path) -> None:
    """Write a sample of mutants whose lines occur once in both checkouts."""
    here, there = _line_counts(source), _line_counts(other)
    candidates = {
        mutant.line: mutant
        for file in source_files(source)
        for mutant in sorted(mutants_of(file), key=lambda m: random.Random(f"{SEED} {m}").random())  # noqa: S311
        if here[mutant.line] == there[mutant.line] == 1 and len(mutant.line) >= MIN_LINE_CHARACTERS
    }
    chosen = random.Random(SEED).sample(sorted(candidates.values()), COUNT)  # noqa: S311 (not for secrets)
    sample.write_text(json.dumps([m._asdict() for m in chosen], indent=1), encoding="utf-8")


def cover(source: Path, tests: list[str], table: Path) -> None:
    """Record the tests that execute each line."""
    import coverage
    import pytest

    measured = coverage.Coverage(data_file=None, source=[str(source)], branch=False)
    durations: dict[str, float] = {}

    class Contexts:
        def pytest_runtest_logstart(self, nodeid: str) -> None:
            measured.switch_context(nodeid)

        def pytest_runtest_logreport(self, report: Any) -> None:
            durations[report.nodeid] = durations.get(report.nodeid, 0.0) + report.duration

        def pytest_runtest_logfinish(self) -> None:
            measured.switch_context("")

    measured.start()
    pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests], plugins=[Contexts()])
    measured.stop()
    data = measured.get_data()
    lines = {
        str(Path(file).resolve()): {
            str(line): [c for c in contexts if c] for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    table.write_text(json.dumps({"lines": lines, "durations": durations}), encoding="utf-8")


def run(source: Path, table: Path, sample: Path) -> None:
    """Run the tests for each mutant and print the result."""
    # Imported before the processes are forked, which saves a second for each.
    import hypothesis
    import pytest

    _print(f"pytest {pytest.__version__}, hypothesis {hypothesis.__version__}")
    coverage_table = json.loads(table.read_text(encoding="utf-8"))
    durations: dict[str, float] = coverage_table["durations"]
    results: Counter[str] = Counter()
    for entry in json.loads(sample.read_text(encoding="utf-8")):
        mutant = Mutant(**entry)
        file, number = _locate(source, mutant.line)
        lines: dict[str, list[str]] = coverage_table["lines"].get(str(file.resolve()), {})
        # Tests import a module once, so lines at module level have no test of their own.
        tests = lines.get(str(number)) or list(dict.fromkeys(t for names in lines.values() for t in names))
        tests = sorted(tests, key=lambda test: durations.get(test, 0.0))
        result = _try_mutant(file, number, mutant, tests) if tests else "not covered"
        results[result] += 1
        _print(f"{result:12} {file.name}:{number} {mutant.operator}: {mutant.line} -> {mutant.mutated}")
    _print(dict(results))


def _print(text: object) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _locate(source: Path, line: str) -> tuple[Path, int]:
    for file in source_files(source):
        for number, text in enumerate(file.read_text(encoding="utf-8").splitlines(), start=1):
            if text.strip() == line:
                return file, number
    raise LookupError(line)


def _try_mutant(file: Path, number: int, mutant: Mutant, tests: list[str]) -> str:
    original = file.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    lines[number - 1] = lines[number - 1].replace(mutant.line, mutant.mutated)
    try:
        file.write_text("".join(lines), encoding="utf-8")
        return _run_tests(tests)
    finally:
        file.write_text(original, encoding="utf-8")


def _run_tests(tests: list[str]) -> str:
    child = os.fork()
    if child == 0:
        _run_tests_and_exit(tests)
    deadline = time.monotonic() + MUTANT_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "killed"


def _run_tests_and_exit(tests: list[str]) -> None:
    """Run tests until one fails or the time is over. The exit code 0 means that none failed."""
    os.setsid()
    sys.dont_write_bytecode = True
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    import pytest

    class Budget:
        def __init__(self) -> None:
            self.failed = False
            self.end = time.monotonic() + MAX_TESTS_SECONDS

        def pytest_collectreport(self, report: Any) -> None:
            self.failed = self.failed or report.failed

        def pytest_runtest_logreport(self, report: Any) -> None:
            self.failed = self.failed or report.failed

        def pytest_runtest_protocol(self, item: Any) -> None:
            if time.monotonic() > self.end:
                item.session.shouldstop = "the time is over"

    budget = Budget()
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--timeout={TEST_TIMEOUT_SECONDS}"]
    code = pytest.main([*options, *tests], plugins=[budget])
    os._exit(1 if budget.failed or code not in (0, 2) else 0)


def main() -> None:
    """Choose, cover or run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=("choose", "cover", "run"))
    parser.add_argument("--source", type=Path, default=Path("packages/steersman/src/steersman"))
    parser.add_argument("--other", type=Path, help="source directory of the other checkout, for choose")
    parser.add_argument("--tests", nargs="*", default=["packages/steersman/tests/unit"])
    parser.add_argument("--sample", type=Path, default=Path("build/mutation-sample.json"))
    parser.add_argument("--table", type=Path, default=Path("build/mutation-coverage.json"))
    options = parser.parse_args()
    match options.command:
        case "choose":
            choose(options.source, options.other, options.sample)
        case "cover":
            cover(options.source, options.tests, options.table)
        case _:
            run(options.source, options.table, options.sample)


if __name__ == "__main__":
    main()
