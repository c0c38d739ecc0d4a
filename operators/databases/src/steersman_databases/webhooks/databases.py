"""Checks of `Database` and `DatabaseUser`, which the controllers repeat."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.api.group import TARGET_LABEL
from steersman_databases.api.references import ServerReference
from steersman_databases.engines.errors import EngineError, InvalidName, NotSupported
from steersman_databases.engines.sql.desired import DesiredDatabase, DesiredUser, PasswordDirective, SecondCredential
from steersman_databases.engines.sql.sql_engine import SqlEngine
from steersman_databases.engines.versions import image
from steersman_databases.sql import tenancy
from steersman_databases.sql.desired import desired_database, desired_owner, desired_user, mark_of, referenced_names
from steersman_databases.sql.user.password_rotation import DesiredPasswords
from steersman_databases.webhooks.backups import check_backup_settings
from steersman_databases.webhooks.resources import check_resources

ContentsOf = Callable[[str], SqlEngine]
"""Finds what is inside servers of an engine, by the engine's name."""

_NO_ADMINISTRATOR = ""
"""Replaces the administrator's name, which is in a Secret.

The controller checks it.
"""
_UNVERIFIED_WARNINGS = {
    # PostgreSQL proves passwords with SCRAM without sending them. MySQL may request them, so it is always encrypted.
    ("postgresql", "Disable"): "disables TLS: anyone on the network can read all statements, password verifiers "
    "included",
    ("postgresql", "Require"): "does not verify the server: an attacker can impersonate it, and read and change "
    "all data",
    ("mysql", "Disable"): "still uses TLS, but does not verify the server: an attacker can get the administrator's "
    "password",
    ("mysql", "Require"): "does not verify the server: an attacker can get the administrator's password",
}


def check_database(database: Database, *, sql_engine_for: ContentsOf) -> Iterator[FieldError | AdmissionWarning]:
    """Return the errors and warnings of a `Database`."""
    spec, mark = database.spec, mark_of(database, "")
    if database.makes_cluster:
        try:
            image(database.engine, database.version)
        except EngineError as error:
            yield FieldError("spec.version", str(error))
    desired: list[DesiredUser | DesiredDatabase] = []
    if not spec.owner:
        desired.append(desired_owner(database, PasswordDirective.UNCHANGED, mark))
    desired.append(desired_database(database, mark, cross_namespace=False))
    yield from _engine_errors(sql_engine_for(database.engine), desired, {})
    yield from _reference_errors(sql_engine_for(database.engine), database)
    yield from _namespace_errors(database)
    yield from _tls_warnings(database.engine, spec.server_ref)
    yield from check_resources("spec.resources", spec.resources)
    yield from check_backup_settings(spec.backup, spec.deletion_policy)
    if spec.deletion_policy == "Delete":
        ignored_fields = (
            "its server's volume and Secrets are" if database.makes_cluster else "the database on the server is"
        )
        yield AdmissionWarning(f"spec.deletionPolicy: {ignored_fields} deleted with this object, including the data")


def check_user(user: DatabaseUser, *, sql_engine_for: ContentsOf) -> Iterator[FieldError | AdmissionWarning]:
    """Return the errors and warnings of a `DatabaseUser`."""
    spec = user.spec
    rotation_username = None if spec.rotation is None else SecondCredential(PasswordDirective.UNCHANGED)
    expected = DesiredPasswords(
        PasswordDirective.UNCHANGED if spec.login else PasswordDirective.NONE, rotation_username, spec.valid_until
    )
    desired = desired_user(user, expected, mark_of(user, ""), cross_namespace=False)
    yield from _engine_errors(sql_engine_for(user.engine), [desired], {"username": "user"})
    yield from _reference_errors(sql_engine_for(user.engine), user)
    yield from _namespace_errors(user)
    yield from _tls_warnings(user.engine, spec.server_ref)
    if spec.cluster_ref is None and spec.server_ref is None and TARGET_LABEL not in user.metadata.labels:
        yield AdmissionWarning(f"no server is declared: set the label {TARGET_LABEL} to a cluster of this namespace")


def _engine_errors(
    sql_engine: SqlEngine, desired: list[DesiredUser | DesiredDatabase], field_names: dict[str, str]
) -> Iterator[FieldError]:
    """Return the errors of the engine.

    Args:
        field_names: field names of the object that differ from those of the engine.
    """
    for desired_object in desired:
        try:
            sql_engine.check(desired_object, _NO_ADMINISTRATOR)
        except (InvalidName, NotSupported) as error:
            yield FieldError(f"spec.{field_names.get(error.field, error.field)}", str(error))


def _reference_errors(sql_engine: SqlEngine, obj: Database | DatabaseUser) -> Iterator[FieldError]:
    for field, name in referenced_names(obj):
        try:
            sql_engine.check_name(field, name)
        except InvalidName as error:
            yield FieldError(f"spec.{field}", str(error))


def _namespace_errors(obj: Database | DatabaseUser) -> Iterator[FieldError]:
    if tenancy.is_cross_namespace(obj, _server_namespace(obj)) and (why := tenancy.forbidden_field(obj)):
        yield FieldError("spec", why, reason="FieldValueForbidden")


def _server_namespace(obj: Database | DatabaseUser) -> str | None:
    """Return the namespace of its server, if the object names it."""
    server = obj.spec.server_ref
    named = obj.spec.cluster_ref if server is None else server.service
    return None if named is None else named.namespace


def _tls_warnings(engine: str, server: ServerReference | None) -> Iterator[AdmissionWarning]:
    if server is not None and (why := _UNVERIFIED_WARNINGS.get((engine, server.tls.mode))):
        yield AdmissionWarning(f"spec.serverRef.tls.mode: {server.tls.mode} {why}")
