"""Recommendations and trials of whole clusters, in memory and in virtual time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from database_support.unit.cluster_harness import ClusterHarness
from steersman.controller import ReconcilerContext
from steersman.manager import Manager
from steersman.meta import Quantity
from steersman_databases.api.autopilot.automation import AutomationMode
from steersman_databases.api.autopilot.tuning import PostgreSQLTuningSettings, TuningStatus
from steersman_databases.api.cluster_common import VolumeSettings
from steersman_databases.cluster.parts.engine_parts import EngineParts
from steersman_databases.engines.server import ServerEndpoint
from steersman_databases.setup import setup
from steersman_testing import virtual_time

GIB = 1 << 30
TRIED = "2048MB"
_RATES = {  # a second
    'steersman_postgresql_database_commits_total{database="shop"}': 20.0,
    "steersman_postgresql_wal_bytes_total": 20_000.0,
    'steersman_postgresql_checkpoints_total{trigger="requested"}': 0.01,
    'steersman_postgresql_checkpoints_total{trigger="timed"}': 0.0,
    'steersman_postgresql_active_session_seconds_total{wait_event_type="CPU"}': 0.2,
}


@dataclass
class TuningHarness(ClusterHarness):
    """A cluster whose primary counts work. A tried `max_wal_size` changes the WAL of each transaction."""

    limit: AutomationMode = "Automatic"
    wal_factor: float = 1.0
    _totals: dict[str, float] = field(default_factory=dict[str, float])
    _counted_at: float = 0.0

    def engine_parts(self, context: ReconcilerContext) -> EngineParts:
        """See `ClusterHarness.engine_parts`."""
        return replace(super().engine_parts(context), get_metrics=self.metrics)

    def setup(self, manager: Manager) -> None:
        """See `ClusterHarness.setup`."""
        setup(
            manager,
            sql_engine_for=self.sql_engine,
            postgresql_factory=self.engine_parts,
            automation=self.limit,
        )

    async def metrics(self, endpoint: ServerEndpoint, authorities: str) -> str:
        """The metrics of an instance."""
        assert endpoint.port == 9187 and authorities.startswith("-----BEGIN CERTIFICATE")
        pod = next(pod for pod in self.pods().values() if pod.status.pod_ip == endpoint.host)
        tried = self.stored_parameters()["max_wal_size"] == TRIED
        now = self.runtime.clock.monotonic()
        for name, rate in _RATES.items():
            factor = self.wal_factor if tried and "wal" in name else 1.0
            self._totals[name] = self._totals.get(name, 0.0) + factor * rate * (now - self._counted_at)
        self._counted_at = now
        is_primary = float(pod.metadata.name == f"{self.status.primary}-0")
        gauges = {
            "steersman_postgresql_is_primary": is_primary,
            'steersman_postgresql_parameter{parameter="max_wal_size"}': (2 if tried else 1) * GIB,
            'steersman_volume_size_bytes{volume="data"}': 100 * GIB,
        }
        return "".join(f"{name} {value}\n" for name, value in {**self._totals, **gauges}.items())

    @property
    def tuning(self) -> TuningStatus:
        """The status."""
        return self.status.tuning or TuningStatus()

    @property
    def max_wal_size(self) -> str:
        """Value in the configuration that all members share."""
        return self.stored_parameters()["max_wal_size"]

    async def try_value(self, minutes: float, value: str = TRIED) -> None:
        """Declares a trial."""
        until = self.runtime.clock.now() + timedelta(minutes=minutes)
        trial = {"parameter": "max_wal_size", "value": value, "until": until.isoformat()}
        await self.change(tuning={"trial": trial})

    async def observe(self) -> None:
        """Creates the cluster and observes it for an hour."""
        await self.create(
            instances=2, tuning=PostgreSQLTuningSettings(), storage=VolumeSettings(size=Quantity("100Gi"))
        )
        await self.ready(2)
        await self.wait(3600)
        await self.until("recommended", lambda: self.tuning.recommendations)

    def entry(self) -> Mapping[str, Any]:
        """The entry of the status of automatic functions."""
        (found,) = [one for one in self.status.automation if one.name == "Tuning"]
        return {"mode": found.mode, "decision": found.decision}

    async def trial_is(self, state: str, verdict: str | None = None) -> None:
        """Waits for a state of the trial."""
        for _ in range(300):
            trial = self.tuning.trial
            if trial is not None and (trial.state, trial.verdict) == (state, verdict):
                return
            await self.wait(30)
        raise AssertionError(f"not {state} {verdict}: {self.tuning.trial}")


@virtual_time
async def test_recommendation_is_shown_and_changes_nothing() -> None:
    world = TuningHarness()
    async with world.operator():
        await world.observe()
        (found,) = world.tuning.recommendations
        assert (found.parameter, found.current, found.value) == ("max_wal_size", "1GB", "2GB")
        assert "checkpoints were requested, in 1 of 1 hours" in found.evidence
        assert world.entry() == {"mode": "Recommend", "decision": "Recommended"}
        assert world.max_wal_size == "1024MB"
    async with world.operator():
        await world.wait(600)
        assert world.tuning.recommendations == (found,), "it stays until the next hour is observed"


@virtual_time
async def test_worse_trial_is_reverted_for_good() -> None:
    world = TuningHarness(wal_factor=1.5)
    async with world.operator():
        await world.observe()
        uids = world.uids()
        await world.try_value(120)
        await world.until("applied", lambda: world.max_wal_size == TRIED)
        await world.trial_is("Ended", "Worse")
        assert world.max_wal_size == "1024MB" and world.uids() == uids
        assert world.tuning.trial is not None and "WAL bytes per transaction" in world.tuning.trial.message
        assert "max_wal_size" not in world.cluster.spec.postgresql.parameters
        assert world.messages("TrialStarted") == {"trial of max_wal_size = 2048MB started"}
        (ended,) = world.messages("TrialEnded")
        assert ended.startswith(
            "trial of max_wal_size = 2048MB ended with the verdict Worse: WAL bytes per transaction"
        )
    async with world.operator():
        await world.wait(1200)
        assert world.max_wal_size == "1024MB"
        await world.trial_is("Ended", "Worse")


@virtual_time
async def test_better_trial_ends_without_consent_and_stays_with_it() -> None:
    world = TuningHarness(wal_factor=0.6)
    async with world.operator():
        await world.observe()
        await world.try_value(40)
        await world.trial_is("Running", "Better")
        assert world.max_wal_size == TRIED and world.entry()["decision"] == "TrialRunning"
        await world.trial_is("Ended", "Better")
        assert world.max_wal_size == "1024MB"
        await world.change(tuning={"trial": None}, postgresql={"parameters": {"max_wal_size": TRIED}})
        await world.until("declared", lambda: world.max_wal_size == TRIED and world.tuning.trial is None)


@virtual_time
async def test_restart_of_the_operator_ends_a_trial() -> None:
    """Nothing guards it any more."""
    world = TuningHarness()
    async with world.operator():
        await world.observe()
        await world.try_value(120)
        await world.until("applied", lambda: world.max_wal_size == TRIED)
    async with world.operator():
        await world.trial_is("Ended", "Unclear")
        assert world.max_wal_size == "1024MB"
        trial = world.tuning.trial
        assert trial is not None and trial.message == "the operator restarted, so nothing can be compared"


@virtual_time
async def test_trial_waits_until_something_is_observed() -> None:
    world = TuningHarness()
    async with world.operator():
        await world.create(
            instances=1, tuning=PostgreSQLTuningSettings(), storage=VolumeSettings(size=Quantity("100Gi"))
        )
        await world.ready(1)
        await world.try_value(120)
        await world.trial_is("Waiting")
        await world.wait(600)
        assert world.max_wal_size == "1024MB"
        await world.trial_is("Running", "Unclear")
        await world.change(tuning={"mode": "Disabled"})
        await world.until("reverted", lambda: world.max_wal_size == "1024MB" and world.tuning.trial is None)
        assert world.entry() == {"mode": "Disabled", "decision": "Disabled"}
        await world.change(tuning=None)
        await world.until("removed", lambda: not [one for one in world.status.automation if one.name == "Tuning"])


@virtual_time
async def test_flag_of_the_operator_disables_trials() -> None:
    world = TuningHarness(limit="Disabled")
    async with world.operator():
        await world.create_ready(1, instances=1, tuning=PostgreSQLTuningSettings())
        await world.try_value(120)
        await world.wait(120)
        assert world.max_wal_size != TRIED and world.status.tuning is None
        assert world.entry() == {"mode": "Disabled", "decision": "Disabled"}
