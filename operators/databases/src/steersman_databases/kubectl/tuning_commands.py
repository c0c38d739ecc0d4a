"""The commands ``tuning show``, ``tuning try``, ``tuning keep`` and ``tuning stop``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, get_args

import typer

from steersman.client import Client, MergePatch
from steersman.meta import Duration, ObjectKey
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.api.autopilot.tuning import TrialParameter, TuningSettings, TuningStatus, TuningTrial
from steersman_databases.kubectl.command import (
    CommandContext,
    OperationRejected,
    on_cluster,
    print_note,
    qualified_name,
    usage_error,
)
from steersman_databases.kubectl.lookup import find_cluster

tuning_app = typer.Typer(
    no_args_is_help=True,
    help="Show recommended parameters, and try a value for some time.\n\nExample: kubectl steersman tuning show shop",
)
_ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)]
_LEAST, _MOST = Duration("30m"), Duration("168h")


@tuning_app.command("show")
@on_cluster
def show_command(place: CommandContext, cluster: _ClusterName) -> None:
    """Show the recommendations with their evidence, and the trial.

    Example: kubectl steersman tuning show shop

    Example: kubectl steersman tuning show shop -o json
    """

    async def work(client: Client, namespace: str) -> tuple[TuningSettings | None, TuningStatus | None]:
        found = await find_cluster(client, ObjectKey(namespace, cluster))
        return found.spec.tuning, found.status.tuning

    settings, status = place.run(work)
    place.print_output(status or TuningStatus(), lambda: _print(status or TuningStatus()))
    if settings is None or settings.mode == "Disabled":
        print_note(f"Cluster {cluster} does not declare spec.tuning with the mode Recommend.")
    elif status is None or status.observed_since is None:
        print_note("The operator has not observed the primary yet.")


def _print(status: TuningStatus) -> None:
    for one in status.recommendations:
        typer.echo(
            f"{one.rule}: {one.parameter} = {one.value}, now {one.current}{' (restart)' if one.restart else ''}"
        )
        typer.echo(f"  Evidence: {one.evidence}.")
        typer.echo(f"  Effect: {one.effect}.\n")
    if (trial := status.trial) is not None:
        verdict = f", {trial.verdict}" if trial.verdict else ""
        typer.echo(f"Trial of {trial.parameter} = {trial.value}: {trial.state}{verdict}")
        typer.echo(f"  {trial.message}.\n")
    if not status.recommendations and status.trial is None:
        typer.echo("No recommendations.")
    if status.observed_since is not None:
        typer.echo(f"Observed since {status.observed_since:%Y-%m-%d %H:%M} UTC.")


@tuning_app.command("try")
@on_cluster
def try_command(
    place: CommandContext,
    cluster: _ClusterName,
    parameter: Annotated[str, typer.Argument(metavar="PARAMETER", show_default=False)],
    value: Annotated[
        str, typer.Argument(metavar="VALUE", show_default=False, help="Defaults to the recommended value.")
    ] = "",
    duration: Annotated[str, typer.Option("--for", help="Duration of the trial, from 30m to 168h.")] = "2h",
) -> None:
    """Try a value of a parameter on all PostgreSQL servers.

    The previous value returns at the end, or earlier if a metric is worse.

    Example: kubectl steersman tuning try shop max_wal_size

    Example: kubectl steersman tuning try shop work_mem 64MB --for 6h
    """
    trial = place.run(lambda client, ns: _try(client, ObjectKey(ns, cluster), parameter, value, duration))
    place.print_output(
        trial,
        lambda: typer.echo(
            f"postgresqlcluster/{cluster} tries {trial.parameter} = {trial.value}"
            f" until {trial.until:%Y-%m-%d %H:%M} UTC"
        ),
    )


@tuning_app.command("keep")
@on_cluster
def keep_command(place: CommandContext, cluster: _ClusterName) -> None:
    """Declare the tried value as a parameter, and end the trial.

    Example: kubectl steersman tuning keep shop
    """
    trial = place.run(lambda client, ns: _end(client, ObjectKey(ns, cluster), keep=True))
    place.print_output(
        trial, lambda: typer.echo(f"postgresqlcluster/{cluster} declares {trial.parameter} = {trial.value}")
    )


@tuning_app.command("stop")
@on_cluster
def stop_command(place: CommandContext, cluster: _ClusterName) -> None:
    """End the trial. The previous value returns.

    Example: kubectl steersman tuning stop shop
    """
    trial = place.run(lambda client, ns: _end(client, ObjectKey(ns, cluster), keep=False))
    place.print_output(
        trial, lambda: typer.echo(f"postgresqlcluster/{cluster} no longer tries {trial.parameter} = {trial.value}")
    )


async def _try(client: Client, key: ObjectKey, parameter: str, value: str, duration: str) -> TuningTrial:
    """Declare a trial."""
    cluster = await _postgresql_cluster(client, key)
    if parameter not in (known := get_args(TrialParameter)):
        raise usage_error(f"parameter {parameter} cannot be tried. Choose one of {', '.join(known)}")
    if cluster.spec.tuning is not None and cluster.spec.tuning.mode == "Disabled":
        raise OperationRejected(f"spec.tuning.mode of cluster {qualified_name(key)} is Disabled. Set it to Recommend")
    status = cluster.status.tuning or TuningStatus()
    recommended = [one.value for one in status.recommendations if one.parameter == parameter]
    if not value and not recommended:
        raise usage_error(f"there is no recommendation for {parameter} in {qualified_name(key)}. Add a value")
    until = (datetime.now(UTC) + _duration(duration).timedelta).replace(microsecond=0)
    body: dict[str, Any] = {"parameter": parameter, "value": value or recommended[0], "until": until.isoformat()}
    patched = await client.patch(PostgreSQLCluster, key, MergePatch({"spec": {"tuning": {"trial": body}}}))
    assert patched.spec.tuning is not None and patched.spec.tuning.trial is not None
    return patched.spec.tuning.trial


def _duration(text: str) -> Duration:
    try:
        duration = Duration(text)
        seconds = duration.seconds
    except ValueError:
        raise usage_error(f"--for: {text!r} is not a duration, such as 2h") from None
    if not _LEAST.seconds <= seconds <= _MOST.seconds:
        raise usage_error(f"--for: {text} is not from 30m to 168h")
    return duration


async def _end(client: Client, key: ObjectKey, *, keep: bool) -> TuningTrial:
    """Remove the trial, and declare its value if it is kept."""
    cluster = await _postgresql_cluster(client, key)
    trial = None if cluster.spec.tuning is None else cluster.spec.tuning.trial
    if trial is None:
        raise OperationRejected(f"cluster {qualified_name(key)} has no trial")
    parameters = {"postgresql": {"parameters": {trial.parameter: trial.value}}} if keep else {}
    # Another person may have declared another trial.
    metadata = {"resourceVersion": cluster.metadata.resource_version}
    await client.patch(
        PostgreSQLCluster, key, MergePatch({"metadata": metadata, "spec": {"tuning": {"trial": None}, **parameters}})
    )
    return trial


async def _postgresql_cluster(client: Client, key: ObjectKey) -> PostgreSQLCluster:
    cluster = await find_cluster(client, key)
    if not isinstance(cluster, PostgreSQLCluster):
        raise usage_error(f"cluster {qualified_name(key)} is not a PostgreSQLCluster: trials need one")
    return cluster
