"""What the webhooks say of objects, as functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from database_support.contracts.hba_examples import INVALID_LINES, UNPARSABLE_LINES, VALID_LINES
from steersman.api.core_v1 import ResourceRequirements
from steersman.meta import Duration, FrozenDict, ObjectMeta
from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import Database, DatabaseSpec, DatabaseUser, PostgreSQLCluster
from steersman_databases.api.autopilot.maintenance import MaintenanceSettings
from steersman_databases.api.cluster_common import (
    AdditionalService,
    ClusterTls,
    DisruptionBudgetSettings,
    ServicesSettings,
)
from steersman_databases.api.database import Extension, Schema
from steersman_databases.api.database_user import DatabaseUserSpec, PasswordRotation
from steersman_databases.api.grants import PrivilegeGrant, RoleGrant
from steersman_databases.api.postgresql_cluster import (
    Bootstrap,
    InitDb,
    PostgreSQLClusterSpec,
    PostgreSQLSettings,
    SynchronousSettings,
)
from steersman_databases.api.references import (
    AdministratorReference,
    ClusterReference,
    ServerReference,
    ServerTls,
    ServiceReference,
)
from steersman_databases.engines.postgresql.config import hba
from steersman_databases.engines.registry import sql_engine_named
from steersman_databases.webhooks.clusters import check_cluster
from steersman_databases.webhooks.databases import check_database, check_user
from steersman_databases.webhooks.ratcheting import ratcheting

META = ObjectMeta(name="orders", namespace="shop")
SAFE: dict[str, Any] = {"instances": 3}


def cluster(**spec: Any) -> PostgreSQLCluster:
    return PostgreSQLCluster(metadata=META, spec=PostgreSQLClusterSpec(**{**SAFE, **spec}))


def database(**spec: Any) -> Database:
    fields: dict[str, Any] = {"cluster_ref": ClusterReference(name="main"), **spec}
    return Database(metadata=META, spec=DatabaseSpec(**fields))


def user(**spec: Any) -> DatabaseUser:
    fields: dict[str, Any] = {"user": "clerk", "cluster_ref": ClusterReference(name="main"), **spec}
    return DatabaseUser(metadata=META, spec=DatabaseUserSpec(**fields))


def said(found: Iterable[FieldError | AdmissionWarning]) -> list[str]:
    """Causes as ``field: message``, warnings as they stand."""
    return [f"{each.field}: {each.message}" if isinstance(each, FieldError) else each.message for each in found]


def of_cluster(obj: PostgreSQLCluster) -> list[FieldError | AdmissionWarning]:
    return list(check_cluster(obj, sql_engine_for=sql_engine_named))


def of_database(obj: Database) -> list[FieldError | AdmissionWarning]:
    return list(check_database(obj, sql_engine_for=sql_engine_named))


def of_user(obj: DatabaseUser) -> list[FieldError | AdmissionWarning]:
    return list(check_user(obj, sql_engine_for=sql_engine_named))


def server(mode: Any = "VerifyFull", **more: Any) -> ServerReference:
    named = more or {"host": "db.example.com"}
    return ServerReference(administrator=AdministratorReference(name="rds"), tls=ServerTls(mode=mode), **named)


def settings(**values: Any) -> PostgreSQLSettings:
    return PostgreSQLSettings(**values)


def test_valid_objects_pass_silently() -> None:
    assert of_cluster(cluster(bootstrap=Bootstrap(initdb=InitDb(database="shop", owner="shop")))) == []
    assert of_database(database()) == []
    assert of_database(Database(metadata=META, spec=DatabaseSpec(engine="mysql", version="9.7"))) == []
    assert of_user(user(rotation=PasswordRotation(every=Duration("720h")))) == []
    assert of_user(user(cluster_ref=None, server_ref=server(), engine="mysql")) == []


CLUSTERS: dict[str, tuple[dict[str, Any], str, str]] = {
    "version": ({"version": "16"}, "spec.version", 'version "16" of postgresql is not supported'),
    "time zone": (
        {"maintenance": MaintenanceSettings(time_zone="Europe/Atlantis")},
        "spec.maintenance.timeZone",
        "Europe/Atlantis is not a time zone. Use a name such as Europe/Berlin",
    ),
    "ours": (
        {"postgresql": settings(parameters=FrozenDict({"archive_mode": "on"}))},
        "spec.postgresql.parameters[archive_mode]",
        "use spec.backup",
    ),
    "tls": (
        {"postgresql": settings(parameters=FrozenDict({"ssl_max_protocol_version": "TLSv1.1"}))},
        "spec.postgresql.parameters[ssl_max_protocol_version]",
        "TLSv1.1 is before TLSv1.2, ssl_min_protocol_version",
    ),
    "ciphers": (
        {"postgresql": settings(parameters=FrozenDict({"ssl_ciphers": "none-such"}))},
        "spec.postgresql.parameters[ssl_ciphers]",
        "OpenSSL supports none of these TLS 1.2 ciphers",
    ),
    "statistics": (
        {"postgresql": settings(parameters=FrozenDict({"log_statement_stats": "yes", "log_parser_stats": "1"}))},
        "spec.postgresql.parameters[log_statement_stats]",
        "a server cannot start with log_statement_stats and log_parser_stats: disable one of both",
    ),
    "lines": (
        {"postgresql": settings(parameters=FrozenDict({"search_path": "a, b\n"}))},
        "spec.postgresql.parameters[search_path]",
        "search_path: it cannot contain line breaks",
    ),
    "memory": (
        # In blocks of 8 KiB.
        {"postgresql": settings(parameters=FrozenDict({"shared_buffers": "100000"}))},
        "spec.postgresql.parameters[shared_buffers]",
        '"shared_buffers" = 100000 needs more than the memory limit of 768Mi',
    ),
    "hba": ({"postgresql": settings(pg_hba=("host all all all",))}, "spec.postgresql.pgHba[0]", "too few fields"),
    "service": (
        {"services": ServicesSettings(additional=(AdditionalService(name="orders-headless", role="rw"),))},
        "spec.services.additional",
        "the name orders-headless is reserved",
    ),
    "pooler": (
        {"services": ServicesSettings(additional=(AdditionalService(name="orders-pooler-ro", role="r"),))},
        "spec.services.additional",
        "the name orders-pooler-ro is reserved",
    ),
    "database": (
        {"bootstrap": Bootstrap(initdb=InitDb(database="template1", owner="shop"))},
        "spec.bootstrap.initdb.database",
        "PostgreSQL reserves this database",
    ),
    "owner": (
        {"bootstrap": Bootstrap(initdb=InitDb(database="shop", owner="pg_monitor"))},
        "spec.bootstrap.initdb.owner",
        "PostgreSQL reserves the prefix",
    ),
    "resources": (
        {
            "resources": ResourceRequirements(
                requests=FrozenDict[str, int | str]({"memory": "1Gi", "cpu": 1}),
                limits=FrozenDict[str, int | str]({"memory": "512Mi", "cpu": "1000m"}),
            )
        },
        "spec.resources.requests[memory]",
        "1Gi is more than the limit of 512Mi",
    ),
}


@pytest.mark.parametrize("case", CLUSTERS)
def test_invalid_cluster_is_rejected_by_field(case: str) -> None:
    spec, field, words = CLUSTERS[case]
    (cause,) = of_cluster(cluster(**spec))
    assert isinstance(cause, FieldError)
    assert cause.field == field
    assert words in cause.message


RISKS: dict[str, tuple[dict[str, Any], str]] = {
    "one": ({"instances": 1}, "spec.instances: a single instance"),
    "off": (
        {"postgresql": settings(synchronous=SynchronousSettings(mode="Disabled"))},
        "spec.postgresql.synchronous.mode",
    ),
    "all": (
        {"postgresql": settings(synchronous=SynchronousSettings(mode="Quorum", standbys=2, required=True))},
        "spec.postgresql.synchronous.required: writes are blocked",
    ),
    "delete": ({"deletion_policy": "Delete"}, "spec.deletionPolicy: volumes and Secrets, and so the data,"),
    "clear": ({"tls": ClusterTls(required=False)}, "spec.tls.required"),
    "drain": ({"pod_disruption_budget": DisruptionBudgetSettings(max_unavailable=3)}, "spec.podDisruptionBudget"),
    "trust": ({"postgresql": settings(pg_hba=("host all all all trust",))}, "spec.postgresql.pgHba[0]: trust"),
}


@pytest.mark.parametrize("case", RISKS)
def test_risky_settings_warn(case: str) -> None:
    spec, words = RISKS[case]
    (warning,) = of_cluster(cluster(**spec))
    assert isinstance(warning, AdmissionWarning)
    assert warning.message.startswith(words)
    assert len(warning.message) <= 256, "kubectl shows no more"


def test_database_unsupported_by_engine_is_rejected() -> None:
    own: dict[str, Any] = {"cluster_ref": None, "engine": "postgresql"}
    (reserved,) = said(of_database(database(database_name="postgres", owner="shop")))
    assert reserved.startswith('spec.databaseName: databaseName "postgres" cannot be used')
    assert said(of_database(database(schemas=(Schema(name="pg_new"),))))[0].startswith("spec.schemas: ")
    assert said(of_database(database(**own, version="9"))) == [
        'spec.version: version "9" of postgresql is not supported. Use "15", "17" or "18"'
    ]
    resources = ResourceRequirements(
        requests=FrozenDict[str, int | str]({"memory": "1Gi"}), limits=FrozenDict[str, int | str]({"memory": "512Mi"})
    )
    assert said(of_database(database(**own, version="17", resources=resources)))[0].startswith(
        "spec.resources.requests[memory]: 1Gi is more than the limit of 512Mi"
    )
    mysql: dict[str, Any] = {"cluster_ref": None, "server_ref": server(), "engine": "mysql"}
    assert said(of_database(database(**mysql, character_type="C")))[0].startswith("spec.characterType: ")
    assert said(of_database(database(**mysql, username="root")))[0].startswith("spec.username: ")


def test_user_unsupported_by_engine_is_rejected() -> None:
    assert said(of_user(user(user="steersman_x")))[0].startswith('spec.user: username "steersman_x" cannot be used')
    assert said(of_user(user(user="x" * 63, rotation=PasswordRotation(every=Duration("1h")))))[0].startswith(
        "spec.user: "
    )
    assert said(of_user(user(roles=(RoleGrant(name="pg_execute_server_program"),))))[0].startswith("spec.roles: ")
    mysql: dict[str, Any] = {"cluster_ref": None, "server_ref": server(), "engine": "mysql"}
    assert said(of_user(user(**mysql, create_database=True)))[0].startswith("spec.createDatabase: ")
    assert said(of_user(user(**mysql, roles=(RoleGrant(name="root"),))))[0].startswith("spec.roles: ")
    everywhere = PrivilegeGrant(database="*", privileges=("SELECT",))
    assert "SELECT cannot be granted on the whole server" in said(of_user(user(**mysql, grants=(everywhere,))))[0]
    assert (
        said(
            of_user(user(**mysql, grants=(PrivilegeGrant(database="*", privileges=("PROCESS",)),), replication=True))
        )
        == []
    )


@pytest.mark.parametrize("engine", ["mysql", "postgresql"])
def test_impossible_mysql_names_are_rejected_everywhere(engine: Any) -> None:
    """What no pattern can say, too: letters that MySQL lacks, and how many bytes there are."""
    wrong = {"postgresql": "é" * 32, "mysql": "boss😀"}[engine]
    there: dict[str, Any] = {"cluster_ref": None, "server_ref": server(), "engine": engine}
    schema = "public" if engine == "postgresql" else None
    for field in ("database", "reassign_to"):
        (told,) = said(of_user(user(**there, **{field: wrong})))
        assert told.startswith(f"spec.{'reassignTo' if field == 'reassign_to' else field}: ") and wrong in told
    for grant in (
        PrivilegeGrant(database=wrong, privileges=("ALL",)),
        PrivilegeGrant(database="shop", schema=schema, tables=(wrong,), privileges=("SELECT",)),
        PrivilegeGrant(database="shop", schema=schema, tables=("till",), columns=(wrong,), privileges=("SELECT",)),
        PrivilegeGrant(database="shop", schema=schema, functions=(wrong,), privileges=("EXECUTE",)),
    ):
        (told,) = said(of_user(user(**there, grants=(grant,))))
        assert told.startswith("spec.grants: ") and wrong in told
    assert said(of_user(user(**there, roles=(RoleGrant(name=wrong),))))[0].startswith("spec.roles: ")
    for field in ("database_name", "username", "owner"):
        name = {"database_name": "databaseName"}.get(field, field)
        found = said(of_database(database(**there, **{field: wrong})))
        assert any(told.startswith(f"spec.{name}: ") and wrong in told for told in found)


def test_impossible_postgresql_names_are_rejected_everywhere() -> None:
    wrong = "é" * 32
    fields: list[tuple[str, dict[str, Any]]] = [
        ("template", {"template": wrong}),
        ("schemas", {"schemas": (Schema(name=wrong),)}),
        ("schemas", {"schemas": (Schema(name="till", owner=wrong),)}),
        ("extensions", {"extensions": (Extension(name=wrong),)}),
        ("extensions", {"extensions": (Extension(name="hstore", schema=wrong),)}),
        ("extensions", {"extensions": (Extension(name="hstore", version="1\0"),)}),
        ("encoding", {"encoding": "UTF8\0"}),
        ("collation", {"collation": "C\0"}),
        ("characterType", {"character_type": "C\0"}),
    ]
    for field, spec in fields:
        (told,) = said(of_database(database(**spec)))
        assert told.startswith(f"spec.{field}: ")
    maintained = replace(server(), maintenance_database=wrong)
    there: dict[str, Any] = {"cluster_ref": None, "server_ref": maintained, "engine": "postgresql"}
    assert said(of_user(user(**there)))[0].startswith("spec.serverRef.maintenanceDatabase: ")
    assert said(of_database(database(**there)))[0].startswith("spec.serverRef.maintenanceDatabase: ")


def test_cross_namespace_forbidden_fields_are_rejected() -> None:
    elsewhere = ClusterReference(name="main", namespace="servers")
    assert said(of_user(user(cluster_ref=elsewhere, create_database=True))) == [
        "spec: createDatabase is only for objects from the cluster's own namespace"
    ]
    service = server(service=ServiceReference(name="pg", namespace="servers"))
    foreign: dict[str, Any] = {"cluster_ref": None, "engine": "postgresql", "server_ref": service}
    assert said(of_database(database(**foreign, adopt=True)))[0].startswith("spec: adopt is only for")
    assert of_user(user(cluster_ref=ClusterReference(name="main", namespace="shop"), create_database=True)) == []


def test_unverified_connection_and_missing_server_warn() -> None:
    foreign: dict[str, Any] = {"cluster_ref": None, "engine": "postgresql"}
    (warning,) = said(of_user(user(**foreign, server_ref=server("Disable"))))
    assert warning.startswith("spec.serverRef.tls.mode: Disable disables TLS")
    assert said(of_user(user(cluster_ref=None)))[0].startswith("no server is declared")
    (lost,) = said(of_database(database(deletion_policy="Delete")))
    assert lost.startswith("spec.deletionPolicy: the database on the server is deleted")


def test_existing_error_does_not_block_update() -> None:
    handler = ratcheting(of_cluster)
    former = cluster(instances=1, postgresql=settings(pg_hba=("nonsense",)))
    assert len(handler(former, None)) == 2
    assert handler(replace(former, spec=replace(former.spec, hibernated=True)), former) == []
    worse = replace(former, spec=replace(former.spec, version="16"))
    assert said(handler(worse, former)) == [
        'spec.version: version "16" of postgresql is not supported. Use "15", "17" or "18"'
    ]


@pytest.mark.parametrize("line", VALID_LINES)
def test_hba_lines_accepted(line: str) -> None:
    assert hba.validate_line(line) is None


@pytest.mark.parametrize("line", UNPARSABLE_LINES)
def test_hba_regex_rejected(line: str) -> None:
    assert "regular expression" in (hba.validate_line(line) or "")


@pytest.mark.parametrize("line", INVALID_LINES)
def test_hba_lines_rejected(line: str) -> None:
    assert hba.validate_line(line)


def test_hba_method_name_elsewhere_is_no_risk() -> None:
    assert hba.security_warning("host trust password all scram-sha-256") is None
    assert "clear text" in (hba.security_warning("host all all all password") or "")


@pytest.mark.parametrize(
    ("value", "mode", "refused"),
    [("off", None, 1), ("Local", "Priority", 1), ("off", "Disabled", 0), ("remote_apply", None, 0)],
)
def test_nonwaiting_commit_is_no_synchronous_standby(value: str, mode: Any, refused: int) -> None:
    settings = PostgreSQLSettings(
        parameters=FrozenDict({"synchronous_commit": value}), synchronous=SynchronousSettings(mode=mode)
    )
    found = [one for one in of_cluster(cluster(postgresql=settings)) if isinstance(one, FieldError)]
    assert [one.field for one in found] == ["spec.postgresql.parameters[synchronous_commit]"] * refused
