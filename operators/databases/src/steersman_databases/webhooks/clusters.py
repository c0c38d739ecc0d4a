"""Checks of clusters, which the controller repeats, and warnings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.cluster_common import POOLER_VALUES
from steersman_databases.cluster.declared import declare
from steersman_databases.engines.cluster_engine import DeclaredCluster
from steersman_databases.engines.errors import InvalidName, UnsupportedVersion
from steersman_databases.engines.mysql.config import parameters as mysql_parameters
from steersman_databases.engines.mysql.sql import system_accounts as mysql_furnishing
from steersman_databases.engines.postgresql.config import hba, parameters
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, PasswordDirective
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.engines.versions import image
from steersman_databases.features.parameters.model import exceeding_memory
from steersman_databases.features.services.specs import reserved_conflicts
from steersman_databases.webhooks.backups import check_backup_settings, check_time_zone
from steersman_databases.webhooks.resources import check_resources


def check_cluster(
    cluster: Cluster, *, sql_engine_for: Callable[[str], SqlEngine]
) -> Iterator[FieldError | AdmissionWarning]:
    """Return the errors and warnings of a cluster."""
    spec, declared = cluster.spec, declare(cluster, "")
    try:
        image(declared.engine, spec.version)
    except UnsupportedVersion as error:
        yield FieldError("spec.version", str(error))
    yield from _of_mysql(cluster) if isinstance(cluster, MySQLCluster) else _of_postgresql(cluster)
    fixed_memory = mysql_parameters.fixed_memory if declared.engine == "mysql" else parameters.fixed_memory
    for name, reason in exceeding_memory(declared, fixed_memory).items():
        yield FieldError(f"spec.{declared.engine}.parameters[{name}]", reason)
    for reserved in reserved_conflicts(declared, spec.services):
        yield FieldError("spec.services.additional", f"the name {reserved} is reserved. Choose another name")
    yield from _bootstrap_errors(declared, sql_engine_for)
    yield from check_resources("spec.resources", spec.resources)
    yield from check_time_zone("spec.maintenance.timeZone", spec.maintenance.time_zone)
    yield from check_backup_settings(spec.backup, spec.deletion_policy)
    yield from _warnings(cluster)


def _of_postgresql(cluster: PostgreSQLCluster) -> Iterator[FieldError | AdmissionWarning]:
    spec, synchronous = cluster.spec, cluster.spec.postgresql.synchronous
    for name, value in spec.postgresql.parameters.items():
        if reason := parameters.rejection_reason(name, value):
            yield FieldError(f"spec.postgresql.parameters[{name}]", f"{name}: {reason}", reason="FieldValueForbidden")
    commit = spec.postgresql.parameters.get("synchronous_commit", "").strip().lower()
    if commit in parameters.ASYNCHRONOUS_COMMIT_VALUES and cluster.synchronous_mode != "Disabled":
        yield FieldError(
            "spec.postgresql.parameters[synchronous_commit]",
            f"with {commit} commits do not wait for a standby, and a failover loses them: set synchronous.mode to "
            "Disabled if that is intended, or set the parameter in single transactions",
        )
    for names, explanation in parameters.conflicts(spec.postgresql.parameters):
        yield FieldError(f"spec.postgresql.parameters[{names[0]}]", explanation)
    for number, line in enumerate(spec.postgresql.pg_hba):
        if problem := hba.validate_line(line):
            yield FieldError(f"spec.postgresql.pgHba[{number}]", problem)
    for name, value in () if spec.pooler is None else spec.pooler.parameters.items():
        for names, pattern, explanation in POOLER_VALUES:
            if name in names and re.fullmatch(pattern, value) is None:
                yield FieldError(f"spec.pooler.parameters[{name}]", f"must be {explanation}")
    yield from check_resources("spec.pooler.resources", spec.pooler.resources if spec.pooler is not None else None)
    if spec.instances > 1 and cluster.synchronous_mode == "Disabled":
        yield AdmissionWarning(
            "spec.postgresql.synchronous.mode: with Disabled a failover loses commits that the replica has not "
            "received"
        )
    elif spec.instances > 1 and synchronous.required and synchronous.standbys == spec.instances - 1:
        yield AdmissionWarning(
            "spec.postgresql.synchronous.required: writes are blocked as soon as one instance is unavailable"
        )
    for number, line in enumerate(spec.postgresql.pg_hba):
        if warning := hba.security_warning(line):
            yield AdmissionWarning(f"spec.postgresql.pgHba[{number}]: {warning}")


def _of_mysql(cluster: MySQLCluster) -> Iterator[FieldError | AdmissionWarning]:
    spec = cluster.spec
    for name, value in spec.mysql.parameters.items():
        if reason := mysql_parameters.rejection_reason(name, value):
            yield FieldError(f"spec.mysql.parameters[{name}]", f"{name}: {reason}", reason="FieldValueForbidden")
    if spec.instances == 2:
        yield AdmissionWarning(
            "spec.instances: a group of two has no quorum without one of them, so writes are blocked as soon as "
            "one instance is unavailable"
        )
    if (recovery := spec.force_recovery) is not None and (recovery.loss.transactions or recovery.loss.instances):
        yield AdmissionWarning(
            "spec.forceRecovery: the transactions in loss are permanently lost when "
            f"{recovery.instance} creates the group"
        )


def _bootstrap_errors(declared: DeclaredCluster, sql_engine_for: Callable[[str], SqlEngine]) -> Iterator[FieldError]:
    if not declared.has_bootstrap_database:
        return
    initial, engine = declared.bootstrap, sql_engine_for(declared.engine)
    administrator = mysql_furnishing.ADMINISTRATOR if declared.engine == "mysql" else hba.ADMINISTRATOR_ROLE
    for field, desired in (
        ("owner", DesiredUser(initial.owner, PasswordDirective.UNCHANGED)),
        ("database", DesiredDatabase(initial.database, initial.owner)),
    ):
        try:
            engine.check(desired, administrator)
        except InvalidName as error:
            yield FieldError(f"spec.bootstrap.initdb.{field}", str(error))


def _warnings(cluster: Cluster) -> Iterator[AdmissionWarning]:
    spec = cluster.spec
    if spec.deletion_policy == "Delete":
        yield AdmissionWarning(
            "spec.deletionPolicy: volumes and Secrets, and so the data, are deleted with this object"
        )
    if spec.instances == 1:
        yield AdmissionWarning("spec.instances: a single instance has no failover")
    budget = spec.pod_disruption_budget
    if budget.enabled and 1 < spec.instances <= budget.max_unavailable:
        yield AdmissionWarning("spec.podDisruptionBudget.maxUnavailable: drains may stop all instances at once")
    if not spec.tls.required:
        yield AdmissionWarning("spec.tls.required: clients may send passwords without TLS")
