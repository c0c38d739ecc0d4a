"""The commands of ``kubectl steersman``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from steersman.client import Client
from steersman.errors import SteersmanError
from steersman.meta import FrozenStruct, ObjectKey
from steersman_databases.api import MySQLCluster, PostgreSQLCluster
from steersman_databases.kubectl import bundle, cluster_actions, logs, shell, status
from steersman_databases.kubectl.backup.backup_commands import (
    backup_command,
    backups_command,
    undrop_command,
    verify_command,
)
from steersman_databases.kubectl.backup.clone import clone_command
from steersman_databases.kubectl.backup.restore_command import restore_command
from steersman_databases.kubectl.backup.store_commands import store_app
from steersman_databases.kubectl.backup.what_changed import what_changed_command
from steersman_databases.kubectl.command import (
    EXIT_PROBLEM_FOUND,
    CommandContext,
    on_cluster,
    print_note,
    usage_error,
)
from steersman_databases.kubectl.imports.import_command import import_app
from steersman_databases.kubectl.insight.advise import advise_command
from steersman_databases.kubectl.insight.history_command import history_command
from steersman_databases.kubectl.insight.top import top_command
from steersman_databases.kubectl.insight.why import why_command
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.tuning_commands import tuning_app

app = typer.Typer(
    name="kubectl steersman",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(desired: bool) -> None:
    if desired:
        from importlib.metadata import version

        typer.echo(f"steersman-databases {version('steersman-databases')}")
        raise typer.Exit


@app.callback()
def plugin(
    _: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Show clusters and act on them.

    Example: kubectl steersman status
    """


ClusterName = Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)]
WaitOption = Annotated[bool, typer.Option(help="Wait for completion.")]
TimeoutOption = Annotated[float, typer.Option(help="Seconds to wait.", min=0)]
AllOption = Annotated[bool, typer.Option("--all", help="All instances.")]
_FORWARD_ARGUMENTS = {"ignore_unknown_options": True}
ForwardedArguments = Annotated[list[str] | None, typer.Argument(metavar="-- ARGUMENT", show_default=False)]


class CommandResult(FrozenStruct):
    """Result of a command."""

    cluster: str
    action: str
    fenced: tuple[str, ...] | None = None
    primary: str | None = None


def _print_result(place: CommandContext, result: CommandResult) -> None:
    def print_line() -> None:
        found = place.run(lambda client, ns: find_cluster(client, ObjectKey(ns, result.cluster)))
        typer.echo(f"{type(found).api_resource.kind.lower()}/{result.cluster} {result.action}")

    place.print_output(result, print_line)


@app.command("status")
@on_cluster
def status_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)] = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Clusters of all namespaces.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit with code 1 unless all shown clusters are Ready.")
    ] = False,
) -> None:
    """Show clusters, or one with its instances and what is wrong.

    Example: kubectl steersman status

    Example: kubectl steersman status shop -n prod

    Example: kubectl steersman status shop --check -o json
    """

    async def load(client: Client, namespace: str) -> tuple[status.ClusterReport, ...]:
        if cluster:
            return (await status.load_cluster(client, ObjectKey(namespace, cluster)),)
        return await status.load_clusters(client, "" if everywhere else namespace)

    found = place.run(load)
    if cluster:
        place.print_output(found[0], lambda: status.show(found[0]))
    else:
        place.print_output(found, lambda: status.show_all(found, everywhere=everywhere))
        if not found and place.output == "table":
            print_note("No clusters found.")
    if check and any(each.phase != "Ready" for each in found):
        raise typer.Exit(EXIT_PROBLEM_FOUND)


@app.command()
@on_cluster
def switchover(
    place: CommandContext,
    cluster: ClusterName,
    to: Annotated[
        str, typer.Argument(metavar="INSTANCE", help="The new primary. Defaults to the best replica.")
    ] = "",
    wait: WaitOption = True,
    timeout: TimeoutOption = 60,
) -> None:
    """Make another instance the primary.

    Example: kubectl steersman switchover shop

    Example: kubectl steersman switchover shop shop-2 --timeout 120
    """
    seconds = timeout if wait else None
    last = place.run(
        lambda client, ns: cluster_actions.switch_over(
            client, ObjectKey(ns, cluster), to or cluster_actions.ANY, timeout_seconds=seconds
        )
    )
    if last is None:
        _print_result(place, CommandResult(cluster=cluster, action="switchover requested"))
    else:
        _print_result(
            place,
            CommandResult(cluster=cluster, action=f"switched over from {last.former} to {last.to}", primary=last.to),
        )


@app.command()
@on_cluster
def replace(
    place: CommandContext, cluster: ClusterName, instance: str, wait: WaitOption = True, timeout: TimeoutOption = 60
) -> None:
    """Rebuild a replica from scratch on a new volume.

    Example: kubectl steersman replace shop shop-2
    """
    seconds = timeout if wait else None
    place.run(
        lambda client, ns: cluster_actions.replace(client, ObjectKey(ns, cluster), instance, timeout_seconds=seconds)
    )
    _print_result(
        place, CommandResult(cluster=cluster, action=f"{'replaced' if wait else 'replacement requested:'} {instance}")
    )


@app.command()
@on_cluster
def restart(place: CommandContext, cluster: ClusterName) -> None:
    """Restart all instances one by one.

    The primary is the last, after a switchover.

    Example: kubectl steersman restart shop
    """
    place.run(lambda client, ns: cluster_actions.restart(client, ObjectKey(ns, cluster)))
    _print_result(place, CommandResult(cluster=cluster, action="restart requested"))


Instances = Annotated[list[str] | None, typer.Argument(metavar="INSTANCE", show_default=False)]


def _selected(instances: list[str] | None, all_instances: bool) -> list[str]:
    if bool(instances) == all_instances:
        raise usage_error("list instances, or use --all")
    return [cluster_actions.ALL] if all_instances else instances or []


@app.command()
@on_cluster
def fence(place: CommandContext, cluster: ClusterName, instances: Instances = None, every: AllOption = False) -> None:
    """Stop the servers of instances, and keep their pods.

    The data can then be inspected. A fenced primary fails over.

    Example: kubectl steersman fence shop shop-1

    Example: kubectl steersman fence shop --all
    """
    fenced = place.run(
        lambda client, ns: cluster_actions.fence(client, ObjectKey(ns, cluster), _selected(instances, every))
    )
    _print_result(place, CommandResult(cluster=cluster, action=f"fenced: {', '.join(fenced)}", fenced=fenced))


@app.command()
@on_cluster
def unfence(
    place: CommandContext, cluster: ClusterName, instances: Instances = None, every: AllOption = False
) -> None:
    """Let the servers of fenced instances start again.

    Example: kubectl steersman unfence shop shop-1

    Example: kubectl steersman unfence shop --all
    """
    fenced = place.run(
        lambda client, ns: cluster_actions.unfence(client, ObjectKey(ns, cluster), _selected(instances, every))
    )
    _print_result(
        place,
        CommandResult(
            cluster=cluster, action=f"still fenced: {', '.join(fenced)}" if fenced else "unfenced", fenced=fenced
        ),
    )


@app.command()
@on_cluster
def pause(place: CommandContext, cluster: ClusterName) -> None:
    """Pause the operator for a cluster.

    The servers keep running and fail over by themselves.

    Example: kubectl steersman pause shop
    """
    place.run(lambda client, ns: cluster_actions.pause(client, ObjectKey(ns, cluster)))
    _print_result(place, CommandResult(cluster=cluster, action="paused"))


@app.command()
@on_cluster
def resume(place: CommandContext, cluster: ClusterName) -> None:
    """Resume the operator for a paused cluster.

    Example: kubectl steersman resume shop
    """
    place.run(lambda client, ns: cluster_actions.resume(client, ObjectKey(ns, cluster)))
    _print_result(place, CommandResult(cluster=cluster, action="resumed"))


@app.command()
@on_cluster
def hibernate(
    place: CommandContext, cluster: ClusterName, wait: WaitOption = False, timeout: TimeoutOption = 300
) -> None:
    """Stop all instances of a cluster, and keep its data.

    Example: kubectl steersman hibernate shop --wait
    """
    seconds = timeout if wait else None
    place.run(lambda client, ns: cluster_actions.hibernate(client, ObjectKey(ns, cluster), timeout_seconds=seconds))
    _print_result(place, CommandResult(cluster=cluster, action="hibernated" if wait else "hibernation requested"))


@app.command()
@on_cluster
def wake(place: CommandContext, cluster: ClusterName, wait: WaitOption = False, timeout: TimeoutOption = 300) -> None:
    """Start the instances of a hibernated cluster again.

    Example: kubectl steersman wake shop --wait
    """
    seconds = timeout if wait else None
    place.run(lambda client, ns: cluster_actions.wake(client, ObjectKey(ns, cluster), timeout_seconds=seconds))
    _print_result(place, CommandResult(cluster=cluster, action="awake" if wait else "start requested"))


def _exec(place: CommandContext, namespace: str, pod: str, command: list[str]) -> None:
    """Replace this process by kubectl.

    So the terminal, signals and the exit code are the shell's own.
    """
    terminal = ["--stdin", *(["--tty"] if os.isatty(0) else [])]
    arguments = place.kubectl(namespace, "exec", *terminal, f"--container={shell.CONTAINER}", pod, "--", *command)
    try:
        os.execvp(arguments[0], arguments)  # noqa: S606 - no shell is what is wanted
    except FileNotFoundError:
        typer.echo("error: kubectl is not in PATH", err=True)
        raise typer.Exit(EXIT_PROBLEM_FOUND) from None


@app.command(context_settings=_FORWARD_ARGUMENTS)
@on_cluster
def psql(
    place: CommandContext,
    cluster: ClusterName,
    arguments: ForwardedArguments = None,
    database: Annotated[str, typer.Option("--database", "-d", help="The database.")] = "postgres",
    replica: Annotated[bool, typer.Option("--replica", help="Use a replica instead of the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Use this instance.")] = "",
) -> None:
    """Open psql as the superuser on the primary.

    Arguments after -- are passed to psql.

    Example: kubectl steersman psql shop -d shop

    Example: kubectl steersman psql shop --replica -- --tuples-only --command 'SELECT pg_is_in_recovery()'
    """

    async def find(client: Client, namespace: str) -> tuple[str, str]:
        key = ObjectKey(namespace, cluster)
        return namespace, await shell.member_pod(client, PostgreSQLCluster, key, instance, replica=replica)

    _exec(place, *place.run(find), shell.psql_arguments(database, arguments or []))


@app.command(context_settings=_FORWARD_ARGUMENTS)
@on_cluster
def mysql(
    place: CommandContext,
    cluster: ClusterName,
    arguments: ForwardedArguments = None,
    replica: Annotated[bool, typer.Option("--replica", help="Use a replica instead of the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Use this instance.")] = "",
) -> None:
    """Open mysql as root on the primary.

    Arguments after -- are passed to mysql.

    Example: kubectl steersman mysql stock --replica -- --execute 'SELECT @@hostname'
    """

    async def find(client: Client, namespace: str) -> tuple[str, str]:
        key = ObjectKey(namespace, cluster)
        return namespace, await shell.member_pod(client, MySQLCluster, key, instance, replica=replica)

    _exec(place, *place.run(find), shell.mysql_arguments(arguments or []))


@app.command("logs")
@on_cluster
def logs_command(
    place: CommandContext,
    cluster: ClusterName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Stream new lines.")] = False,
    previous: Annotated[bool, typer.Option("--previous", help="Logs of the previous containers.")] = False,
    tail: Annotated[int, typer.Option(help="Lines of each instance; -1 means all.")] = -1,
    since: Annotated[int, typer.Option(help="Lines of the last seconds; 0 means all.", min=0)] = 0,
    slow: Annotated[bool, typer.Option("--slow", help="Only slow statements, each in one line.")] = False,
) -> None:
    """Show the logs of all instances, each line with its instance.

    Slow statements are logged with spec.monitoring.slowStatementThreshold.

    Example: kubectl steersman logs shop --tail 20

    Example: kubectl steersman logs shop -f --since 60

    Example: kubectl steersman logs shop --slow
    """
    desired = logs.LogOptions(
        follow=follow,
        previous=previous,
        tail_lines=tail if tail >= 0 else None,
        since_seconds=since or None,
        slow_only=slow,
    )

    def failed(instance: str, error: SteersmanError) -> None:
        print_note(f"{instance}  ({error})")

    place.run(lambda client, ns: logs.print_logs(client, ObjectKey(ns, cluster), desired, typer.echo, failed))


@app.command()
@on_cluster
def report(
    place: CommandContext,
    cluster: ClusterName,
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="Path of the archive. Defaults to CLUSTER-TIME.tar.gz.")
    ] = None,
) -> None:
    """Write an archive of objects, Events and logs, without secrets.

    Example: kubectl steersman report shop --file shop.tar.gz
    """
    path = file or Path(f"{cluster}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")

    async def work(client: Client, namespace: str) -> bundle.SupportBundle:
        collected = await bundle.collect(client, ObjectKey(namespace, cluster))
        collected.write(path)
        return collected

    found = place.run(work)
    content = {"file": str(path), "files": sorted(found.files), "missing": found.missing}
    place.print_output(content, lambda: typer.echo(str(path)))
    if place.output == "table":
        for name, reason in sorted(found.missing.items()):
            print_note(f"without {name}: {reason}")


app.command("backup")(backup_command)
app.command("backups")(backups_command)
app.command("verify")(verify_command)
app.command("clone")(clone_command)
app.command("undrop")(undrop_command)
app.command("restore")(restore_command)
app.command("what-changed")(what_changed_command)
app.add_typer(store_app, name="store")
app.add_typer(tuning_app, name="tuning")
app.add_typer(import_app, name="import")
app.command("advise")(advise_command)
app.command("top")(top_command)
app.command("history")(history_command)
app.command("why")(why_command)


def main() -> None:
    """The entry point of ``kubectl-steersman``."""
    app(prog_name="kubectl steersman")
