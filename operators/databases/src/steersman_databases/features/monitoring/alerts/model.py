"""An alert, and the rules that Prometheus reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

RUNBOOKS = "reference/alerts.md"
"""Page of the documentation with a section for each alert."""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """An alert.

    Args:
        group: name of the group of rules.
        expression: PromQL. Its result has the labels namespace and dbcluster, unless `about_cluster` is False.
        minutes: time that the expression must hold.
        severity: critical means that clients fail or data are at risk; warning that they soon may.
        summary: one sentence, with labels as templates.
        action: what to do, in the imperative, in the order of likelihood.
        about_cluster: whether `spec.monitoring.disabledAlerts` of a cluster can disable it.
    """

    name: str
    group: str
    expression: str
    minutes: int
    severity: Literal["critical", "warning", "info"]
    summary: str
    action: Sequence[str]
    about_cluster: bool = True

    @property
    def full_expression(self) -> str:
        """The expression without clusters that disable the alert.

        Without the operator's metrics, no cluster disables it.
        """
        expression = " ".join(self.expression.split())
        if not self.about_cluster:
            return expression
        disabled = f'steersman_alert_disabled{{alert="{self.name}"}}'
        return f"({expression}) unless on (namespace, dbcluster) {disabled}"

    @property
    def anchor(self) -> str:
        """The anchor of its section on the page of runbooks."""
        return self.name.lower()

    def rule(self) -> Mapping[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.full_expression,
            "for": f"{self.minutes}m",
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "action": self.action[0],
                "runbook": f"{RUNBOOKS}#{self.anchor}",
            },
        }


def rule_groups(alerts: Iterable[Alert]) -> Sequence[Mapping[str, Any]]:
    """Return the groups of rules. Alerts of one group are next to each other."""
    return [
        {"name": f"steersman-databases-{name}", "rules": [one.rule() for one in group]}
        for name, group in groupby(alerts, key=lambda one: one.group)
    ]
