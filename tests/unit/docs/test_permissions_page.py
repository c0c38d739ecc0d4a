"""The page on permissions and webhooks does what it says."""

from __future__ import annotations

import re

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman.manager import Manager
from steersman_testing import InMemoryApiServer, run_virtual, virtual_runtime

PAGE = "how-to/test-permissions.md"


def test_permissions_page_tests_pass(pages: Pages) -> None:
    load = pages(PAGE)
    load("test_boats").test_the_permissions_suffice()
    load("test_webhook").test_papers_need_a_harbour()


def test_missing_permission_fails_with_shown_message(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    load = pages(PAGE)
    webapps, page = load("webapps"), load("test_boats")

    def setup(manager: Manager) -> None:
        manager.controller(webapps.WebApp).complete(webapps.WebAppReconciler)

    monkeypatch.setattr(webapps, "setup", setup)
    server = InMemoryApiServer(virtual_runtime())
    server.register(webapps.WebApp)
    run_virtual(page.settled(server))
    expected = re.search(r'```text title="refused"\n(.*?)\n```', (DOCS / PAGE).read_text(), re.DOTALL)
    assert expected is not None
    assert set(server.rbac_denials) == {f'configmaps "albatross" is forbidden: {expected[1]}'}
