"""promtool checks the alerts and the expressions of the dashboards."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from database_support.alert_cases import CASES, CLUSTER, AlertCase
from steersman_databases.features.monitoring.alerts import ALERTS, Alert, rule_groups
from steersman_databases.features.monitoring.dashboards import DASHBOARDS

_SERIES = re.compile(r"^(?P<name>\w+)\{(?P<labels>.*)\}$")


def promtool(*arguments: str) -> str:
    """Run promtool, and return its output. The test is skipped without it."""
    directory = os.environ.get("PROMETHEUS_DIRECTORY", "")
    program = shutil.which("promtool", path=os.pathsep.join((directory, os.environ["PATH"])))
    if program is None:
        pytest.skip("promtool is missing: on Debian, apt-get install prometheus or promtool")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(path: Path, content: Mapping[str, Any]) -> str:
    path.write_text(yaml.safe_dump(dict(content)))
    return str(path)


def test_rules_are_valid(tmp_path: Path) -> None:
    rules = write(tmp_path / "rules.yaml", {"groups": list(rule_groups(ALERTS))})
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", rules)


@pytest.mark.requirement("overview/level-4-monitoring")
def test_rules_fire_by_fault_only(tmp_path: Path) -> None:
    rules = write(tmp_path / "rules.yaml", {"groups": list(rule_groups(ALERTS))})
    assert set(CASES) == {alert.name for alert in ALERTS}
    tests = [test for alert in ALERTS for test in checks_of(alert, CASES[alert.name])]
    promtool("test", "rules", write(tmp_path / "tests.yaml", {"rule_files": [rules], "tests": tests}))


def checks_of(alert: Alert, case: AlertCase) -> Iterable[Mapping[str, Any]]:
    """It fires after its time and not before half of it, not without the fault, and not where it is disabled."""
    yield one_test(alert, case.fault, case, fires=True)
    yield one_test(alert, case.quiet, case, fires=False)
    if alert.about_cluster:
        disabled = {f'steersman_alert_disabled{{{CLUSTER},alert="{alert.name}"}}': "1x800"}
        yield one_test(alert, {**case.fault, **disabled}, case, fires=False)


def one_test(alert: Alert, series: Mapping[str, str], case: AlertCase, *, fires: bool) -> Mapping[str, Any]:
    firing = f'ALERTS{{alertname="{alert.name}",alertstate="firing"}}'
    labels = ",".join(filter(None, (firing.removesuffix("}"), f'severity="{alert.severity}"', case.labels))) + "}"
    expected = [{"labels": labels, "value": 1}] if fires else []
    checks: list[Mapping[str, Any]] = [{"expr": firing, "eval_time": f"{case.after}m", "exp_samples": expected}]
    if alert.minutes:
        checks.append({"expr": firing, "eval_time": f"{alert.minutes // 2}m", "exp_samples": list[Any]()})
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in {**case.always, **series}.items()],
        "promql_expr_test": checks,
    }


def test_dashboard_expressions_are_valid(tmp_path: Path) -> None:
    expressions = [one for dashboard in DASHBOARDS for one in dashboard.expressions]
    records = [
        {"record": f"panel:{number}", "expr": concrete(expression)} for number, expression in enumerate(expressions)
    ]
    groups = [{"name": "dashboards", "rules": records}]
    assert f"{len(records)} rules found" in promtool(
        "check", "rules", write(tmp_path / "rules.yaml", {"groups": groups})
    )


def concrete(expression: str) -> str:
    """Replace the variables of Grafana."""
    return expression.replace("$__rate_interval", "5m").replace("$namespace", ".*").replace("$dbcluster", ".*")


def test_series_of_cases_have_labels() -> None:
    series: Sequence[str] = [one for case in CASES.values() for one in (*case.fault, *case.quiet, *case.always)]
    assert all(_SERIES.match(one) for one in series), json.dumps(series)
