"""What a ``Database`` or ``DatabaseUser`` must not say, by the checks that its controller makes again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from steersman.webhook import AdmissionWarning, FieldError
from steersman_databases.api import Database, DatabaseUser
from steersman_databases.api.group import TARGET_LABEL
from steersman_databases.api.references import ServerReference
from steersman_databases.clusters import tenancy
from steersman_databases.clusters.desires import claim_of, database_of, named_besides, owner_of, user_of
from steersman_databases.clusters.schedule import Wanted
from steersman_databases.engines.desired import DesiredDatabase, DesiredUser, NoPassword, SecondCredential
from steersman_databases.engines.errors import EngineError, InvalidName, NotSupported
from steersman_databases.engines.port import Contents
from steersman_databases.engines.versions import image

ContentsOf = Callable[[str], Contents]
"""Finds what is inside servers of an engine, by the engine's name."""

_NOBODY = ""
"""In the administrator's place: whose name is in a Secret is seen by the controller."""
_UNVERIFIED = {
    # PostgreSQL's passwords are proven by SCRAM, and never sent; MySQL may ask for them, so it is always encrypted.
    ("postgresql", "Disable"): "works in clear text: whoever listens reads what is done there, verifiers included",
    ("postgresql", "Require"): "encrypts without knowing to whom: an impostor may read and change what is done there",
    ("mysql", "Disable"): "encrypts nevertheless, but to anybody: an impostor gets the administrator's password",
    ("mysql", "Require"): "encrypts without knowing to whom: an impostor gets the administrator's password",
}


def check_database(database: Database, *, contents: ContentsOf) -> Iterator[FieldError | AdmissionWarning]:
    """What is to be said of a ``Database``."""
    spec, claim = database.spec, claim_of(database, "")
    if database.makes_cluster:
        try:
            image(database.engine, database.version)
        except EngineError as error:
            yield FieldError("spec.version", str(error))
    desired: list[DesiredUser | DesiredDatabase] = []
    if not spec.owner:
        desired.append(owner_of(database, NoPassword.UNCHANGED, claim))
    desired.append(database_of(database, claim, guest=False))
    yield from _refused(contents(database.engine), desired, {})
    yield from _misnamed(contents(database.engine), database)
    yield from _overreach(database)
    yield from _unverified(database.engine, spec.server_ref)
    if spec.deletion_policy == "Delete":
        lost = "its server's volume and Secrets are" if database.makes_cluster else "the database on the server is"
        yield AdmissionWarning(f"spec.deletionPolicy: {lost} deleted with this object, the data with it")


def check_user(user: DatabaseUser, *, contents: ContentsOf) -> Iterator[FieldError | AdmissionWarning]:
    """What is to be said of a ``DatabaseUser``."""
    spec = user.spec
    second = None if spec.rotation is None else SecondCredential(NoPassword.UNCHANGED)
    wanted = Wanted(NoPassword.UNCHANGED if spec.login else NoPassword.NONE, second, spec.valid_until)
    desired = user_of(user, wanted, claim_of(user, ""), guest=False)
    yield from _refused(contents(user.engine), [desired], {"username": "user"})
    yield from _misnamed(contents(user.engine), user)
    yield from _overreach(user)
    yield from _unverified(user.engine, spec.server_ref)
    if spec.cluster_ref is None and spec.server_ref is None and TARGET_LABEL not in user.metadata.labels:
        yield AdmissionWarning(f"no server is named: set the label {TARGET_LABEL} to a cluster of this namespace")


def _refused(
    contents: Contents, desired: list[DesiredUser | DesiredDatabase], named: dict[str, str]
) -> Iterator[FieldError]:
    """What the engine does not take. ``named``: fields that have another name in the object than in the engine."""
    for each in desired:
        try:
            contents.check(each, _NOBODY)
        except (InvalidName, NotSupported) as error:
            yield FieldError(f"spec.{named.get(error.field, error.field)}", str(error))


def _misnamed(contents: Contents, of: Database | DatabaseUser) -> Iterator[FieldError]:
    for field, name in named_besides(of):
        try:
            contents.check_name(field, name)
        except InvalidName as error:
            yield FieldError(f"spec.{field}", str(error))


def _overreach(guest: Database | DatabaseUser) -> Iterator[FieldError]:
    if tenancy.is_guest(guest, _home(guest)) and (why := tenancy.overreach(guest)):
        yield FieldError("spec", why, reason="FieldValueForbidden")


def _home(of: Database | DatabaseUser) -> str | None:
    """The namespace of its server, as far as the object itself says it."""
    server = of.spec.server_ref
    named = of.spec.cluster_ref if server is None else server.service
    return None if named is None else named.namespace


def _unverified(engine: str, server: ServerReference | None) -> Iterator[AdmissionWarning]:
    if server is not None and (why := _UNVERIFIED.get((engine, server.tls.mode))):
        yield AdmissionWarning(f"spec.serverRef.tls.mode: {server.tls.mode} {why}")
