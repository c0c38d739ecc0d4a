"""Conformance cases in memory, and their list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apiserver_cases import CASES, CRDS, KNOWN_DIFFERENCES, NOT_IMPLEMENTED
from apiserver_cases.servers import run_in_memory

LIST = Path(__file__).parents[1] / "conformance.md"
LINE = re.compile(r"- \[(?P<done>[ x])\] `(?P<name>[a-z_]+-[a-z0-9_]+)`: \S.*\. (?:\[[a-z0-9-]+\])+")


@pytest.mark.parametrize("case", [c for c in CASES if c not in NOT_IMPLEMENTED])
def test_case_in_memory(case: str) -> None:
    failure = run_in_memory(CASES[case], CRDS, "case").failure
    if failure is not None:
        raise failure


def _listed() -> dict[str, bool]:
    """Return the cases of the list, and whether each exists."""
    lines = [line for line in LIST.read_text().splitlines() if line.startswith("- [")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
    names = [match["name"] for match in found if match is not None]
    assert len(names) == len(set(names))
    return {match["name"]: match["done"] == "x" for match in found if match is not None}


def test_list_matches_existing_cases() -> None:
    existing = [name for name, done in _listed().items() if done]
    assert existing == list(CASES)


def test_unfinished_listed_cases_have_no_test() -> None:
    assert not {name for name, done in _listed().items() if not done} & set(CASES)


def test_documents_of_the_list_are_defined() -> None:
    text = LIST.read_text()
    named = set(re.findall(r"\]?\[([a-z0-9-]+)\](?!:)", text)) - {"x"}
    defined = set(re.findall(r"^\[([a-z0-9-]+)\]: https://", text, re.MULTILINE))
    assert named == defined


def test_gaps_reference_existing_cases() -> None:
    assert set(NOT_IMPLEMENTED) | set(KNOWN_DIFFERENCES) <= set(CASES)
    assert not set(NOT_IMPLEMENTED) & set(KNOWN_DIFFERENCES)
