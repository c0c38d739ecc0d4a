"""What each action is in PostgreSQL's SQL.

Names are identifiers, values literals where utility statements take no parameters, keywords come from here. What is
granted or altered in somebody's name runs under SET LOCAL ROLE, so that the operator's own role needs no rights on
it. The few things that only a superuser may do are marked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

from psycopg import sql

from ..actions import (
    FOREVER,
    HALF_MADE,
    Action,
    AlterDatabase,
    AlterSchemaOwner,
    AlterUser,
    Attributes,
    CreateDatabase,
    CreateExtension,
    CreateSchema,
    CreateUser,
    DropDatabase,
    DropExtension,
    DropSchema,
    DropUser,
    EndSessions,
    FinishDatabase,
    Grant,
    GrantRole,
    MarkDatabase,
    MarkUser,
    MoveExtension,
    Reassign,
    Revoke,
    RevokeRole,
    SetRoleSetting,
    SetVerifier,
    UpdateExtension,
)
from ..desired import ObjectKind
from ..errors import NotSupported
from ..survey import PUBLIC, SecuredObject
from .names import arguments
from .revoking import all_revoked

Name = sql.Identifier


@dataclass(frozen=True, slots=True)
class Work:
    """The statements of one action, in one transaction if there are several or an `as_role`.

    `doing` is for errors; `database` at `None` is the maintenance database; `elevated` asks for a superuser. Who
    does not inherit from the owner of the database `owned` does it as that role, in no transaction, after `first`.
    """

    doing: str
    statements: tuple[sql.Composed, ...]
    database: str | None = None
    as_role: str | None = None
    elevated: bool = False
    owned: str | None = None
    first: sql.Composed | None = None

    def text(self, administrator: str) -> sql.Composed:
        """All of it as one query, which takes one round trip."""
        acting = self.as_role is not None and self.as_role != administrator and not self.elevated
        if len(self.statements) == 1 and not acting:
            return self.statements[0]
        role = (_sql("SET LOCAL ROLE {}", Name(self.as_role or "")),) if acting else ()
        return sql.SQL("; ").join([_sql("BEGIN"), *role, *self.statements, _sql("COMMIT")])


def by_force(todo: Work) -> Work:
    """The same as its role by a superuser: a superuser's own REVOKE would count as that of the object's owner."""
    statements = (_sql("SET LOCAL ROLE {}", Name(todo.as_role or "")), *todo.statements)
    return replace(todo, statements=statements, as_role=None, elevated=True)


def let_in(todo: Work, schemas: list[str]) -> Work:
    """The same as a role that may not use schemas, and so could name nothing in them: it may until this is done."""
    places, role = _list([Name(schema) for schema in schemas]), Name(todo.as_role or "")
    statements = (
        _sql("GRANT USAGE ON SCHEMA {} TO {}", places, role),
        *by_force(todo).statements,
        _sql("SET LOCAL ROLE NONE"),
        _sql("REVOKE USAGE ON SCHEMA {} FROM {}", places, role),
    )
    return replace(todo, statements=statements, as_role=None, elevated=True)


@singledispatch
def work(action: Action) -> Work:
    """The statements of an action."""
    raise NotSupported("this", f"PostgreSQL has no {type(action).__name__}")


def _sql(text: str, *parts: sql.Composable) -> sql.Composed:
    return sql.SQL(text).format(*parts)  # pyright: ignore[reportArgumentType]


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


def _attributes(wanted: Attributes) -> list[sql.Composable]:
    clauses: list[sql.Composable] = [
        _sql(word if value else f"NO{word}")
        for field, word in _SWITCHES
        if (value := getattr(wanted, field)) is not None
    ]
    if wanted.connection_limit is not None:
        clauses.append(_sql("CONNECTION LIMIT {}", sql.Literal(wanted.connection_limit)))
    if wanted.valid_until is not None:
        end = "infinity" if wanted.valid_until == FOREVER else wanted.valid_until.isoformat()
        clauses.append(_sql("VALID UNTIL {}", sql.Literal(end)))
    return clauses


@work.register
def _(action: CreateUser) -> Work:
    clauses = _attributes(action.attributes)
    if action.verifier is not None:
        clauses.append(_sql("PASSWORD {}", sql.Literal(action.verifier)))
    statements = [_sql("CREATE ROLE {} {}", Name(action.name), _list(clauses, " "))]
    if action.mark is not None:
        statements.append(_sql("COMMENT ON ROLE {} IS {}", Name(action.name), sql.Literal(action.mark)))
    return Work(f"creating user {action.name}", tuple(statements))


@work.register
def _(action: AlterUser) -> Work:
    wanted = action.attributes
    mighty = (wanted.superuser, wanted.create_role, wanted.replication, wanted.bypass_row_level_security)
    statement = _sql("ALTER ROLE {} {}", Name(action.name), _list(_attributes(wanted), " "))
    elevated = action.elevated or any(value is not None for value in mighty)
    return Work(f"altering user {action.name}", (statement,), elevated=elevated)


@work.register
def _(action: SetVerifier) -> Work:
    verifier = sql.NULL if action.verifier is None else sql.Literal(action.verifier)
    statement = _sql("ALTER ROLE {} PASSWORD {}", Name(action.name), verifier)
    return Work(f"setting the password of user {action.name}", (statement,), elevated=action.elevated)


@work.register
def _(action: SetRoleSetting) -> Work:
    statement = _sql("ALTER ROLE {} SET role TO {}", Name(action.name), sql.Literal(action.role))
    return Work(f"making {action.name} act as {action.role}", (statement,))


@work.register
def _(action: MarkUser) -> Work:
    statement = _sql("COMMENT ON ROLE {} IS {}", Name(action.name), sql.Literal(action.text))
    return Work(f"marking user {action.name}", (statement,))


@work.register
def _(action: MarkDatabase) -> Work:
    statement = _sql("COMMENT ON DATABASE {} IS {}", Name(action.name), sql.Literal(action.text))
    return Work(f"marking database {action.name}", (statement,), as_role=action.owner)


@work.register
def _(action: GrantRole) -> Work:
    given = action.membership
    options = [("ADMIN", given.admin), ("INHERIT", given.inherit), ("SET", given.set_role)]
    told: list[sql.Composable] = [
        _sql(f"{word} {str(value).upper()}") for word, value in options if value is not None
    ]
    # Version 15 knows the admin option only, by its older spelling.
    plain = given.inherit is None and given.set_role is None
    with_ = _sql(" WITH ADMIN OPTION" if given.admin else "") if plain else _sql(" WITH {}", _list(told))
    statement = _sql("GRANT {} TO {}{}", Name(given.role), Name(action.member), with_)
    return Work(f"making {action.member} a member of {given.role}", (statement,), elevated=action.elevated)


@work.register
def _(action: RevokeRole) -> Work:
    by = _sql(" GRANTED BY {}", Name(action.grantor)) if action.elevated else _sql("")
    statement = _sql("REVOKE {} FROM {}{}", Name(action.role), Name(action.member), by)
    doing = f"revoking membership in {action.role} from {action.member}"
    return Work(doing, (statement,), elevated=action.elevated)


_PLURALS = {
    ObjectKind.TABLE: "TABLES",
    ObjectKind.SEQUENCE: "SEQUENCES",
    ObjectKind.FUNCTION: "ROUTINES",
    ObjectKind.SCHEMA: "SCHEMAS",
}
_KEYWORDS = {
    ObjectKind.DATABASE: "DATABASE",
    ObjectKind.SCHEMA: "SCHEMA",
    ObjectKind.TABLE: "TABLE",
    ObjectKind.SEQUENCE: "SEQUENCE",
    ObjectKind.FUNCTION: "ROUTINE",
}
_WORDS = frozenset(
    {"CONNECT", "CREATE", "DELETE", "EXECUTE", "INSERT", "MAINTAIN", "REFERENCES", "SELECT", "TEMPORARY", "TRIGGER"}
    | {"TRUNCATE", "UPDATE", "USAGE"}
)


def _privileges(names: tuple[str, ...], column: str | None) -> sql.Composed:
    for name in names:
        if name not in _WORDS:
            raise NotSupported("grants", f"{name} is no privilege of PostgreSQL")
    of = _sql(" ({})", Name(column)) if column is not None else _sql("")
    return _list([_sql("{}{}", _sql(name), of) for name in names])


def _address(on: SecuredObject) -> sql.Composed:
    if on.kind is ObjectKind.DATABASE:
        return _sql("{}", Name(on.database))
    if on.kind is ObjectKind.SCHEMA:
        return _sql("{}", Name(on.schema or ""))
    name = Name(on.schema or "", on.name or "")
    if on.kind is ObjectKind.FUNCTION:
        # The server's own text: it quotes types itself, and qualifies all that are not in pg_catalog.
        return _sql("{}({})", name, sql.SQL(arguments(on.arguments or "")))  # pyright: ignore[reportArgumentType]
    return _sql("{}", name)


def _about(action: Grant | Revoke, verb: str, preposition: str, option: str, before: str) -> sql.Composed:
    on = action.on
    grantee = _sql("PUBLIC") if action.grantee == PUBLIC else _sql("{}", Name(action.grantee))
    names = _privileges(action.privileges, on.column)
    if on.creator is None:
        target = _sql(_KEYWORDS[on.kind] + " {}", _address(on))
        return _sql(f"{verb} {before}{{}} ON {{}} {preposition} {{}}{option}", names, target, grantee)
    place = _sql(" IN SCHEMA {}", Name(on.schema)) if on.schema is not None else _sql("")
    head = _sql("ALTER DEFAULT PRIVILEGES FOR ROLE {}{}", Name(on.creator), place)
    kind = _sql(_PLURALS[on.kind])
    return _sql(f"{{}} {verb} {before}{{}} ON {{}} {preposition} {{}}{option}", head, names, kind, grantee)


def _where(on: SecuredObject) -> str | None:
    return None if on.kind is ObjectKind.DATABASE else on.database


@work.register
def _(action: Grant) -> Work:
    statement = _about(action, "GRANT", "TO", " WITH GRANT OPTION" if action.grantable else "", "")
    doing = f"granting {', '.join(action.privileges)} on {action.on} to {action.grantee or 'PUBLIC'}"
    return Work(doing, (statement,), _where(action.on), action.as_role)


@work.register
def _(action: Revoke) -> Work:
    statement = _about(action, "REVOKE", "FROM", "", "GRANT OPTION FOR " if action.only_option else "")
    doing = f"revoking {', '.join(action.privileges)} on {action.on} from {action.grantee or 'PUBLIC'}"
    return Work(doing, (statement,), _where(action.on), action.as_role)


@work.register
def _(action: CreateDatabase) -> Work:
    clauses = [_sql("ALLOW_CONNECTIONS false"), _sql("TEMPLATE {}", Name(action.template))]
    clauses.append(_sql("CONNECTION LIMIT {}", sql.Literal(HALF_MADE)))
    clauses.append(_sql("ENCODING {}", sql.Literal(action.encoding)))
    if action.collation is not None:
        clauses.append(_sql("LC_COLLATE {}", sql.Literal(action.collation)))
    if action.character_type is not None:
        clauses.append(_sql("LC_CTYPE {}", sql.Literal(action.character_type)))
    statement = _sql("CREATE DATABASE {} {}", Name(action.name), _list([*clauses], " "))
    return Work(f"creating database {action.name}", (statement,))


@work.register
def _(action: FinishDatabase) -> Work:
    name = Name(action.name)
    statements = [
        _sql(
            "ALTER DATABASE {} ALLOW_CONNECTIONS true CONNECTION LIMIT {}", name, sql.Literal(action.connection_limit)
        ),
        _sql("ALTER DATABASE {} OWNER TO {}", name, Name(action.owner)),
    ]
    if action.mark is not None:
        statements.insert(0, _sql("COMMENT ON DATABASE {} IS {}", name, sql.Literal(action.mark)))
    return Work(f"creating database {action.name}", tuple(statements))


@work.register
def _(action: AlterDatabase) -> Work:
    if action.owner is not None:
        statement = _sql("ALTER DATABASE {} OWNER TO {}", Name(action.name), Name(action.owner))
        return Work(f"restoring the owner of database {action.name}", (statement,), elevated=True)
    clauses: list[sql.Composable] = []
    if action.allows_connections is not None:
        clauses.append(_sql(f"ALLOW_CONNECTIONS {str(action.allows_connections).lower()}"))
    if action.connection_limit is not None:
        clauses.append(_sql("CONNECTION LIMIT {}", sql.Literal(action.connection_limit)))
    if action.is_template is not None:
        clauses.append(_sql(f"IS_TEMPLATE {str(action.is_template).lower()}"))
    statement = _sql("ALTER DATABASE {} {}", Name(action.name), _list(clauses, " "))
    # As whoever drops it, where it is done for that: whose it has become does not matter.
    elevated = action.is_template is not None
    owned = action.name if elevated else None
    return Work(f"altering database {action.name}", (statement,), None, action.former, elevated, owned)


@work.register
def _(action: CreateSchema) -> Work:
    authorization = _sql(" AUTHORIZATION {}", Name(action.owner)) if action.elevated else _sql("")
    statement = _sql("CREATE SCHEMA {}{}", Name(action.name), authorization)
    doing = f"creating schema {action.name} in database {action.database}"
    return Work(doing, (statement,), action.database, action.owner, action.elevated)


@work.register
def _(action: AlterSchemaOwner) -> Work:
    statement = _sql("ALTER SCHEMA {} OWNER TO {}", Name(action.name), Name(action.owner))
    doing = f"restoring the owner of schema {action.name} of database {action.database}"
    return Work(doing, (statement,), action.database, elevated=True)


@work.register
def _(action: DropSchema) -> Work:
    statement = _sql("DROP SCHEMA {}", Name(action.name))
    doing = f"dropping schema {action.name} of database {action.database}"
    return Work(doing, (statement,), action.database, action.owner, action.elevated)


@work.register
def _(action: CreateExtension) -> Work:
    version = _sql(" VERSION {}", sql.Literal(action.version)) if action.version is not None else _sql("")
    statement = _sql("CREATE EXTENSION {} SCHEMA {}{}", Name(action.name), Name(action.schema), version)
    return _extension("creating", action, statement)


@work.register
def _(action: UpdateExtension) -> Work:
    statement = _sql("ALTER EXTENSION {} UPDATE TO {}", Name(action.name), sql.Literal(action.version))
    return _extension("updating", action, statement)


@work.register
def _(action: MoveExtension) -> Work:
    statement = _sql("ALTER EXTENSION {} SET SCHEMA {}", Name(action.name), Name(action.schema))
    return _extension("moving", action, statement, _unless_foreign(action.name))


_UNLESS_FOREIGN = """
BEGIN
    IF EXISTS (SELECT FROM pg_catalog.pg_extension e
               JOIN pg_catalog.pg_depend m ON m.refobjid = e.oid AND m.deptype = 'e'
                AND m.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass
               JOIN pg_catalog.pg_shdepend o ON o.classid = m.classid AND o.objid = m.objid AND o.deptype = 'o'
               JOIN pg_catalog.pg_database d ON d.oid = o.dbid AND d.datname = pg_catalog.current_database()
               JOIN pg_catalog.pg_roles r ON r.oid = o.refobjid AND NOT r.rolsuper
               WHERE e.extname = {}) THEN
        RAISE insufficient_privilege USING MESSAGE = 'somebody has added objects of his own to the extension: '
            'ALTER EXTENSION ... DROP takes them out';
    END IF;
END
"""


def _unless_foreign(extension: str) -> sql.Composed:
    """Members move along, and a superuser moves them to where their owner could not.

    Looked at afterwards, in the same transaction: who adds one meanwhile is seen, or it has not moved.
    """
    return _sql("DO {}", sql.Literal(_sql(_UNLESS_FOREIGN, sql.Literal(extension)).as_string()))


@work.register
def _(action: DropExtension) -> Work:
    return _extension("dropping", action, _sql("DROP EXTENSION {}", Name(action.name)))


def _extension(
    verb: str, action: CreateExtension | UpdateExtension | MoveExtension | DropExtension, *statements: sql.Composed
) -> Work:
    doing = f"{verb} extension {action.name} in database {action.database}"
    return Work(doing, statements, action.database, action.as_role, action.elevated)


@work.register
def _(action: Reassign) -> Work:
    statements = (
        _unless_owning(action.name),
        _sql("DROP OWNED BY {}", Name(action.name)),
        all_revoked(action.name),
    )
    if action.heir is None:
        doing = f"revoking what {action.name} has in database {action.database}"
        return Work(doing, statements, action.database, elevated=True)
    reassign = _sql("REASSIGN OWNED BY {} TO {}", Name(action.name), Name(action.heir))
    doing = f"giving what {action.name} owns in database {action.database} to {action.heir}"
    return Work(doing, (reassign, *statements), action.database, elevated=True)


def lengthy(action: Action) -> Work | None:
    """The part of an action that may have minutes: it copies a database, runs an extension's script, or goes through
    all that somebody owns. It locks nothing that all databases of the server have in common."""
    match action:
        case CreateDatabase() | CreateExtension() | UpdateExtension():
            return work(action)
        case Reassign(heir=str()):
            todo = work(action)
            return replace(todo, statements=todo.statements[:1])
        case _:
            return None


_UNLESS_OWNING = """
BEGIN
    IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN
        LOCK TABLE pg_catalog.pg_shdepend IN SHARE MODE;
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_roles r ON r.oid = l.objid AND r.rolname = {}
               WHERE l.locktype = 'object' AND l.classid = 'pg_catalog.pg_authid'::pg_catalog.regclass
                 AND l.pid IS DISTINCT FROM pg_catalog.pg_backend_pid()) THEN
        RAISE serialization_failure USING MESSAGE = 'something is being made for it';
    END IF;
    IF EXISTS (SELECT FROM pg_catalog.pg_shdepend u
               JOIN pg_catalog.pg_roles r ON r.oid = u.refobjid AND r.rolname = {}
               JOIN pg_catalog.pg_database d ON d.oid = u.dbid AND d.datname = pg_catalog.current_database()
               WHERE u.refclassid = 'pg_catalog.pg_authid'::pg_catalog.regclass
                 AND u.deptype = 'o' AND u.classid NOT IN ('pg_catalog.pg_default_acl'::pg_catalog.regclass,
                                                           'pg_catalog.pg_user_mapping'::pg_catalog.regclass)) THEN
        RAISE serialization_failure USING MESSAGE = 'it has come to own something there';
    END IF;
END
"""


def _unless_owning(name: str) -> sql.Composed:
    """DROP OWNED drops what is owned: who made something since the survey, or since REASSIGN, is looked at again.

    What it granted in advance, and who it is on foreign servers, nobody is given: that is to be dropped.

    Others who may act as the role may still be at it. Whoever makes something for a role writes that down in
    `pg_shdepend` and has a lock on the role until it commits: so nobody begins to, and nobody has begun. Only a
    superuser can keep them from beginning.
    """
    return _sql("DO {}", sql.Literal(_sql(_UNLESS_OWNING, sql.Literal(name), sql.Literal(name)).as_string()))


@work.register
def _(action: EndSessions) -> Work:
    return Work(f"ending the sessions of {action.name}", _ended(action.name), elevated=True)


@work.register
def _(action: DropUser) -> Work:
    statements = (*_ended(action.name), _sql("DROP ROLE {}", Name(action.name)))
    return Work(f"dropping user {action.name}", statements)


def _ended(name: str) -> tuple[sql.Composed, ...]:
    """As the role itself, which may end its own. They are waited for: one that is committing gets that far."""
    ended = "SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity WHERE usename = {}"
    return _sql("SET LOCAL ROLE {}", Name(name)), _sql(ended, sql.Literal(name)), _sql("RESET ROLE")


@work.register
def _(action: DropDatabase) -> Work:
    statement = _sql("DROP DATABASE {} WITH (FORCE)", Name(action.name))
    # The owner may end no sessions but its own.
    first = _sql(_LEFT, sql.Literal(action.name))
    return Work(f"dropping database {action.name}", (statement,), elevated=True, owned=action.name, first=first)


_LEFT = """
    SELECT pg_catalog.pg_terminate_backend(pid, 5000) FROM pg_catalog.pg_stat_activity
    WHERE datname = {} AND pg_catalog.pg_has_role(usesysid, 'USAGE')
"""
