"""The commands of ``kubectl steersman``."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from steersman.client import Client
from steersman.errors import SteersmanError
from steersman.meta import FrozenStruct, ObjectKey
from steersman_databases.api import MySQLCluster, PostgreSQLCluster
from steersman_databases.kubectl import actions, bundle, logs, shell, status
from steersman_databases.kubectl.found import find_cluster
from steersman_databases.kubectl.place import WRONG, Place, note, on_cluster, usage

app = typer.Typer(
    name="kubectl steersman",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(wanted: bool) -> None:
    if wanted:
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
Wait = Annotated[bool, typer.Option(help="Wait for completion.")]
Timeout = Annotated[float, typer.Option(help="Seconds to wait.", min=0)]
Every = Annotated[bool, typer.Option("--all", help="All instances.")]
_PASSES_ON = {"ignore_unknown_options": True}
PassedOn = Annotated[list[str] | None, typer.Argument(metavar="-- ARGUMENT", show_default=False)]


class Done(FrozenStruct):
    """What a command has done."""

    cluster: str
    done: str
    fenced: tuple[str, ...] | None = None
    primary: str | None = None


def _tell(place: Place, done: Done) -> None:
    def as_kubectl_does() -> None:
        found = place.run(lambda client, ns: find_cluster(client, ObjectKey(ns, done.cluster)))
        typer.echo(f"{type(found).api_resource.kind.lower()}/{done.cluster} {done.done}")

    place.tell(done, as_kubectl_does)


@app.command("status")
@on_cluster
def status_command(
    place: Place,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)] = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Clusters of all namespaces.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Exit code 1 unless the cluster, or each, is Ready.")
    ] = False,
) -> None:
    """Show clusters, or one with its instances and what is wrong.

    Example: kubectl steersman status

    Example: kubectl steersman status shop -n prod

    Example: kubectl steersman status shop --check -o json
    """

    async def look(client: Client, namespace: str) -> tuple[status.ClusterReport, ...]:
        if cluster:
            return (await status.cluster(client, ObjectKey(namespace, cluster)),)
        return await status.clusters(client, "" if everywhere else namespace)

    found = place.run(look)
    if cluster:
        place.tell(found[0], lambda: status.show(found[0]))
    else:
        place.tell(found, lambda: status.show_all(found, everywhere=everywhere))
        if not found and place.output == "table":
            note("No clusters found.")
    if check and any(each.phase != "Ready" for each in found):
        raise typer.Exit(WRONG)


@app.command()
@on_cluster
def switchover(
    place: Place,
    cluster: ClusterName,
    to: Annotated[str, typer.Argument(metavar="INSTANCE", help="The primary to be; the best unless given.")] = "",
    wait: Wait = True,
    timeout: Timeout = 60,
) -> None:
    """Make another instance the primary.

    Example: kubectl steersman switchover shop

    Example: kubectl steersman switchover shop shop-2 --timeout 120
    """
    seconds = timeout if wait else None
    last = place.run(
        lambda client, ns: actions.switch_over(client, ObjectKey(ns, cluster), to or actions.ANY, seconds=seconds)
    )
    if last is None:
        _tell(place, Done(cluster=cluster, done="switchover requested"))
    else:
        _tell(place, Done(cluster=cluster, done=f"switched over from {last.former} to {last.to}", primary=last.to))


@app.command()
@on_cluster
def replace(place: Place, cluster: ClusterName, instance: str, wait: Wait = True, timeout: Timeout = 60) -> None:
    """Rebuild a replica from scratch on a new volume.

    Example: kubectl steersman replace shop shop-2
    """
    seconds = timeout if wait else None
    place.run(lambda client, ns: actions.replace(client, ObjectKey(ns, cluster), instance, seconds=seconds))
    _tell(place, Done(cluster=cluster, done=f"{'replaced' if wait else 'replacement requested:'} {instance}"))


@app.command()
@on_cluster
def restart(place: Place, cluster: ClusterName) -> None:
    """Restart all instances one by one.

    The primary is the last, after a switchover.

    Example: kubectl steersman restart shop
    """
    place.run(lambda client, ns: actions.restart(client, ObjectKey(ns, cluster)))
    _tell(place, Done(cluster=cluster, done="restart requested"))


Instances = Annotated[list[str] | None, typer.Argument(metavar="INSTANCE", show_default=False)]


def _chosen(instances: list[str] | None, every: bool) -> list[str]:
    if bool(instances) == every:
        raise usage("name instances, or say --all")
    return [actions.ALL] if every else instances or []


@app.command()
@on_cluster
def fence(place: Place, cluster: ClusterName, instances: Instances = None, every: Every = False) -> None:
    """Stop the servers of instances, and keep their pods.

    The data can then be inspected. A fenced primary fails over.

    Example: kubectl steersman fence shop shop-1

    Example: kubectl steersman fence shop --all
    """
    fenced = place.run(lambda client, ns: actions.fence(client, ObjectKey(ns, cluster), _chosen(instances, every)))
    _tell(place, Done(cluster=cluster, done=f"fenced: {', '.join(fenced)}", fenced=fenced))


@app.command()
@on_cluster
def unfence(place: Place, cluster: ClusterName, instances: Instances = None, every: Every = False) -> None:
    """Let the servers of fenced instances start again.

    Example: kubectl steersman unfence shop shop-1

    Example: kubectl steersman unfence shop --all
    """
    fenced = place.run(lambda client, ns: actions.unfence(client, ObjectKey(ns, cluster), _chosen(instances, every)))
    _tell(
        place,
        Done(cluster=cluster, done=f"still fenced: {', '.join(fenced)}" if fenced else "unfenced", fenced=fenced),
    )


@app.command()
@on_cluster
def pause(place: Place, cluster: ClusterName) -> None:
    """Pause the operator for a cluster.

    The servers keep running and fail over by themselves.

    Example: kubectl steersman pause shop
    """
    place.run(lambda client, ns: actions.pause(client, ObjectKey(ns, cluster)))
    _tell(place, Done(cluster=cluster, done="paused"))


@app.command()
@on_cluster
def resume(place: Place, cluster: ClusterName) -> None:
    """Resume the operator for a paused cluster.

    Example: kubectl steersman resume shop
    """
    place.run(lambda client, ns: actions.resume(client, ObjectKey(ns, cluster)))
    _tell(place, Done(cluster=cluster, done="resumed"))


@app.command()
@on_cluster
def hibernate(place: Place, cluster: ClusterName, wait: Wait = False, timeout: Timeout = 300) -> None:
    """Stop all instances of a cluster, and keep its data.

    Example: kubectl steersman hibernate shop --wait
    """
    seconds = timeout if wait else None
    place.run(lambda client, ns: actions.hibernate(client, ObjectKey(ns, cluster), seconds=seconds))
    _tell(place, Done(cluster=cluster, done="hibernated" if wait else "hibernation requested"))


@app.command()
@on_cluster
def wake(place: Place, cluster: ClusterName, wait: Wait = False, timeout: Timeout = 300) -> None:
    """Start the instances of a hibernated cluster again.

    Example: kubectl steersman wake shop --wait
    """
    seconds = timeout if wait else None
    place.run(lambda client, ns: actions.wake(client, ObjectKey(ns, cluster), seconds=seconds))
    _tell(place, Done(cluster=cluster, done="awake" if wait else "wake requested"))


def _become(place: Place, namespace: str, pod: str, command: list[str]) -> None:
    """kubectl takes this process over: the terminal, signals and the exit code are the shell's own."""
    terminal = ["--stdin", *(["--tty"] if os.isatty(0) else [])]
    line = place.kubectl(namespace, "exec", *terminal, f"--container={shell.CONTAINER}", pod, "--", *command)
    try:
        os.execvp(line[0], line)  # noqa: S606 - no shell is what is wanted
    except FileNotFoundError:
        typer.echo("error: kubectl is not in PATH", err=True)
        raise typer.Exit(WRONG) from None


@app.command(context_settings=_PASSES_ON)
@on_cluster
def psql(
    place: Place,
    cluster: ClusterName,
    arguments: PassedOn = None,
    database: Annotated[str, typer.Option("--database", "-d", help="The database.")] = "postgres",
    replica: Annotated[bool, typer.Option("--replica", help="Ask a replica, not the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Ask this instance.")] = "",
) -> None:
    """Open psql as the superuser on the primary.

    Arguments after -- are passed to psql.

    Example: kubectl steersman psql shop -d shop

    Example: kubectl steersman psql shop --replica -- --tuples-only --command 'SELECT pg_is_in_recovery()'
    """

    async def find(client: Client, namespace: str) -> tuple[str, str]:
        key = ObjectKey(namespace, cluster)
        return namespace, await shell.member_pod(client, PostgreSQLCluster, key, instance, replica=replica)

    _become(place, *place.run(find), shell.psql(database, arguments or []))


@app.command(context_settings=_PASSES_ON)
@on_cluster
def mysql(
    place: Place,
    cluster: ClusterName,
    arguments: PassedOn = None,
    replica: Annotated[bool, typer.Option("--replica", help="Ask a replica, not the primary.")] = False,
    instance: Annotated[str, typer.Option("--instance", help="Ask this instance.")] = "",
) -> None:
    """Open mysql as root on the primary.

    Arguments after -- are passed to mysql.

    Example: kubectl steersman mysql stock --replica -- --execute 'SELECT @@hostname'
    """

    async def find(client: Client, namespace: str) -> tuple[str, str]:
        key = ObjectKey(namespace, cluster)
        return namespace, await shell.member_pod(client, MySQLCluster, key, instance, replica=replica)

    _become(place, *place.run(find), shell.mysql(arguments or []))


@app.command("logs")
@on_cluster
def logs_command(
    place: Place,
    cluster: ClusterName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    previous: Annotated[bool, typer.Option("--previous", help="Of the containers before their restart.")] = False,
    tail: Annotated[int, typer.Option(help="Lines of each instance; -1 is all.")] = -1,
    since: Annotated[int, typer.Option(help="Only of so many seconds; 0 is all.", min=0)] = 0,
) -> None:
    """Show the logs of all instances, each line with its instance.

    Example: kubectl steersman logs shop --tail 20

    Example: kubectl steersman logs shop -f --since 60
    """
    wanted = logs.Wanted(
        follow=follow, previous=previous, tail_lines=tail if tail >= 0 else None, since_seconds=since or None
    )

    def failed(instance: str, error: SteersmanError) -> None:
        note(f"{instance}  ({error})")

    place.run(lambda client, ns: logs.tell(client, ObjectKey(ns, cluster), wanted, typer.echo, failed))


@app.command()
@on_cluster
def report(
    place: Place,
    cluster: ClusterName,
    file: Annotated[Path | None, typer.Option("--file", "-f", help="The archive; CLUSTER-TIME.tar.gz here.")] = None,
) -> None:
    """Collect objects, Events and logs in an archive, without secrets.

    Example: kubectl steersman report shop --file shop.tar.gz
    """
    path = file or Path(f"{cluster}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.tar.gz")

    async def work(client: Client, namespace: str) -> bundle.Bundle:
        collected = await bundle.collect(client, ObjectKey(namespace, cluster))
        collected.write(path)
        return collected

    found = place.run(work)
    content = {"file": str(path), "files": sorted(found.files), "missing": found.missing}
    place.tell(content, lambda: typer.echo(str(path)))
    if place.output == "table":
        for name, reason in sorted(found.missing.items()):
            note(f"without {name}: {reason}")


def main() -> None:
    """The entry point of ``kubectl-steersman``."""
    app(prog_name="kubectl steersman")
