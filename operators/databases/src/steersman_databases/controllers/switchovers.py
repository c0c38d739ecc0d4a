"""Switchovers in the status, where they are written before anybody is asked, and what annotations ask for."""

from __future__ import annotations

from datetime import datetime
from typing import TypeVar

from msgspec.structs import replace

from steersman.api.core_v1 import ConfigMap
from steersman.client import MergePatch
from steersman_databases.api import Cluster, ClusterStatus
from steersman_databases.api.cluster_parts import LastSwitchover
from steersman_databases.clusters.handover import asked, declaration
from steersman_databases.clusters.observed import Attempt, Observed
from steersman_databases.clusters.steps import ChooseSwitchover, EndReplacement, EndSwitchover, SwitchOver
from steersman_databases.clusters.view import REPLACE, SWITCHOVER
from steersman_databases.controllers.cluster_status import status_of
from steersman_databases.controllers.declaring import Charge
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.topology import Members

S = TypeVar("S", bound=ClusterStatus)

_REQUESTED = "Requested"
_SUCCEEDED = "Succeeded"


def attempt_of(view: ClusterView, status: ClusterStatus | None, members: Members) -> Attempt | None:
    """The last switchover that was decided, as far as it did not succeed."""
    last = None if status is None else status.last_switchover
    to = None if last is None else view.names.number(last.to or "")
    if last is None or to is None or last.time is None or last.outcome == _SUCCEEDED:
        return None
    before = (view.names.number(name) for name in last.refused)
    return Attempt(
        to=to,
        at=last.time,
        declared=last.declared or "",
        sent=last.store_version is not None and last.store_version == members.asked,
        ended=last.outcome != _REQUESTED,
        before=frozenset(number for number in before if number is not None),
    )


async def intend(charge: Charge, cluster: Cluster, step: SwitchOver, observed: Observed) -> None:
    """Writes down that a switchover is asked for, and what the store will bear once it was."""
    view, names = charge.view, charge.view.names
    store = await charge.client.live.get(ConfigMap, view.store.requests)
    status = status_of(await charge.client.live.get(type(cluster), cluster.key))
    told = LastSwitchover(
        time=charge.clock.now(),
        former=status.primary,
        to=names.instance(step.to),
        outcome=_REQUESTED,
        declared=declaration(view),
        refused=tuple(sorted(names.instance(n) for n in asked(view, observed) - {step.to})),
        store_version=store.metadata.resource_version,
    )
    await charge.client.apply_status(cluster, replace(status, last_switchover=told))


def ended(status: S, now: datetime, refused: str = "") -> S:
    """``status`` with how the switchover went that was asked for: as ``refused`` says, or well once it is seen."""
    last = status.last_switchover
    if last is None or last.outcome != _REQUESTED or not (refused or last.to == status.primary):
        return status
    return replace(status, last_switchover=_over(last, now, refused))


def _over(last: LastSwitchover, now: datetime, refused: str) -> LastSwitchover:
    return replace(last, time=now, outcome=f"refused: {refused}" if refused else _SUCCEEDED)


def brought_about(status: ClusterStatus, primary: str | None) -> bool:
    """Whether ``primary``, who takes over after ``status`` was written, does so by the switchover that it tells of.

    Each brings about one change of primary: the next one to the same instance is a failover.
    """
    last = status.last_switchover
    if last is None or last.to != primary or last.store_version is None:
        return False
    return last.outcome in (_REQUESTED, _SUCCEEDED)


def with_change(status: S) -> S:
    """``status``, the first that tells of a change of primary: the switchover that brought it about is used up."""
    last = status.last_switchover
    if last is None or not brought_about(status, status.primary):
        return status
    # Not as soon as it succeeded: that is written by who sees the new leader, and its timeline may be seen later.
    return replace(status, last_switchover=replace(last, store_version=None))


async def choose(charge: Charge, step: ChooseSwitchover) -> None:
    """Writes the instance's name where it said any, so that it is seen when it has happened."""
    await _annotate(charge, charge.cluster.metadata.resource_version, SWITCHOVER, charge.view.names.instance(step.to))


async def end(charge: Charge, cluster: Cluster, step: EndSwitchover, observed: Observed) -> None:
    """Says how it went in the status and an Event, and takes the annotation off: last, since that is what is lost.

    Who refused what is declared is not forgotten where somebody asked for another.
    """
    status = status_of(cluster)
    last = status.last_switchover
    about = last
    if about is None or about.to != step.to:
        refused = tuple(sorted(charge.view.names.instance(n) for n in asked(charge.view, observed)))
        about = LastSwitchover(to=step.to, declared=declaration(charge.view), refused=refused)
    told = replace(status, last_switchover=_over(about, charge.clock.now(), step.refused))
    applied = await charge.client.apply_status(cluster, told)
    await _annotate(charge, applied.metadata.resource_version, SWITCHOVER, None)
    if step.refused:
        charge.events.warning(cluster, "SwitchoverRefused", f"no switchover to {step.to}: {step.refused}")
    else:
        charge.events.normal(cluster, "Switchover", f"{step.to} is the primary, as was asked for")


async def end_replacement(charge: Charge, step: EndReplacement) -> None:
    """Takes the annotation off. That an instance was replaced was said when it was."""
    await _annotate(charge, charge.cluster.metadata.resource_version, REPLACE, None)
    if step.refused:
        charge.events.warning(charge.cluster, "ReplacementRefused", f"{step.of} is not replaced: {step.refused}")


async def _annotate(charge: Charge, version: str, name: str, value: str | None) -> None:
    # What somebody has just asked for instead must not be overwritten.
    metadata = {"resourceVersion": version, "annotations": {name: value}}
    await charge.client.patch(type(charge.cluster), charge.view.key, MergePatch({"metadata": metadata}))
