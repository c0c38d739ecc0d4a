"""Scenarios of a simulated ``MySQLCluster``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from database_support.simulation.cluster_scenarios import KEY, ClusterUser
from database_support.simulation.mysql_clusters import NAMES, Groups
from database_support.simulation.mysql_group import SimulatedMysqld
from steersman.api.core_v1 import PersistentVolumeClaim, Pod
from steersman_databases.api import MySQLCluster, MySQLClusterSpec

user = ClusterUser(MySQLCluster, MySQLClusterSpec)
create, ready, change, annotate, delete = user.create, user.ready, user.change, user.annotate, user.delete


async def operated(world: Groups) -> None:
    """Switched over, hibernated and woken, an instance recreated."""
    await create(world, instances=2)
    await annotate(world, switchover="orders-1")
    await world.wait_until("switched", lambda: user.annotation(world, "switchover") is None)
    await ready(world)
    await change(world, hibernated=True)
    await world.wait_until("asleep", lambda: not list(world.read_all(Pod)))
    await change(world, hibernated=False)
    await ready(world)
    await annotate(world, replace_instance="orders-0")
    await world.wait_until("recreated", lambda: user.annotation(world, "replace-instance") is None)
    await ready(world)


async def configured(world: Groups) -> None:
    """With parameters that servers take as they run, and with such as they take when they start."""
    await create(world, instances=3)
    await change(world, mysql={"parameters": {"max_connections": "200"}})
    await ready(world)
    await world.wait_until("taken", lambda: _run_with(world, "max_connections") == {"200"})
    _online(world)[0].variables["max_connections"] = "7"
    await world.wait_until("taken back", lambda: _run_with(world, "max_connections") == {"200"})
    declared = {"innodb_log_buffer_size": "33554432", "max_connections": None}
    await change(world, mysql={"parameters": declared})
    await ready(world)
    await world.wait_until("restarted", lambda: _run_with(world, "innodb_log_buffer_size") == {"33554432"})
    assert "200" not in _run_with(world, "max_connections")
    restarted = world.outside.restarted
    assert len(restarted) == len({*restarted}), f"some are restarted again and again: {restarted}"
    _founded(world, 1)


async def maintained(world: Groups) -> None:
    """The restart for a removed parameter waits for a window, which an annotation opens."""
    window = {"days": ["Mon"], "start": "12:00", "duration": "1h"}
    await create(world, instances=2)
    declared = {"innodb_log_buffer_size": "33554432"}
    await change(world, maintenance={"windows": [window]}, mysql={"parameters": declared})
    await world.wait_until("restarted", lambda: _run_with(world, "innodb_log_buffer_size") == {"33554432"})
    await change(world, mysql={"parameters": None})
    await world.wait_until("waiting", lambda: user.reason(world, "ParametersApplied") == "WaitingForWindow")
    await annotate(world, **{"maintenance-until": "2031-01-01T00:00:00Z"})
    await world.wait_until("applied", lambda: user.reason(world, "ParametersApplied") == "Applied")
    await ready(world)


async def replaced(world: Groups) -> None:
    """Made larger, and then a replica loses its volume."""
    await create(world, instances=2)
    await change(world, instances=3)
    await ready(world)
    await world.client.delete(PersistentVolumeClaim, NAMES.data_pvc(_replica(world)))
    await world.wait_until("replaced", lambda: world.read(Pod, NAMES.pod(3)) is not None)
    await ready(world)


async def failover(world: Groups) -> None:
    """The primary is killed, twice."""
    await create(world, instances=3)
    for _ in range(2):
        former = await _writing(world)
        _kill(world, former)
        await _succeeded(world, former)
        await _writing(world)
        await ready(world)
    _founded(world, 1)


async def outage(world: Groups) -> None:
    """All are killed at one moment, just when something was written."""
    await create(world, instances=3)
    former = await _writing(world)
    assert world.outside.servers.write(former)
    _kill(world, *_online(world))
    await _writing(world)
    await ready(world)
    _founded(world, 2)


async def fenced(world: Groups) -> None:
    """The primary is fenced, and is not any more."""
    await create(world, instances=3)
    former = await _writing(world)
    async with _person(world):
        await annotate(world, fenced_instances=former.name.removesuffix("-0"))
        await world.wait_until("it has ended", lambda: not former.runs)
        await _writing(world)
        await world.wait_until_quiet()
        assert not former.runs
        await annotate(world, fenced_instances=None)
        await ready(world)


async def consented(world: Groups) -> None:
    """All are killed, the last primary for long: a person goes on without it, and has it recreated later."""
    await create(world, instances=3)
    former = await _writing(world)
    assert world.outside.servers.write(former)
    pods = world.outside.agent_pods
    pods.unreachable.add(former.name)
    _kill(world, *_online(world))
    await world.wait_until("consent required", lambda: user.reason(world, "OutageRecoverable") == "ConsentRequired")
    async with _person(world):
        await _writing(world)
        pods.unreachable.clear()
        await world.wait_until("all are online", lambda: len(_online(world)) == 3)
        await ready(world)
    _founded(world, 2)


@asynccontextmanager
async def _person(world: Groups) -> AsyncGenerator[None]:
    """Is there meanwhile: without one, who is killed beside what the story does may be an outage for good."""
    acting = asyncio.create_task(_act(world), name="person")
    try:
        yield
    finally:
        acting.cancel()


async def _act(world: Groups) -> None:
    """Reads now and then what would be lost, and takes the first; recreates instances that have what was lost."""
    while True:
        await world.sleep(10.0)
        found = world.read(MySQLCluster, KEY)
        if found is None:
            continue
        outage, errant = found.status.outage, [m.name for m in found.status.members if m.errant_gtids]
        if outage is not None and outage.choices and user.reason(world, "OutageRecoverable").startswith("Consent"):
            world.outside.servers.given_up = world.outside.servers.acknowledged
            chosen = outage.choices[0]
            loss = {"transactions": chosen.loss.transactions, "instances": [*chosen.loss.instances]}
            await change(world, forceRecovery={"epoch": outage.epoch, "instance": chosen.instance, "loss": loss})
        elif errant and user.annotation(world, "replace-instance") is None:
            await annotate(world, replace_instance=errant[0])


async def _succeeded(world: Groups, former: SimulatedMysqld) -> None:
    """Another takes writes, and soon. If somebody else was killed as well, all may wait for the former."""
    if not world.outside.agents.crash:
        await world.wait_until("another instance accepts writes", lambda: _primary(world) not in (None, former), 60)


async def _writing(world: Groups) -> SimulatedMysqld:
    """Waits until clients have written something more; the primary."""
    before = world.outside.written
    await world.wait_until("writes are taken", lambda: world.outside.written > before and _primary(world))
    [primary] = world.outside.servers.primaries()
    return primary


def _founded(world: Groups, times: int) -> None:
    """A group that loses its only member to a fault is founded once more."""
    assert len(world.outside.servers.founded) == times or world.outside.agents.crash


def _primary(world: Groups) -> SimulatedMysqld | None:
    return next(iter(world.outside.servers.primaries()), None)


def _online(world: Groups) -> list[SimulatedMysqld]:
    return [s for s in world.outside.servers.all.values() if s.state == "ONLINE"]


def _run_with(world: Groups, parameter: str) -> set[str]:
    return {s.variables.get(parameter, "") for s in _online(world)}


def _replica(world: Groups) -> int:
    """The number of one."""
    name = next(s.name for s in _online(world) if s is not _primary(world))
    number = NAMES.ordinal(name.removesuffix("-0"))
    assert number is not None
    return number


def _kill(world: Groups, *servers: SimulatedMysqld) -> None:
    for server in servers:
        world.outside.agent_pods.kill(server.name)


_STORIES = (
    user.life,
    user.retained,
    operated,
    configured,
    maintained,
    replaced,
    failover,
    outage,
    fenced,
    consented,
    user.backed_up,
)
SCENARIOS = {scenario.__name__: scenario for scenario in _STORIES}
