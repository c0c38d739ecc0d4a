"""Map declared objects to the desired state of a server."""

from __future__ import annotations

from collections.abc import Iterator

from steersman_databases.api import Cluster, Database, DatabaseUser
from steersman_databases.api.grants import PrivilegeGrant
from steersman_databases.engines.cluster_engine import BootstrapDatabase
from steersman_databases.engines.sql.desired import (
    EMPTY_TEMPLATE,
    NO_LIMITS,
    AccountLimits,
    DesiredDatabase,
    DesiredExtension,
    DesiredGrant,
    DesiredMembership,
    DesiredSchema,
    DesiredUser,
    OwnershipMark,
    Password,
    SecurableKind,
)
from steersman_databases.sql.user.password_rotation import DesiredPasswords


def mark_of(obj: Database | DatabaseUser | Cluster, cluster_id: str, namespace_uid: str = "") -> OwnershipMark:
    """Ownership mark of the objects that `obj` creates. `cluster_id` identifies the Kubernetes cluster."""
    kind, key = type(obj).api_resource.kind, obj.key
    return OwnershipMark(cluster_id, kind, key.namespace, key.name, namespace_uid)


def desired_user(
    user: DatabaseUser,
    passwords: DesiredPasswords,
    mark: OwnershipMark,
    *,
    cross_namespace: bool,
    expired: bool = False,
) -> DesiredUser:
    """Desired state of a `DatabaseUser`.

    Args:
        user: the object.
        passwords: its credentials.
        mark: its ownership mark.
        cross_namespace: it is in another namespace than the server.
        expired: its `validUntil` has passed.
    """
    spec = user.spec
    return DesiredUser(
        name=spec.user,
        password=passwords.password,
        second_credential=passwords.second_credential,
        login=spec.login,
        inherit=spec.inherit,
        create_database=spec.create_database,
        replication=spec.replication,
        bypass_row_level_security=spec.bypass_row_level_security,
        connection_limit=spec.connection_limit,
        limits=NO_LIMITS
        if (declared_roles := spec.limits) is None
        else AccountLimits(declared_roles.queries, declared_roles.updates, declared_roles.connections),
        valid_until=passwords.valid_until,
        expired=expired,
        roles=tuple(DesiredMembership(role.name, role.admin, role.inherit, role.set) for role in spec.roles),
        grants=tuple(_desired_grant(user, grant) for grant in spec.grants),
        revoke_undeclared=spec.undeclared_grants == "Revoke",
        mark=mark,
        adopt=spec.adopt,
        cross_namespace=cross_namespace,
    )


def referenced_names(obj: Database | DatabaseUser) -> Iterator[tuple[str, str]]:
    """Names on the server that an object refers to, by field."""
    server = obj.spec.server_ref
    named = {"serverRef.maintenanceDatabase": None if server is None else server.maintenance_database}
    if isinstance(obj, DatabaseUser):
        named |= {"database": obj.spec.database, "reassignTo": obj.spec.reassign_to}
    yield from ((field, name) for field, name in named.items() if name is not None)


def _desired_grant(user: DatabaseUser, grant: PrivilegeGrant) -> DesiredGrant:
    kind, names = SecurableKind.DATABASE if grant.schema is None else SecurableKind.SCHEMA, ()
    if user.is_on_server(grant):
        kind = SecurableKind.SERVER
    for listed, kind_of in (
        (grant.tables, SecurableKind.TABLE),
        (grant.sequences, SecurableKind.SEQUENCE),
        (grant.functions, SecurableKind.FUNCTION),
    ):
        if listed:
            kind, names = kind_of, listed
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


def desired_owner(database: Database, password: Password, mark: OwnershipMark) -> DesiredUser:
    """Owner that a `Database` creates. Its other attributes are left unchanged."""
    return DesiredUser(
        name=database.generated_username,
        password=password,
        revoke_undeclared=False,
        mark=mark,
        adopt=database.spec.adopt,
    )


def desired_database(database: Database, mark: OwnershipMark, *, cross_namespace: bool) -> DesiredDatabase:
    """Desired state of a `Database`. `cross_namespace`: it is in another namespace than the server."""
    spec = database.spec
    return DesiredDatabase(
        name=database.database_name,
        owner=database.username,
        encoding=spec.encoding,
        collation=spec.collation,
        character_type=spec.character_type,
        locale_provider=spec.locale_provider,
        locale=spec.locale,
        template=spec.template or EMPTY_TEMPLATE,
        connection_limit=-1 if spec.connection_limit is None else spec.connection_limit,
        extensions=tuple(
            DesiredExtension(e.name, e.version, e.schema, e.ensure == "Present") for e in spec.extensions
        ),
        schemas=tuple(DesiredSchema(s.name, s.owner, s.ensure == "Present") for s in spec.schemas),
        mark=mark,
        adopt=spec.adopt,
        cross_namespace=cross_namespace,
    )


def desired_bootstrap(
    initial: BootstrapDatabase, password: str, mark: OwnershipMark
) -> tuple[DesiredUser, DesiredDatabase]:
    """First database of a cluster, and its owner before it.

    The server belongs to the cluster: existing objects of these names without a mark, for example from a restored
    dump, are taken over.
    """
    owner = DesiredUser(
        name=initial.owner,
        password=password,
        revoke_undeclared=False,
        mark=mark,
        adopt=True,
    )
    database = DesiredDatabase(
        name=initial.database,
        owner=initial.owner,
        encoding=initial.encoding,
        collation=initial.collation,
        mark=mark,
        adopt=True,
    )
    return owner, database
