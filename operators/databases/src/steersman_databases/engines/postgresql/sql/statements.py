"""SQL statements of each action on PostgreSQL.

Names are identifiers, values are literals where utility statements take no parameters, and keywords are constants
of this module. Grants and changes on behalf of a role run under SET LOCAL ROLE, so that the operator's own role
needs no rights on the object. The few statements that only a superuser may run are marked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from psycopg import sql

from steersman_databases.engines.errors import NotSupported
from steersman_databases.engines.postgresql.sql.accounts.revoking import revoke_all
from steersman_databases.engines.postgresql.sql.statement_blocks import (
    TERMINATE_SESSIONS,
    compose,
    drop_owned,
    move_extension,
    terminate_sessions,
    use_invoker_rights,
)
from steersman_databases.engines.sql.desired import SecurableKind
from steersman_databases.engines.sql.inspection import PUBLIC, SecuredObject
from steersman_databases.engines.sql.sql_actions import (
    INCOMPLETE_MARKER,
    NO_EXPIRY,
    AlterDatabase,
    AlterRole,
    AlterSchemaOwner,
    CreateDatabase,
    CreateExtension,
    CreateRole,
    CreateSchema,
    DropDatabase,
    DropExtension,
    DropRole,
    DropSchema,
    FinishDatabase,
    GrantPrivileges,
    GrantRole,
    MoveExtension,
    ReassignOwned,
    RevokePrivileges,
    RevokeRole,
    RoleAttributes,
    SetRoleSetting,
    SetVerifier,
    SqlAction,
    TagDatabase,
    TagUser,
    TerminateSessions,
    UpdateExtension,
)

from ..planning.identifiers import normalize_argument_types

Identifier = sql.Identifier


@dataclass(frozen=True, slots=True)
class StatementBatch:
    """Statements of one action, in a transaction if several or with `as_role`.

    Attributes:
        operation: description for errors.
        database: `None` is the maintenance database.
        elevated: needs a superuser.
        owner_check: database whose owner runs the statements by SET ROLE if the login does not inherit the owner's
            rights. There is no transaction in this case.
        precondition: statement that runs before SET ROLE.
    """

    operation: str
    statements: tuple[sql.Composed, ...]
    database: str | None = None
    as_role: str | None = None
    elevated: bool = False
    owner_check: str | None = None
    precondition: sql.Composed | None = None

    def text(self, administrator: str) -> sql.Composed:
        """Return all statements as one query, which takes one round trip."""
        acting = self.as_role is not None and self.as_role != administrator and not self.elevated
        if len(self.statements) == 1 and not acting:
            return self.statements[0]
        role = (compose("SET LOCAL ROLE {}", Identifier(self.as_role or "")),) if acting else ()
        return sql.SQL("; ").join([compose("BEGIN"), *role, *self.statements, compose("COMMIT")])


def as_superuser(work: StatementBatch) -> StatementBatch:
    """Return the statements for a superuser who acts as their role.

    A REVOKE by the superuser itself would apply to the grants of the object's owner.
    """
    statements = (compose("SET LOCAL ROLE {}", Identifier(work.as_role or "")), *work.statements)
    return replace(work, statements=statements, as_role=None, elevated=True)


def with_schema_usage(work: StatementBatch, schemas: list[str]) -> StatementBatch:
    """Return the statements with temporary USAGE on schemas for their role.

    Without it the role could not name objects in these schemas.
    """
    schema_names, role = _list([Identifier(schema) for schema in schemas]), Identifier(work.as_role or "")
    statements = (
        compose("GRANT USAGE ON SCHEMA {} TO {}", schema_names, role),
        *as_superuser(work).statements,
        compose("SET LOCAL ROLE NONE"),
        compose("REVOKE USAGE ON SCHEMA {} FROM {}", schema_names, role),
    )
    return replace(work, statements=statements, as_role=None, elevated=True)


@singledispatch
def statements_for(action: SqlAction) -> StatementBatch:
    """Return the statements of an action."""
    raise NotSupported("this", f"PostgreSQL has no {type(action).__name__}")


def _list(parts: list[sql.Composable], between: str = ", ") -> sql.Composed:
    return sql.SQL(between).join(parts)  # pyright: ignore[reportArgumentType]


_SWITCHES = (
    ("login", "LOGIN"),
    ("inherit", "INHERIT"),
    ("superuser", "SUPERUSER"),
    ("create_role", "CREATEROLE"),
    ("create_database", "CREATEDB"),
    ("replication", "REPLICATION"),
    ("bypass_row_level_security", "BYPASSRLS"),
)


def _attributes(desired: RoleAttributes) -> list[sql.Composable]:
    clauses: list[sql.Composable] = [
        compose(word if value else f"NO{word}")
        for field, word in _SWITCHES
        if (value := getattr(desired, field)) is not None
    ]
    if desired.connection_limit is not None:
        clauses.append(compose("CONNECTION LIMIT {}", sql.Literal(desired.connection_limit)))
    if desired.valid_until is not None:
        end = "infinity" if desired.valid_until == NO_EXPIRY else desired.valid_until.isoformat()
        clauses.append(compose("VALID UNTIL {}", sql.Literal(end)))
    return clauses


@statements_for.register
def _(action: CreateRole) -> StatementBatch:
    clauses = _attributes(action.attributes)
    if action.verifier is not None:
        clauses.append(compose("PASSWORD {}", sql.Literal(action.verifier)))
    statements = [compose("CREATE ROLE {} {}", Identifier(action.name), _list(clauses, " "))]
    if action.mark is not None:
        statements.append(compose("COMMENT ON ROLE {} IS {}", Identifier(action.name), sql.Literal(action.mark)))
    return StatementBatch(f"creating user {action.name}", tuple(statements))


@statements_for.register
def _(action: AlterRole) -> StatementBatch:
    wanted = action.attributes
    mighty = (wanted.superuser, wanted.create_role, wanted.replication, wanted.bypass_row_level_security)
    statement = compose("ALTER ROLE {} {}", Identifier(action.name), _list(_attributes(wanted), " "))
    elevated = action.elevated or any(value is not None for value in mighty)
    return StatementBatch(f"altering user {action.name}", (statement,), elevated=elevated)


@statements_for.register
def _(action: SetVerifier) -> StatementBatch:
    verifier = sql.NULL if action.verifier is None else sql.Literal(action.verifier)
    statement = compose("ALTER ROLE {} PASSWORD {}", Identifier(action.name), verifier)
    return StatementBatch(f"setting the password of user {action.name}", (statement,), elevated=action.elevated)


@statements_for.register
def _(action: SetRoleSetting) -> StatementBatch:
    statement = compose("ALTER ROLE {} SET role TO {}", Identifier(action.name), sql.Literal(action.role))
    return StatementBatch(f"setting the role of {action.name} to {action.role}", (statement,))


@statements_for.register
def _(action: TagUser) -> StatementBatch:
    statement = compose("COMMENT ON ROLE {} IS {}", Identifier(action.name), sql.Literal(action.text))
    return StatementBatch(f"marking user {action.name}", (statement,))


@statements_for.register
def _(action: TagDatabase) -> StatementBatch:
    statement = compose("COMMENT ON DATABASE {} IS {}", Identifier(action.name), sql.Literal(action.text))
    return StatementBatch(f"marking database {action.name}", (statement,), as_role=action.owner)


@statements_for.register
def _(action: GrantRole) -> StatementBatch:
    given = action.membership
    options = [("ADMIN", given.admin), ("INHERIT", given.inherit), ("SET", given.set_role)]
    told: list[sql.Composable] = [
        compose(f"{word} {str(value).upper()}") for word, value in options if value is not None
    ]
    # Version 15 supports only the admin option, in its older spelling.
    plain = given.inherit is None and given.set_role is None
    with_ = compose(" WITH ADMIN OPTION" if given.admin else "") if plain else compose(" WITH {}", _list(told))
    statement = compose("GRANT {} TO {}{}", Identifier(given.role), Identifier(action.member), with_)
    return StatementBatch(
        f"granting membership in {given.role} to {action.member}", (statement,), elevated=action.elevated
    )


@statements_for.register
def _(action: RevokeRole) -> StatementBatch:
    by = compose(" GRANTED BY {}", Identifier(action.grantor)) if action.elevated else compose("")
    statement = compose("REVOKE {} FROM {}{}", Identifier(action.role), Identifier(action.member), by)
    doing = f"revoking membership in {action.role} from {action.member}"
    return StatementBatch(doing, (statement,), elevated=action.elevated)


_PLURALS = {
    SecurableKind.TABLE: "TABLES",
    SecurableKind.SEQUENCE: "SEQUENCES",
    SecurableKind.FUNCTION: "ROUTINES",
    SecurableKind.SCHEMA: "SCHEMAS",
}
_KEYWORDS = {
    SecurableKind.DATABASE: "DATABASE",
    SecurableKind.SCHEMA: "SCHEMA",
    SecurableKind.TABLE: "TABLE",
    SecurableKind.SEQUENCE: "SEQUENCE",
    SecurableKind.FUNCTION: "ROUTINE",
}
_PRIVILEGE_KEYWORDS = frozenset(
    {"CONNECT", "CREATE", "DELETE", "EXECUTE", "INSERT", "MAINTAIN", "REFERENCES", "SELECT", "TEMPORARY", "TRIGGER"}
    | {"TRUNCATE", "UPDATE", "USAGE"}
)


def _privileges(names: tuple[str, ...], column: str | None) -> sql.Composed:
    for name in names:
        if name not in _PRIVILEGE_KEYWORDS:
            raise NotSupported("grants", f"{name} is not a privilege of PostgreSQL")
    of = compose(" ({})", Identifier(column)) if column is not None else compose("")
    return _list([compose("{}{}", compose(name), of) for name in names])


def _address(target: SecuredObject) -> sql.Composed:
    if target.kind is SecurableKind.DATABASE:
        return compose("{}", Identifier(target.database))
    if target.kind is SecurableKind.SCHEMA:
        return compose("{}", Identifier(target.schema or ""))
    name = Identifier(target.schema or "", target.name or "")
    if target.kind is SecurableKind.FUNCTION:
        # The server's own text: it quotes types itself, and qualifies all that are not in pg_catalog.
        return compose("{}({})", name, sql.SQL(normalize_argument_types(target.arguments or "")))  # pyright: ignore[reportArgumentType]
    return compose("{}", name)


def _grant_or_revoke(
    action: GrantPrivileges | RevokePrivileges, verb: str, preposition: str, option: str, prefix: str
) -> sql.Composed:
    secured_object = action.target
    grantee = compose("PUBLIC") if action.grantee == PUBLIC else compose("{}", Identifier(action.grantee))
    names = _privileges(action.privileges, secured_object.column)
    if secured_object.creator is None:
        target = compose(_KEYWORDS[secured_object.kind] + " {}", _address(secured_object))
        return compose(f"{verb} {prefix}{{}} ON {{}} {preposition} {{}}{option}", names, target, grantee)
    location = (
        compose(" IN SCHEMA {}", Identifier(secured_object.schema))
        if secured_object.schema is not None
        else compose("")
    )
    clause = compose("ALTER DEFAULT PRIVILEGES FOR ROLE {}{}", Identifier(secured_object.creator), location)
    kind = compose(_PLURALS[secured_object.kind])
    return compose(f"{{}} {verb} {prefix}{{}} ON {{}} {preposition} {{}}{option}", clause, names, kind, grantee)


def _database_of(target: SecuredObject) -> str | None:
    return None if target.kind is SecurableKind.DATABASE else target.database


@statements_for.register
def _(action: GrantPrivileges) -> StatementBatch:
    statement = _grant_or_revoke(action, "GRANT", "TO", " WITH GRANT OPTION" if action.grantable else "", "")
    doing = f"granting {', '.join(action.privileges)} on {action.target} to {action.grantee or 'PUBLIC'}"
    return StatementBatch(doing, (statement,), _database_of(action.target), action.as_role)


@statements_for.register
def _(action: RevokePrivileges) -> StatementBatch:
    statement = _grant_or_revoke(
        action, "REVOKE", "FROM", "", "GRANT OPTION FOR " if action.grant_option_only else ""
    )
    doing = f"revoking {', '.join(action.privileges)} on {action.target} from {action.grantee or 'PUBLIC'}"
    return StatementBatch(doing, (statement,), _database_of(action.target), action.as_role)


@statements_for.register
def _(action: CreateDatabase) -> StatementBatch:
    clauses = [compose("ALLOW_CONNECTIONS false"), compose("TEMPLATE {}", Identifier(action.template))]
    clauses.append(compose("CONNECTION LIMIT {}", sql.Literal(INCOMPLETE_MARKER)))
    clauses.append(compose("ENCODING {}", sql.Literal(action.encoding)))
    if action.locale_provider is not None:
        clauses.append(compose("LOCALE_PROVIDER {}", Identifier(action.locale_provider)))
    if action.locale is not None:
        option = "ICU_LOCALE {}" if action.locale_provider == "icu" else "BUILTIN_LOCALE {}"
        clauses.append(compose(option, sql.Literal(action.locale)))
    if action.collation is not None:
        clauses.append(compose("LC_COLLATE {}", sql.Literal(action.collation)))
    if action.character_type is not None:
        clauses.append(compose("LC_CTYPE {}", sql.Literal(action.character_type)))
    statement = compose("CREATE DATABASE {} {}", Identifier(action.name), _list([*clauses], " "))
    return StatementBatch(f"creating database {action.name}", (statement,))


@statements_for.register
def _(action: FinishDatabase) -> StatementBatch:
    name = Identifier(action.name)
    statements = [
        compose(
            "ALTER DATABASE {} ALLOW_CONNECTIONS true CONNECTION LIMIT {}", name, sql.Literal(action.connection_limit)
        ),
        compose("ALTER DATABASE {} OWNER TO {}", name, Identifier(action.owner)),
    ]
    if action.mark is not None:
        statements.insert(0, compose("COMMENT ON DATABASE {} IS {}", name, sql.Literal(action.mark)))
    return StatementBatch(f"creating database {action.name}", tuple(statements))


@statements_for.register
def _(action: AlterDatabase) -> StatementBatch:
    if action.owner is not None:
        statement = compose("ALTER DATABASE {} OWNER TO {}", Identifier(action.name), Identifier(action.owner))
        return StatementBatch(f"restoring the owner of database {action.name}", (statement,), elevated=True)
    clauses: list[sql.Composable] = []
    if action.allows_connections is not None:
        clauses.append(compose(f"ALLOW_CONNECTIONS {str(action.allows_connections).lower()}"))
    if action.connection_limit is not None:
        clauses.append(compose("CONNECTION LIMIT {}", sql.Literal(action.connection_limit)))
    if action.is_template is not None:
        clauses.append(compose(f"IS_TEMPLATE {str(action.is_template).lower()}"))
    statement = compose("ALTER DATABASE {} {}", Identifier(action.name), _list(clauses, " "))
    # The role that drops it transfers it to itself, whatever its present owner.
    elevated = action.is_template is not None
    owned = action.name if elevated else None
    return StatementBatch(
        f"altering database {action.name}", (statement,), None, action.previous_owner, elevated, owned
    )


@statements_for.register
def _(action: CreateSchema) -> StatementBatch:
    authorization = compose(" AUTHORIZATION {}", Identifier(action.owner)) if action.elevated else compose("")
    statement = compose("CREATE SCHEMA {}{}", Identifier(action.name), authorization)
    doing = f"creating schema {action.name} in database {action.database}"
    return StatementBatch(doing, (statement,), action.database, action.owner, action.elevated)


@statements_for.register
def _(action: AlterSchemaOwner) -> StatementBatch:
    statement = compose("ALTER SCHEMA {} OWNER TO {}", Identifier(action.name), Identifier(action.owner))
    doing = f"restoring the owner of schema {action.name} of database {action.database}"
    return StatementBatch(doing, (statement,), action.database, elevated=True)


@statements_for.register
def _(action: DropSchema) -> StatementBatch:
    statement = compose("DROP SCHEMA {}", Identifier(action.name))
    doing = f"dropping schema {action.name} of database {action.database}"
    return StatementBatch(doing, (statement,), action.database, action.owner, action.elevated)


@statements_for.register
def _(action: CreateExtension) -> StatementBatch:
    version = compose(" VERSION {}", sql.Literal(action.version)) if action.version is not None else compose("")
    statement = compose(
        "CREATE EXTENSION {} SCHEMA {}{}", Identifier(action.name), Identifier(action.schema), version
    )
    return _extension("creating", action, statement)


@statements_for.register
def _(action: UpdateExtension) -> StatementBatch:
    statement = compose("ALTER EXTENSION {} UPDATE TO {}", Identifier(action.name), sql.Literal(action.version))
    return _extension("updating", action, statement)


@statements_for.register
def _(action: MoveExtension) -> StatementBatch:
    statement = compose("ALTER EXTENSION {} SET SCHEMA {}", Identifier(action.name), Identifier(action.schema))
    return _extension("moving", action, statement, move_extension(action.name))


@statements_for.register
def _(action: DropExtension) -> StatementBatch:
    return _extension("dropping", action, compose("DROP EXTENSION {}", Identifier(action.name)))


def _extension(
    verb: str, action: CreateExtension | UpdateExtension | MoveExtension | DropExtension, *statements: sql.Composed
) -> StatementBatch:
    doing = f"{verb} extension {action.name} in database {action.database}"
    return StatementBatch(doing, statements, action.database, action.as_role, action.elevated)


@statements_for.register
def _(action: ReassignOwned) -> StatementBatch:
    statements = (
        drop_owned(action.name),
        compose("DROP OWNED BY {}", Identifier(action.name)),
        revoke_all(action.name),
    )
    if action.new_owner is None:
        doing = f"revoking the privileges of {action.name} in database {action.database}"
        return StatementBatch(doing, statements, action.database, elevated=True)
    reassign = compose("REASSIGN OWNED BY {} TO {}", Identifier(action.name), Identifier(action.new_owner))
    doing = f"reassigning the objects of {action.name} in database {action.database} to {action.new_owner}"
    return StatementBatch(
        doing, (use_invoker_rights(action.name), reassign, *statements), action.database, elevated=True
    )


def lengthy_part(action: SqlAction) -> StatementBatch | None:
    """Return the part of an action that may take minutes, or None.

    It copies a database, runs an extension's script, or visits all objects that a role owns. It holds no lock that
    all databases of the server share.
    """
    match action:
        case CreateDatabase() | CreateExtension() | UpdateExtension():
            return statements_for(action)
        case ReassignOwned(new_owner=str()):
            work = statements_for(action)
            return replace(work, statements=work.statements[:2])
        case _:
            return None


@statements_for.register
def _(action: TerminateSessions) -> StatementBatch:
    return StatementBatch(f"ending the sessions of {action.name}", terminate_sessions(action.name), elevated=True)


@statements_for.register
def _(action: DropRole) -> StatementBatch:
    statements = (*terminate_sessions(action.name), compose("DROP ROLE {}", Identifier(action.name)))
    return StatementBatch(f"dropping user {action.name}", statements)


@statements_for.register
def _(action: DropDatabase) -> StatementBatch:
    statement = compose("DROP DATABASE {} WITH (FORCE)", Identifier(action.name))
    # The owner may terminate only its own sessions.
    first = compose(TERMINATE_SESSIONS, sql.Literal(action.name))
    return StatementBatch(
        f"dropping database {action.name}", (statement,), elevated=True, owner_check=action.name, precondition=first
    )
