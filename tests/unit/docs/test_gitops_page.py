"""Run the health check of the page about Argo CD."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from lupa.lua51 import LuaRuntime

from framework_support.tutorial_runner import blocks_of

PAGE = "how-to/use-gitops.md"


def health(status: dict[str, Any]) -> str:
    """Return the health of an object of generation 2 in Argo CD."""
    [config] = [
        found
        for b in blocks_of(PAGE)
        if b.language == "yaml" and (found := yaml.safe_load(b.text))["kind"] == "ConfigMap"
    ]
    [customization] = yaml.safe_load(config["data"]["resource.customizations"]).values()
    # Argo CD runs Lua 5.1.
    lua: Any = LuaRuntime(unpack_returned_tuples=True)
    check = lua.eval(f"function(obj) {customization['health.lua']} end")
    reported = check(lua.table_from({"metadata": {"generation": 2}, "status": status}, recursive=True))
    return str(reported["status"])


def reported(phase: str, kstatus: str | None = None) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": "False" if kstatus else "True", "message": "m"}]
    if kstatus is not None:
        conditions.append({"type": kstatus, "status": "True", "message": "m"})
    return {"observedGeneration": 2, "phase": phase, "conditions": conditions}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, "Progressing"),
        ({**reported("Ready"), "observedGeneration": 1}, "Progressing"),
        (reported("Provisioning", "Reconciling"), "Progressing"),
        (reported("Ready"), "Healthy"),
        (reported("Degraded", "Reconciling"), "Progressing"),
        (reported("Degraded", "Stalled"), "Degraded"),
        (reported("Failed", "Stalled"), "Degraded"),
        (reported("Hibernated"), "Suspended"),
        (reported("Planned", "Stalled"), "Suspended"),
        ({"observedGeneration": 2, "phase": "Completed"}, "Healthy"),
        # A DatabaseUser has no phase.
        ({"observedGeneration": 2, "conditions": [{"type": "Ready", "status": "True", "message": "m"}]}, "Healthy"),
    ],
)
def test_health_check_follows_the_status(status: dict[str, Any], expected: str) -> None:
    assert health(status) == expected
