"""The page on changes of a spec does what it says."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman_testing import run_virtual
from steersman_testing.transitions import Budget, ExplorationReport, TransitionFailed, explore, in_memory

PAGE = "how-to/test-changes-of-a-spec.md"
FIRST_FAILURE = Budget(failures=1)


def code_block(title: str) -> str:
    match = re.search(rf'```text title="{title}"\n(.*?)```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert match is not None
    return match[1].rstrip("\n")


def run_trials(pages: Pages, operator: str, replay: str = "") -> ExplorationReport:
    load = pages(PAGE)
    kind, setup = load("sites").Site, load(operator).setup
    return run_virtual(explore(kind, in_memory(kind, setup), replay=replay, budget=FIRST_FAILURE))


def test_transitions_page_tests_pass(pages: Pages, capsys: pytest.CaptureFixture[str]) -> None:
    tests = pages(PAGE)("test_sites")
    tests.test_it_follows_every_change()
    assert capsys.readouterr().out.rstrip("\n") == code_block("report")
    tests.test_it_follows_titles_that_occur()
    tests.test_a_banner_goes()
    pages(PAGE)("test_publishing").test_it_publishes_every_change()


def test_transitions_compare_external_observations(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    reconciler, tests = load("publishing").PublishingReconciler, load("test_publishing")
    written = reconciler.write

    async def write(self: Any, site: Any, data: dict[str, str]) -> None:
        former = self.network.titles.get(site.metadata.name)
        await written(self, site, data)
        self.network.titles[site.metadata.name] = former or site.spec.title

    monkeypatch.setattr(reconciler, "write", write)
    monkeypatch.setattr(tests, "explore", partial(explore, budget=FIRST_FAILURE))
    with pytest.raises(TransitionFailed, match="Network trial"):
        tests.test_it_publishes_every_change()


def test_failure_report_and_replay_match_page(pages: Pages) -> None:
    found = run_trials(pages, "careless").failures[0]
    assert str(found) == code_block("story")
    assert [str(f) for f in run_trials(pages, "careless", found.replay).failures] == [code_block("story")]
    assert run_trials(pages, "sites", found.replay).failures == ()
