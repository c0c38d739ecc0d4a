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
        await world.create_ready(1, instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict(named(ran))))
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
        await world.create_ready(1, instances=1)
        world.not_resettable = {"work_mem": "4MB"}
        await world.change(postgresql={"parameters": {"timezone": "Europe/Berln", "work_mem": "8MB"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        await world.wait(120)
        before = world.refusals
        await world.wait(600)
        assert world.refusals - before <= 1


class LogicalSlots(ClusterHarness):
    """Servers with a logical slot, which do not start with another wal_level."""

    slots = True

    async def settings(self, server: DatabaseServer) -> SettingCatalog:
        level = self.stored_parameters().get("wal_level", "replica")
        setting = Setting(
            name="wal_level", value=level, kind="enum", context="sighup", choices=("replica", "logical")
        )
        return {**await super().settings(server), "wal_level": setting}

    async def validate_settings(self, server: DatabaseServer, values: Mapping[str, str]) -> SettingValidation:
        found = await super().validate_settings(server, values)
        conflict = self.slots and values.get("wal_level", "logical") != "logical"
        return SettingValidation({**found.rejected, "wal_level": "slot"} if conflict else found.rejected)


@virtual_time
async def test_removed_wal_level_stays_while_slots_need_it() -> None:
    """A server with a logical slot does not start with wal_level replica."""
    world = LogicalSlots()
    async with world.operator():
        await world.create(
            instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"wal_level": "logical"}))
        )
        await world.ready(1)
        await world.change(postgresql={"parameters": {"wal_level": None, "work_mem": "8MB"}})
        await world.until("written", lambda: world.stored_parameters().get("work_mem") == "8MB")
        await world.wait(120)
        assert world.stored_parameters()["wal_level"] == "logical"
        assert world.condition("ParametersApplied") == "True/Applied", "nothing that is declared is refused"
        world.slots = False
        await world.until("lowered", lambda: world.stored_parameters()["wal_level"] == "replica", 900)


@virtual_time
async def test_declared_wal_level_is_rejected_with_slots() -> None:
    world = LogicalSlots()
    async with world.operator():
        await world.create(
            instances=1, postgresql=PostgreSQLSettings(parameters=FrozenDict({"wal_level": "logical"}))
        )
        await world.ready(1)
        await world.change(postgresql={"parameters": {"wal_level": "replica"}})
        await world.until("refused", lambda: world.condition("ParametersApplied") == REFUSED)
        assert world.stored_parameters()["wal_level"] == "logical"


@virtual_time
async def test_rejected_value_is_not_written_while_servers_are_down() -> None:
    """Another value stops the only server, which had refused the time zone before. Another process finds it so."""
    world = ClusterHarness()
    world.hosts.unreadable_values.add(("timezone", "Europe/Berln"))
    world.hosts.failing_start.add(("shared_buffers", "700MB"))
    async with world.operator():
        await world.create_ready(1, instances=1)
        pod = world.pods()["orders-0"].metadata.uid
        await world.change(postgresql={"parameters": {"timezone": "Europe/Berln", "shared_buffers": "700MB"}})
        await world.until("refused", lambda: "Berln" in world.message("ParametersApplied"))
    async with world.operator():
        await world.until("reverted", lambda: "700MB" in world.message("ParametersApplied"))
        await world.wait(300)
        assert "timezone" not in world.stored_parameters()
        assert all(word in world.message("ParametersApplied") for word in ("Berln", "700MB"))
        await world.change(postgresql={"parameters": {"timezone": None, "shared_buffers": None}})
        await world.ready(1)
        assert world.condition("ParametersApplied") == "True/Applied"
        assert world.pods()["orders-0"].metadata.uid == pod
        assert not world.parameter_trials()
