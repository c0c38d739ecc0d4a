"""What a cluster must not say, by the checks that its controller makes again, and what is risky."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import Quantity
from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import Cluster, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.cluster_parts import POOLER_VALUES
from steersman_databases.clusters.parameters import too_large
from steersman_databases.clusters.view import view_of
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.engines.desired import DesiredDatabase, DesiredUser, NoPassword
from steersman_databases.engines.errors import InvalidName, UnsupportedVersion
from steersman_databases.engines.mysql import furnishing as mysql_furnishing
from steersman_databases.engines.mysql import parameters as mysql_parameters
from steersman_databases.engines.port import Contents
from steersman_databases.engines.postgresql import hba, parameters
from steersman_databases.engines.versions import image
from steersman_databases.resources.cluster_services import names_taken


def check_cluster(
    cluster: Cluster, *, contents: Callable[[str], Contents]
) -> Iterator[FieldError | AdmissionWarning]:
    """What is to be said of a cluster."""
    spec, view = cluster.spec, view_of(cluster, "")
    try:
        image(view.engine, spec.version)
    except UnsupportedVersion as error:
        yield FieldError("spec.version", str(error))
    yield from _of_mysql(cluster) if isinstance(cluster, MySQLCluster) else _of_postgresql(cluster)
    held = mysql_parameters.held if view.engine == "mysql" else parameters.held
    for name, words in too_large(view, held).items():
        yield FieldError(f"spec.{view.engine}.parameters[{name}]", words)
    for taken in names_taken(view, spec.services):
        yield FieldError("spec.services.additional", f"{taken} is a Service of the operator's: choose another name")
    yield from _initial(view, contents)
    yield from _resources("spec.resources", spec.resources)
    yield from _risks(cluster)


def _of_postgresql(cluster: PostgreSQLCluster) -> Iterator[FieldError | AdmissionWarning]:
    spec, synchronous = cluster.spec, cluster.spec.postgresql.synchronous
    for name, value in spec.postgresql.parameters.items():
        if reason := parameters.refused(name, value):
            yield FieldError(f"spec.postgresql.parameters[{name}]", f"{name}: {reason}", reason="FieldValueForbidden")
    commit = spec.postgresql.parameters.get("synchronous_commit", "").strip().lower()
    if commit in parameters.NOT_WAITING and cluster.synchronous_mode != "Off":
        yield FieldError(
            "spec.postgresql.parameters[synchronous_commit]",
            f"with {commit} no commit waits for a standby, and a failover loses it: set synchronous.mode to Off if"
            " that is meant, or have single transactions set it",
        )
    for names, words in parameters.at_odds(spec.postgresql.parameters):
        yield FieldError(f"spec.postgresql.parameters[{names[0]}]", words)
    for number, line in enumerate(spec.postgresql.pg_hba):
        if wrong := hba.problem(line):
            yield FieldError(f"spec.postgresql.pgHba[{number}]", wrong)
    for name, value in () if spec.pooler is None else spec.pooler.parameters.items():
        for names, pattern, words in POOLER_VALUES:
            if name in names and re.fullmatch(pattern, value) is None:
                yield FieldError(f"spec.pooler.parameters[{name}]", f"must be {words}")
    yield from _resources("spec.pooler.resources", spec.pooler.resources if spec.pooler is not None else None)
    if spec.instances > 1 and cluster.synchronous_mode == "Off":
        yield AdmissionWarning(
            "spec.postgresql.synchronous.mode: with Off a failover loses what the replica had not yet received"
        )
    elif spec.instances > 1 and synchronous.required and synchronous.standbys == spec.instances - 1:
        yield AdmissionWarning(
            "spec.postgresql.synchronous.required: writes wait as soon as a single instance is away"
        )
    for number, line in enumerate(spec.postgresql.pg_hba):
        if risk := hba.risk(line):
            yield AdmissionWarning(f"spec.postgresql.pgHba[{number}]: {risk}")


def _of_mysql(cluster: MySQLCluster) -> Iterator[FieldError | AdmissionWarning]:
    spec = cluster.spec
    for name, value in spec.mysql.parameters.items():
        if reason := mysql_parameters.refused(name, value):
            yield FieldError(f"spec.mysql.parameters[{name}]", f"{name}: {reason}", reason="FieldValueForbidden")
    if spec.instances == 2:
        yield AdmissionWarning(
            "spec.instances: of two no one is a majority, so writes wait as soon as a single instance is away"
        )
    if (recovery := spec.recovery) is not None and (recovery.loss.transactions or recovery.loss.instances):
        yield AdmissionWarning(
            f"spec.recovery: what loss names is given up for good once {recovery.instance} founds the group"
        )


def _initial(view: ClusterView, contents: Callable[[str], Contents]) -> Iterator[FieldError]:
    if not view.has_database:
        return
    initial, engine = view.initial, contents(view.engine)
    administrator = mysql_furnishing.ADMINISTRATOR if view.engine == "mysql" else hba.ADMINISTRATOR
    for field, desired in (
        ("owner", DesiredUser(initial.owner, NoPassword.UNCHANGED)),
        ("database", DesiredDatabase(initial.database, initial.owner)),
    ):
        try:
            engine.check(desired, administrator)
        except InvalidName as error:
            yield FieldError(f"spec.bootstrap.initdb.{field}", str(error))


def _resources(field: str, resources: ResourceRequirements | None) -> Iterator[FieldError]:
    if resources is None:
        return
    requests, limits = _amounts(resources.requests), _amounts(resources.limits)
    for name, wanted in requests.items():
        if name in limits and wanted.value > limits[name].value:
            message = f"{wanted} is more than the limit of {limits[name]}: raise the limit, or request less"
            yield FieldError(f"{field}.requests[{name}]", message)


def _amounts(declared: Mapping[str, int | str]) -> dict[str, Quantity]:
    return {name: Quantity(str(amount)) for name, amount in declared.items()}


def _risks(cluster: Cluster) -> Iterator[AdmissionWarning]:
    spec = cluster.spec
    if spec.deletion_policy == "Delete":
        yield AdmissionWarning(
            "spec.deletionPolicy: volumes and Secrets are deleted with this object, the data with them"
        )
    if spec.instances == 1:
        yield AdmissionWarning("spec.instances: nobody takes over from a single instance while it is away")
    budget = spec.pod_disruption_budget
    if budget.enabled and 1 < spec.instances <= budget.max_unavailable:
        yield AdmissionWarning("spec.podDisruptionBudget.maxUnavailable: drains may take all instances away at once")
    if not spec.tls.required:
        yield AdmissionWarning("spec.tls.required: passwords may come in over connections in clear text")
