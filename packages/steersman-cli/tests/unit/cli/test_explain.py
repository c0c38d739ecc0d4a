"""steersman explain: outcomes of reconciles, blocking and unpruned dependents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

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
IDLE: dict[str, Any] = {"running": [], "queue": {"waiting": [], "delayed": []}}
CONTROLLERS: list[dict[str, Any]] = [
    {"name": "shop", "kind": "Shop", "names": ["shops", "sh"], "namespaced": True, **IDLE},
    {"name": "zone", "kind": "Zone", "names": ["zones"], "namespaced": False, **IDLE},
    {"name": "pod-a", "kind": "Pod", "names": ["pods"], "namespaced": True, **IDLE},
    {"name": "pod-b", "kind": "Pod", "names": ["pods"], "namespaced": True, **IDLE},
]


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


@pytest.fixture
def requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Requests to an operator without recorded reconciles."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))
    sent: list[str] = []

    def fetch_json(endpoint: DebugEndpoint, path: str, query: str) -> Any:
        sent.append(f"{path}{query}")
        return CONTROLLERS if path == "/debug/controllers" else []

    monkeypatch.setattr(module, "fetch_json", fetch_json)
    return sent


@pytest.mark.parametrize(
    ("controller", "given", "path", "message"),
    [
        ("shop", "blue", "shop/recent?limit=20&object=default/blue", "no reconcile of shop default/blue is recorded"),
        ("Shops", "a/b", "shop/recent?limit=20&object=a/b", "no reconcile of shop a/b is recorded"),
        ("SH", "", "shop/recent?limit=20", "no reconcile of shop is recorded; objects are NAMESPACE/NAME"),
        ("Zone", "eu", "zone/recent?limit=20&object=eu", "zone eu is recorded; objects are NAME\n"),
        ("pod-a", "", "pod-a/recent?limit=20", "no reconcile of pod-a is recorded"),
    ],
)
def test_explain_without_reconciles_says_so(
    requests: list[str],
    capsys: pytest.CaptureFixture[str],
    controller: str,
    given: str,
    path: str,
    message: str,
) -> None:
    module.explain(controller, given, "http://127.0.0.1:8082", 20, "table")
    assert requests[-1] == f"/debug/controllers/{path}"
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("controller", "message"),
    [
        ("pods", "pods has several controllers: give one of pod-a, pod-b"),
        ("fish", "controller fish not found (controllers: shop, zone, pod-a, pod-b)"),
    ],
)
@pytest.mark.usefixtures("requests")
def test_explain_unknown_or_ambiguous_name_is_rejected(
    capsys: pytest.CaptureFixture[str], controller: str, message: str
) -> None:
    with pytest.raises(typer.Exit):
        module.explain(controller, "", "http://127.0.0.1:8082", 20, "table")
    assert message in capsys.readouterr().err


def test_explain_namespace_is_that_of_the_context(
    requests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config").write_text(
        "current-context: a\ncontexts: [{name: a, context: {cluster: a, user: a, namespace: team}}]\n"
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}]\nusers: [{name: a, user: {}}]\n"
    )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    module.explain("shop", "blue", "http://127.0.0.1:8082", 20, "table")
    assert requests[-1].endswith("object=team/blue")
