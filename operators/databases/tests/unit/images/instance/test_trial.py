"""End of a trial by an instance, if the operator does not end it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from steersman_databases.engines.parameter_trial import ParameterTrial
from steersman_databases.features.tuning.trial import recorded_trial
from steersman_instance.paths import InstancePaths
from steersman_instance.services import postgresql_services
from steersman_instance.trial import configuration_path, end_trial
from steersman_instance.trial_record import GRACE, is_overdue, read_settings
from steersman_pod.api_client import ApiRequest, ApiResponse, run_requests

UNTIL = datetime(2030, 1, 1, tzinfo=UTC)
OVERDUE = UNTIL + GRACE
TRIAL = ParameterTrial(parameter="max_wal_size", value="2GB", until=UNTIL, former="1GB")
PATH = "/api/v1/namespaces/default/configmaps/orders-config"


def settings_with(trial: Mapping[str, Any] | None) -> dict[str, Any]:
    """Settings that all members share."""
    record = {} if trial is None else {"steersman": {"refused": {"jit": {"value": "1"}}, "trial": trial}}
    return {"ttl": 30, "postgresql": {"parameters": {"max_wal_size": "2GB", "jit": "on"}, "pg_hba": []}, **record}


@dataclass
class Store:
    """The ConfigMap of the members."""

    settings: Mapping[str, Any]
    status: int = 200
    version: int = 7
    writes: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def send(self, request: ApiRequest) -> ApiResponse:
        """Respond to a request."""
        assert request.path == PATH
        if request.body is None:
            annotations = {"config": json.dumps(self.settings)}
            return ApiResponse(200, {"metadata": {"resourceVersion": str(self.version), "annotations": annotations}})
        metadata = request.body["metadata"]
        if metadata["resourceVersion"] != str(self.version):
            return ApiResponse(409, {})
        if self.status == 200:
            self.settings = json.loads(metadata["annotations"]["config"])
            self.writes.append(self.settings)
        return ApiResponse(self.status, {"message": "forbidden"})


def end(store: Store, now: datetime = OVERDUE) -> str:
    """Run the requests of an instance."""
    return run_requests(end_trial(PATH, now), store.send)


def test_overdue_trial_is_ended_once() -> None:
    store = Store(settings_with(TRIAL.to_record()))
    assert end(store) == "ended the trial of max_wal_size = 2GB"
    assert store.settings["postgresql"] == {"parameters": {"max_wal_size": "1GB", "jit": "on"}, "pg_hba": []}
    assert store.settings["steersman"]["refused"] == {"jit": {"value": "1"}}, "other records stay"
    ended = recorded_trial(store.settings)
    assert ended is not None and ended.is_same(TRIAL) and ended.verdict == "Unclear"
    assert end(store) == "" and len(store.writes) == 1


def test_trial_of_a_default_value_removes_the_parameter() -> None:
    store = Store(settings_with(replace(TRIAL, former=None).to_record()))
    end(store)
    assert store.settings["postgresql"]["parameters"] == {"jit": "on"}


@pytest.mark.parametrize(
    "trial",
    [
        None,
        {**TRIAL.to_record(), "verdict": "Better", "message": "less WAL"},
        {**TRIAL.to_record(), "until": "soon"},
        {**TRIAL.to_record(), "until": "2030-01-01T00:00:00"},
    ],
)
def test_settings_without_running_trial_stay(trial: Mapping[str, Any] | None) -> None:
    store = Store(settings_with(trial))
    assert end(store) == "" and not store.writes


def test_operator_has_the_first_chance_to_end_a_trial() -> None:
    store = Store(settings_with(TRIAL.to_record()))
    assert end(store, OVERDUE - timedelta(seconds=1)) == "" and not store.writes


def test_concurrent_write_wins() -> None:
    store = Store(settings_with(TRIAL.to_record()))
    requests = end_trial(PATH, OVERDUE)
    read = store.send(next(requests))
    store.version += 1
    conflict = store.send(requests.send(read))
    with pytest.raises(StopIteration) as ended:
        requests.send(conflict)
    assert ended.value.value == "" and not store.writes


def test_refused_write_is_reported() -> None:
    store = Store(settings_with(TRIAL.to_record()), status=403)
    assert end(store) == "the trial cannot be ended: 403 forbidden"


def test_program_runs_only_during_a_trial(tmp_path: Path) -> None:
    paths = InstancePaths(volume=tmp_path)
    (service,) = [one for one in postgresql_services(paths) if one.name == "trial"]
    assert not service.enabled(), "there are no data yet"
    paths.postgresql_data.mkdir()
    for trial, is_enabled in ((None, False), (TRIAL.to_record(), True), ({"verdict": "Worse"}, False)):
        paths.shared_settings.write_text(json.dumps(settings_with(trial)))
        assert service.enabled() is is_enabled
    paths.shared_settings.write_text("{")
    assert not service.enabled() and not is_overdue(read_settings(paths.shared_settings), OVERDUE)


def test_path_is_that_of_the_members() -> None:
    assert configuration_path({"POD_NAME": "orders-2-0", "POD_NAMESPACE": "default"}) == PATH
