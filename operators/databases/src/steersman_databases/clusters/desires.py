"""From what an object declares to what a server should hold."""

from __future__ import annotations

from collections.abc import Iterator

from steersman_databases.api import Cluster, Database, DatabaseUser
from steersman_databases.api.grants import Grant
from steersman_databases.clusters.schedule import Wanted
from steersman_databases.engines.cluster import InitialDatabase
from steersman_databases.engines.desired import (
    EMPTY_TEMPLATE,
    NO_LIMITS,
    Claim,
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    HourlyLimits,
    ObjectKind,
    Password,
)


def claim_of(of: Database | DatabaseUser | Cluster, cluster: str) -> Claim:
    """The mark that an object leaves on what it made. ``cluster`` tells Kubernetes clusters apart."""
    return Claim(cluster, type(of).api_resource.kind, of.metadata.namespace, of.metadata.name)


def user_of(user: DatabaseUser, wanted: Wanted, claim: Claim, *, guest: bool, ended: bool = False) -> DesiredUser:
    """What a ``DatabaseUser`` declares.

    Args:
        user: the object.
        wanted: its credentials.
        claim: its mark.
        guest: it is from another namespace than the server.
        ended: its ``validUntil`` has passed.
    """
    spec = user.spec
    return DesiredUser(
        name=spec.user,
        password=wanted.password,
        second=wanted.second,
        login=spec.login,
        inherit=spec.inherit,
        create_database=spec.create_database,
        replication=spec.replication,
        bypass_row_level_security=spec.bypass_row_level_security,
        connection_limit=spec.connection_limit,
        limits=NO_LIMITS
        if (told := spec.limits) is None
        else HourlyLimits(told.queries, told.updates, told.connections),
        valid_until=wanted.valid_until,
        ended=ended,
        roles=tuple(DesiredMembership(role.name, role.admin, role.inherit, role.set) for role in spec.roles),
        grants=tuple(_grant(user, grant) for grant in spec.grants),
        exact=spec.undeclared_grants == "Revoke",
        claim=claim,
        adopt=spec.adopt,
        guest=guest,
    )


def named_besides(of: Database | DatabaseUser) -> Iterator[tuple[str, str]]:
    """What an object names on its server beside what that is to hold: the fields, and the names."""
    server = of.spec.server_ref
    named = {"serverRef.maintenanceDatabase": None if server is None else server.maintenance_database}
    if isinstance(of, DatabaseUser):
        named |= {"database": of.spec.database, "reassignTo": of.spec.reassign_to}
    yield from ((field, name) for field, name in named.items() if name is not None)


def _grant(user: DatabaseUser, grant: Grant) -> DesiredGrant:
    kind, names = ObjectKind.DATABASE if grant.schema is None else ObjectKind.SCHEMA, ()
    if user.is_on_server(grant):
        kind = ObjectKind.SERVER
    for listed, of in (
        (grant.tables, ObjectKind.TABLE),
        (grant.sequences, ObjectKind.SEQUENCE),
        (grant.functions, ObjectKind.FUNCTION),
    ):
        if listed:
            kind, names = of, listed
    return DesiredGrant(
        database=grant.database,
        privileges=frozenset(grant.privileges),
        kind=kind,
        schema=grant.schema,
        names=names,
        with_grant_option=grant.with_grant_option,
        future=grant.future,
        created_by=grant.created_by or (),
        columns=grant.columns or (),
    )


def owner_of(database: Database, password: Password, claim: Claim) -> DesiredUser:
    """The user that a ``Database`` makes to own it. What else it may do is left alone."""
    return DesiredUser(
        name=database.own_username,
        password=password,
        exact=False,
        claim=claim,
        adopt=database.spec.adopt,
    )


def database_of(database: Database, claim: Claim, *, guest: bool) -> DesiredDatabase:
    """What a ``Database`` declares. ``guest``: from another namespace than the server."""
    spec = database.spec
    return DesiredDatabase(
        name=database.database_name,
        owner=database.username,
        encoding=spec.encoding,
        collation=spec.collation,
        character_type=spec.character_type,
        template=spec.template or EMPTY_TEMPLATE,
        connection_limit=-1 if spec.connection_limit is None else spec.connection_limit,
        extensions=tuple(
            DesiredExtension(e.name, e.version, e.schema, e.ensure == "Present") for e in spec.extensions
        ),
        schemas=tuple(DesiredSchema(s.name, s.owner, s.ensure == "Present") for s in spec.schemas),
        claim=claim,
        adopt=spec.adopt,
        guest=guest,
    )


def initial_of(initial: InitialDatabase, password: str, claim: Claim) -> tuple[DesiredUser, DesiredDatabase]:
    """The first database of a cluster and before it its owner.

    The server is the cluster's own: what is there under these names and bears nobody's mark, as after a restored
    dump, is taken.
    """
    owner = DesiredUser(
        name=initial.owner,
        password=password,
        exact=False,
        claim=claim,
        adopt=True,
    )
    database = DesiredDatabase(
        name=initial.database,
        owner=initial.owner,
        encoding=initial.encoding,
        collation=initial.collation,
        claim=claim,
        adopt=True,
    )
    return owner, database
