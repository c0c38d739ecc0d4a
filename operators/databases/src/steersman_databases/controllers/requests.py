"""What people ask for by annotation and the operator takes off again when it is done: a switchover."""

from __future__ import annotations

from msgspec.structs import replace

from steersman.client import MergePatch
from steersman_databases.api import PostgreSQLCluster, PostgreSQLClusterStatus
from steersman_databases.api.postgresql_cluster import LastSwitchover
from steersman_databases.clusters.steps import ChooseSwitchover, EndSwitchover
from steersman_databases.clusters.view import SWITCHOVER
from steersman_databases.controllers.declaring import Charge


async def choose(charge: Charge, step: ChooseSwitchover) -> None:
    """Writes the instance's name where it said any, so that it is seen when it has happened."""
    await _annotate(charge, charge.cluster.metadata.resource_version, charge.view.names.instance(step.to))


async def end(charge: Charge, cluster: PostgreSQLCluster, step: EndSwitchover) -> None:
    """Says how it went in the status and an Event, and takes the annotation off: last, since that is what is lost."""
    status = cluster.status or PostgreSQLClusterStatus()
    last = status.last_switchover
    asked = last if last is not None and last.to == step.to else LastSwitchover(to=step.to)
    outcome = f"refused: {step.refused}" if step.refused else "Succeeded"
    told = replace(status, last_switchover=replace(asked, time=charge.clock.now(), outcome=outcome))
    applied = await charge.client.apply_status(cluster, told)
    await _annotate(charge, applied.metadata.resource_version, None)
    if step.refused:
        charge.events.warning(cluster, "SwitchoverRefused", f"no switchover to {step.to}: {step.refused}")
    else:
        charge.events.normal(cluster, "Switchover", f"{step.to} is the primary, as was asked for")


async def _annotate(charge: Charge, version: str, value: str | None) -> None:
    # What somebody has just asked for instead must not be overwritten.
    metadata = {"resourceVersion": version, "annotations": {SWITCHOVER: value}}
    await charge.client.patch(PostgreSQLCluster, charge.view.key, MergePatch({"metadata": metadata}))
