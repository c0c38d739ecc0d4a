"""The rendered manifests and chart of the operator."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster import binaries
from steersman_cli.packaging import OperatorManifests, ProjectMetadata
from steersman_cli.packaging.chart import build_chart

CONFIG = Path(__file__).parents[3] / "config"


@pytest.fixture(scope="module")
def rendered() -> Iterator[OperatorManifests]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(binaries.ensure()), prepend=os.pathsep)
        yield OperatorManifests.read(CONFIG, "steersman-databases")


def test_manifests_run_two_webhook_replicas(rendered: OperatorManifests) -> None:
    spec, pod = rendered.deployment["spec"], rendered.pod
    labels: dict[str, str] = spec["template"]["metadata"]["labels"]
    assert rendered.webhooks and "--leader-elect" in rendered.container["args"]
    assert spec["replicas"] == 2
    (spread,) = pod["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    (budget,) = rendered.of_kind("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    for selector in (spread["labelSelector"], budget["spec"]["selector"]):
        assert selector["matchLabels"].items() <= labels.items()


def test_chart_defaults_to_two_replicas_with_budget(rendered: OperatorManifests) -> None:
    chart = build_chart(rendered, ProjectMetadata("steersman-databases", "1.0.0", "Databases."))
    values: dict[str, Any] = yaml.safe_load(chart["values.yaml"])
    assert values["replicaCount"] == 2 and values["leaderElection"]["enabled"]
    assert values["podDisruptionBudget"] == {"enabled": True, "minAvailable": "", "maxUnavailable": 1}
    assert values["topologySpreadConstraints"] == rendered.pod["topologySpreadConstraints"]
    budgets = [name for name, text in chart.items() if "kind: PodDisruptionBudget" in text]
    assert budgets == ["templates/poddisruptionbudget.yaml"]
