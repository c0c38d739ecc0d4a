"""What a ``PostgreSQLCluster`` must not say, by the checks that its controller makes again, and what is risky."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import Quantity
from steersman.webhook import Cause, Warn
from steersman_databases.api import PostgreSQLCluster
from steersman_databases.clusters.view import view_of
from steersman_databases.engines.desired import DesiredDatabase, DesiredUser, NoPassword
from steersman_databases.engines.errors import InvalidName, UnsupportedVersion
from steersman_databases.engines.port import Contents
from steersman_databases.engines.postgresql import hba, parameters
from steersman_databases.engines.versions import image
from steersman_databases.resources.cluster_services import names_taken


def check_cluster(cluster: PostgreSQLCluster, *, contents: Callable[[str], Contents]) -> Iterator[Cause | Warn]:
    """What is to be said of a ``PostgreSQLCluster``."""
    spec = cluster.spec
    try:
        image("postgresql", spec.version)
    except UnsupportedVersion as error:
        yield Cause("spec.version", str(error))
    for name, value in spec.postgresql.parameters.items():
        if reason := parameters.refused(name, value):
            yield Cause(f"spec.postgresql.parameters[{name}]", f"{name}: {reason}", reason="FieldValueForbidden")
    for number, line in enumerate(spec.postgresql.pg_hba):
        if wrong := hba.problem(line):
            yield Cause(f"spec.postgresql.pgHba[{number}]", wrong)
    for taken in names_taken(view_of(cluster, ""), spec.services):
        yield Cause("spec.services.additional", f"{taken} is a Service of the operator's: choose another name")
    yield from _initial(cluster, contents)
    yield from _resources("spec.resources", spec.resources)
    yield from _resources("spec.pooler.resources", spec.pooler.resources if spec.pooler is not None else None)
    yield from _risks(cluster)


def _initial(cluster: PostgreSQLCluster, contents: Callable[[str], Contents]) -> Iterator[Cause]:
    if cluster.spec.bootstrap is None:
        return
    initial = view_of(cluster, "").initial
    engine = contents("postgresql")
    for field, desired in (
        ("owner", DesiredUser(initial.owner, NoPassword.UNCHANGED)),
        ("database", DesiredDatabase(initial.database, initial.owner)),
    ):
        try:
            engine.check(desired, hba.ADMINISTRATOR)
        except InvalidName as error:
            yield Cause(f"spec.bootstrap.initdb.{field}", str(error))


def _resources(field: str, resources: ResourceRequirements | None) -> Iterator[Cause]:
    if resources is None:
        return
    requests, limits = _amounts(resources.requests), _amounts(resources.limits)
    for name, wanted in requests.items():
        if name in limits and wanted.value > limits[name].value:
            message = f"{wanted} is more than the limit of {limits[name]}: raise the limit, or request less"
            yield Cause(f"{field}.requests[{name}]", message)


def _amounts(declared: Mapping[str, int | str]) -> dict[str, Quantity]:
    return {name: Quantity(str(amount)) for name, amount in declared.items()}


def _risks(cluster: PostgreSQLCluster) -> Iterator[Warn]:
    spec, synchronous = cluster.spec, cluster.spec.postgresql.synchronous
    if spec.deletion_policy == "Delete":
        yield Warn("spec.deletionPolicy: volumes and Secrets are deleted with this object, the data with them")
    if spec.instances == 1:
        yield Warn("spec.instances: nobody takes over from a single instance while it is away")
    elif cluster.synchronous_mode == "Off":
        yield Warn(
            "spec.postgresql.synchronous.mode: with Off a failover loses what the replica had not yet received"
        )
    elif synchronous.required and synchronous.standbys == spec.instances - 1:
        yield Warn("spec.postgresql.synchronous.required: writes wait as soon as a single instance is away")
    budget = spec.pod_disruption_budget
    if budget.enabled and 1 < spec.instances <= budget.max_unavailable:
        yield Warn("spec.podDisruptionBudget.maxUnavailable: drains may take all instances away at once")
    if not spec.tls.required:
        yield Warn("spec.tls.required: passwords may come in over connections in clear text")
    for number, line in enumerate(spec.postgresql.pg_hba):
        if risk := hba.risk(line):
            yield Warn(f"spec.postgresql.pgHba[{number}]: {risk}")
