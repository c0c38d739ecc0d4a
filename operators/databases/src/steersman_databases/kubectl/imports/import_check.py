"""Dry run of an import: run its Job, and read the report."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import msgspec
import yaml

from steersman.client import Client
from steersman.errors import ConfigurationError
from steersman.meta import ObjectKey, decode_builtins
from steersman_databases.api import Cluster, Database, MySQLCluster, PostgreSQLCluster
from steersman_databases.core.sizes import format_bytes
from steersman_databases.engines import EngineError
from steersman_databases.features.backup.specs import config_map_of
from steersman_databases.features.dump.connection import NotConnectable
from steersman_databases.features.dump.import_check import (
    ImportReport,
    check_job,
    check_labels,
    check_plan,
)
from steersman_databases.kubectl.command import OperationRejected, usage_error
from steersman_databases.kubectl.report_job import JobFailure, run_job

_MAX_MANIFEST_BYTES = 4 << 20


class CheckOutcome(JobFailure):
    """Line that the program prints: a report, or a failure."""

    check: ImportReport | None = None


def parse_manifest(text: str, namespace: str) -> Database:
    """Return the only ``Database`` with an import in a manifest.

    Args:
        namespace: of a manifest without one.

    Raises:
        ConfigurationError: there is none, there are several, or it is malformed.
    """
    if len(text) > _MAX_MANIFEST_BYTES:
        raise usage_error(f"the manifest is larger than {_MAX_MANIFEST_BYTES >> 20} MiB")
    try:
        documents: list[Any] = [each for each in yaml.safe_load_all(text) if isinstance(each, dict)]
    except (yaml.YAMLError, RecursionError):
        raise usage_error("the manifest is not YAML") from None
    found = [each for each in documents if each.get("kind") == Database.api_resource.kind]
    if len(found) != 1:
        raise usage_error(f"the manifest must have one Database, and has {len(found)}")
    try:
        database = decode_builtins(found[0], Database)
    except msgspec.MsgspecError as error:
        raise usage_error(f"the Database of the manifest is malformed: {error}") from None
    if database.import_settings is None:
        raise usage_error("the Database has no spec.bootstrap.import. Declare the source there")
    if not database.metadata.namespace:
        found[0].setdefault("metadata", {})["namespace"] = namespace
        database = decode_builtins(found[0], Database)
    return database


async def load_database(client: Client, key: ObjectKey) -> Database:
    """Return a ``Database`` with an import. Raises NotFound and OperationRejected."""
    database = await client.get(Database, key)
    if database.import_settings is None:
        raise OperationRejected(f"Database {key.name} has no spec.bootstrap.import")
    return database


async def check(client: Client, database: Database, image: str, seconds: float) -> ImportReport:
    """Run the Job of a check, and return its report. The Job is deleted afterwards.

    Args:
        image: of the new server. Defaults to the one of the operator.
        seconds: longest time to wait.

    Raises:
        OperationRejected: the source cannot be read, or the Job cannot run.
        ConfigurationError: the new server is not known.
    """
    key = ObjectKey(database.metadata.namespace, f"{database.metadata.name[:40]}-check-{secrets.token_hex(4)}")
    try:
        plan = check_plan(database, key, await _cluster(client, database), image)
        declared = check_job(database, plan)
    except (EngineError, NotConnectable) as error:
        raise ConfigurationError(str(error)) from None
    outcome = await run_job(client, declared, config_map_of(plan, check_labels(database)), CheckOutcome, seconds)
    if outcome.check is None:
        raise OperationRejected(f"Job {key.name} ended without a report. Run the command again")
    return outcome.check


def lines(report: ImportReport, name: str) -> Iterator[str]:
    """Yield the text of a report.

    Args:
        name: of the source.
    """
    yield f"Source      {report.source.version}, {name}, {format_bytes(report.source.size_bytes)}"
    yield f"New server  {report.target.version}"
    yield ""
    yield "Cannot be imported:" if report.problems else "Nothing prevents the import."
    for problem in report.problems:
        yield f"  {problem.reason}: {problem.message}"
        yield from _names(problem.names, problem.count)
    if report.left_out:
        yield from ("", "Not imported:")
    for left_out in report.left_out:
        more = ", …" if left_out.count > len(left_out.names) else ""
        yield f"  {left_out.kind} ({left_out.count}): {', '.join(left_out.names)}{more}"
    if report.notes:
        yield from ("", "Notes:", *(f"  {note}." for note in report.notes))


def _names(names: tuple[str, ...], count: int) -> Iterator[str]:
    yield from (f"    {name}" for name in names)
    if count > len(names) > 0:
        yield f"    and {count - len(names)} more"


async def _cluster(client: Client, database: Database) -> Cluster | None:
    reference = database.spec.cluster_ref
    if reference is None:
        return None
    kind = MySQLCluster if reference.kind == "MySQLCluster" else PostgreSQLCluster
    return await client.get(kind, ObjectKey(reference.namespace or database.metadata.namespace, reference.name))
