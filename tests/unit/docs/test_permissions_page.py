"""The page on permissions and webhooks does what it says."""

from __future__ import annotations

import re

import pytest

from framework_support.documented import DOCS, Pages
from steersman.manager import Manager
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime

PAGE = "how-to/test-permissions.md"


def test_its_tests_pass(pages: Pages) -> None:
    load = pages(PAGE)
    load("test_boats").test_the_permissions_suffice()
    load("test_webhook").test_papers_need_a_harbour()


def test_a_permission_that_is_missing_is_told(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    boats, page = load("boats"), load("test_boats")

    def setup(manager: Manager) -> None:
        manager.controller(boats.Boat).complete(boats.BoatReconciler)

    monkeypatch.setattr(boats, "setup", setup)
    server = InMemoryApiServer(virtual_runtime())
    server.register(boats.Boat)
    run_virtual(page.settled(server))
    told = re.search(r'```text title="refused"\n(.*?)\n```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert told is not None
    assert set(server.refused) == {f'configmaps "albatross" is forbidden: {told[1]}'}
