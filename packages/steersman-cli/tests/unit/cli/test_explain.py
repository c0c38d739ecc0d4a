"""steersman explain: outcomes of reconciles, blocking and unpruned dependents."""

from __future__ import annotations

from typing import Any

import pytest

import steersman_cli.explain as module
from steersman_cli.debug_endpoint import DebugEndpoint

RECENT: dict[str, Any] = {
    "namespace": "orders",
    "name": "shop",
    "started": "2026-01-01T00:00:00+00:00",
    "duration_seconds": 0.25,
    "result": "success",
    "errors": [],
    "triggers": [
        {
            "reason": "updated",
            "origin": "owns",
            "kind": "ConfigMap",
            "object": "orders/home",
            "fields": ["data.text"],
            "writer": "other",
        },
        {"reason": "requeue", "origin": "requeue"},
    ],
    "omitted_triggers": 0,
    "blocking_dependents": [
        {"kind": "Job", "object": "orders/migrate", "message": "0 of 1 pods have succeeded", "failed": False}
    ],
    "unpruned_dependents": [{"kind": "ConfigMap", "object": "orders/news"}],
}
CONTROLLERS: list[dict[str, Any]] = [{"name": "shop", "running": [], "queue": {"waiting": [], "delayed": []}}]


def test_explain_shows_blocking_and_unpruned_dependents(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fetch_json(endpoint: DebugEndpoint, path: str, query: str) -> Any:
        return CONTROLLERS if path == "/debug/controllers" else [RECENT]

    monkeypatch.setattr(module, "fetch_json", fetch_json)
    module.explain("shop", "", "http://127.0.0.1:8082", 20, "table")
    output = " ".join(capsys.readouterr().out.split())
    assert "success in 0.250 s" in output
    assert "Job orders/migrate:" in output
    assert "ConfigMap orders/news: not" in output
    assert "updated ConfigMap orders/home (owns, other client): data.text" in output
