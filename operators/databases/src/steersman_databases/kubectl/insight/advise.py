"""The command `advise`: indexes and keys to change."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from steersman.client import Client
from steersman.meta import FrozenStruct, ObjectKey
from steersman_databases.kubectl.command import (
    CommandContext,
    OperationRejected,
    on_cluster,
    print_note,
    qualified_name,
    usage_error,
)
from steersman_databases.kubectl.insight import catalog_queries
from steersman_databases.kubectl.insight.advice import Advice, Catalog, IndexUsage, advise
from steersman_databases.kubectl.insight.instance import Instance, decode, find_instance
from steersman_databases.kubectl.logs import pods_of_cluster
from steersman_databases.kubectl.lookup import find_cluster
from steersman_databases.kubectl.tables import printable


class AdviceReport(FrozenStruct):
    """All findings, and notes about what could not be judged."""

    advice: tuple[Advice, ...]
    notes: tuple[str, ...]


@on_cluster
def advise_command(
    place: CommandContext,
    cluster: Annotated[str, typer.Argument(metavar="CLUSTER", show_default=False)],
    database: Annotated[str, typer.Option("--database", "-d", help="Only this database.")] = "",
    days: Annotated[float, typer.Option(min=0, help="Days that each instance must have counted index use.")] = 7,
) -> None:
    """Suggest indexes and keys to change. Print SQL, and run none.

    Unused indexes are those that no instance has used.

    Example: kubectl steersman advise shop

    Example: kubectl steersman advise shop --database orders -o json
    """

    async def work(client: Client, namespace: str) -> AdviceReport:
        return await report(place, client, ObjectKey(namespace, cluster), database, days)

    found = place.run(work)

    def print_lines() -> None:
        for one in found.advice:
            for line in (f"{one.rule} {one.database}: {one.object}", f"  {one.message}", f"  {one.sql}"):
                typer.echo(printable(line).rstrip())
            typer.echo()
        if not found.advice:
            typer.echo("No advice.")

    place.print_output(found, print_lines)
    for note in found.notes:
        print_note(printable(note))


async def report(
    place: CommandContext, client: Client, key: ObjectKey, database: str, minimum_days: float
) -> AdviceReport:
    """Return the advice about one database, or all.

    Raises:
        NotFound: there is no such cluster.
        ConfigurationError: it has no such database.
        OperationRejected: the primary did not respond.
    """
    primary = await find_instance(place, client, key, "", replica=False)
    databases = await _databases(primary, database)
    lines, error = await primary.query_databases(
        catalog_queries.MYSQL_CATALOG_SQL if primary.is_mysql else catalog_queries.POSTGRESQL_CATALOG_SQL, databases
    )
    catalogs = [each for each in (decode(line, Catalog) for line in lines) if database in ("", each.database)]
    if database and not catalogs and not error:
        raise usage_error(f"cluster {qualified_name(key)} has no database {database}")
    usages = await _usages(client, primary, key, databases)
    advice: list[Advice] = []
    # Most reasons hold for all databases of an instance.
    skipped: defaultdict[str, list[str]] = defaultdict(list)
    for catalog in sorted(catalogs, key=lambda each: each.database):
        by_instance = {name: found.get(catalog.database) for name, found in usages.items()}
        found, reason = advise(catalog, by_instance, minimum_days=minimum_days)
        advice += found
        if reason:
            skipped[reason].append(catalog.database)
    notes = [f"Unused indexes of {', '.join(names)} are unknown: {reason}" for reason, names in skipped.items()]
    return AdviceReport(advice=tuple(advice), notes=tuple([error, *notes] if error else notes))


async def _databases(primary: Instance, database: str) -> Sequence[str]:
    """Return the databases to query. In MySQL one query covers all."""
    if primary.is_mysql:
        return ()
    found = decode(await primary.query(catalog_queries.POSTGRESQL_DATABASES_SQL), tuple[str, ...])
    return [one for one in found if database in ("", one)]


async def _usages(
    client: Client, primary: Instance, key: ObjectKey, databases: Sequence[str]
) -> Mapping[str, Mapping[str, IndexUsage]]:
    """Return the counters of all instances by database. An instance that does not respond has none."""
    cluster = await find_cluster(client, key)
    pods = [pod.metadata.name for pod in await pods_of_cluster(client, key)]
    instances = [Instance(primary.place, primary.namespace, pod, primary.is_mysql) for pod in pods]
    counted = await asyncio.gather(*(_usage(each, databases) for each in instances))
    usages: dict[str, Mapping[str, IndexUsage]] = {member.name: {} for member in cluster.status.members}
    usages.update({each.name: found for each, found in zip(instances, counted, strict=True)})
    return usages


async def _usage(instance: Instance, databases: Sequence[str]) -> Mapping[str, IndexUsage]:
    sql = catalog_queries.MYSQL_USAGE_SQL if instance.is_mysql else catalog_queries.POSTGRESQL_USAGE_SQL
    try:
        lines, error = await instance.query_databases(sql, databases)
        if error:
            print_note(f"{instance.name}: {printable(error)}")
        found = [decode(line, IndexUsage) for line in lines]
    except OperationRejected as failure:
        print_note(f"{instance.name}: {printable(str(failure))}")
        return {}
    return {each.database: each for each in found}
