"""Which parameters are refused where no server starts with several of them, and how often servers are asked."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from database_support.unit.cluster_harness import ClusterHarness
from steersman.meta import FrozenDict
from steersman_databases.api.postgresql_cluster import PostgreSQLSettings
from steersman_databases.engines.cluster_engine import Setting, SettingCatalog, SettingValidation
from steersman_databases.engines.server import DatabaseServer
from steersman_testing import virtual_time

REFUSED = "False/ParameterRejected"


class Versions(ClusterHarness):
    """Servers that show which versions of TLS they take."""

    async def settings(self, server: DatabaseServer) -> SettingCatalog:
        known = dict(await super().settings(server))
        for end, usual in (("min", "TLSv1.2"), ("max", "")):
            name = f"ssl_{end}_protocol_version"
            value = self.stored_parameters().get(name, usual)
            choices = (*([""] if end == "max" else []), "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
            known[name] = Setting(name=name, value=value, kind="enum", context="sighup", choices=choices)
        return known


@pytest.mark.parametrize(
    "ran, declared, kept",
    [
        # Each may be right by itself, and a former value stands beside one that is declared.
        ({"min": "TLSv1.3"}, {"min": "TLSv9", "max": "TLSv1.2"}, {"min": "TLSv1.3"}),
        # Who knows no other version is not cut off.
        ({"max": "TLSv1.2"}, {"max": "TLSv1.2", "min": "TLSv1.3"}, {"max": "TLSv1.2"}),
        ({}, {"max": "TLSv1.2", "min": "TLSv1.3"}, {}),
    ],
)
@virtual_time
async def test_conflicting_parameters_reject_the_new_one(
    ran: Mapping[str, str], declared: Mapping[str, str], kept: Mapping[str, str]
) -> None:
    def named(values: Mapping[str, str]) -> dict[str, str]:
        return {f"ssl_{end}_protocol_version": value for end, value in values.items()}

    world = Versions()
    async with world.operator():
        await world.create(instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict(named(ran))))
        await world.ready(1)
        await world.change(postgresql={"parameters": named(declared)})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.wait(120)
        assert {n: v for n, v in world.stored_parameters().items() if n.startswith("ssl_m")} == named(kept)


class Counting(ClusterHarness):
    """Counts the refusals of servers, each an error in a log."""

    refusals = 0

    async def validate_settings(self, server: DatabaseServer, values: Mapping[str, str]) -> SettingValidation:
        found = await super().validate_settings(server, values)
        self.refusals += len(found.rejected)
        return found


@virtual_time
async def test_rejected_parameter_is_not_retried() -> None:
    """Another parameter is not as declared, which a person has to see to."""
    world = Counting()
    world.hosts.unreadable_values.add(("timezone", "Europe/Berln"))
    async with world.operator():
        await world.create(instances=1)
        await world.ready(1)
        world.not_resettable = {"work_mem": "4MB"}
        await world.change(postgresql={"parameters": {"timezone": "Europe/Berln", "work_mem": "8MB"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.wait(120)
        before = world.refusals
        await world.wait(600)
        assert world.refusals - before <= 1
