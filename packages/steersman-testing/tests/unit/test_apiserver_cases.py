"""The cases that the real server passes, too: see ``tests/integration``; and their list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from apiserver_cases import CASES, CRDS, KNOWN_DIFFERENCES, NOT_IMPLEMENTED
from apiserver_cases.servers import run_in_memory

LIST = Path(__file__).parents[1] / "conformance.md"
LINE = re.compile(r"- \[(?P<done>[ x])\] `(?P<name>[a-z_]+-[a-z0-9_]+)`: \S.*\. (?:\[[a-z0-9-]+\])+")


@pytest.mark.parametrize("case", [c for c in CASES if c not in NOT_IMPLEMENTED])
def test_in_memory(case: str) -> None:
    failure = run_in_memory(CASES[case], CRDS, "case").failure
    if failure is not None:
        raise failure


def _listed() -> dict[str, bool]:
    """Each case of the list, and whether it is marked as existing."""
    lines = [line for line in LIST.read_text().splitlines() if line.startswith("- [")]
    found = [LINE.fullmatch(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
    names = [match["name"] for match in found if match is not None]
    assert len(names) == len(set(names))
    return {match["name"]: match["done"] == "x" for match in found if match is not None}


def test_the_list_and_the_cases_agree() -> None:
    existing = [name for name, done in _listed().items() if done]
    assert existing == list(CASES)


def test_unfinished_listed_cases_have_no_test() -> None:
    assert not {name for name, done in _listed().items() if not done} & set(CASES)


def test_every_document_of_the_list_is_one() -> None:
    text = LIST.read_text()
    named = set(re.findall(r"\]?\[([a-z0-9-]+)\](?!:)", text)) - {"x"}
    defined = set(re.findall(r"^\[([a-z0-9-]+)\]: https://", text, re.MULTILINE))
    assert named == defined


def test_gaps_are_of_cases_that_there_are() -> None:
    assert set(NOT_IMPLEMENTED) | set(KNOWN_DIFFERENCES) <= set(CASES)
    assert not set(NOT_IMPLEMENTED) & set(KNOWN_DIFFERENCES)
