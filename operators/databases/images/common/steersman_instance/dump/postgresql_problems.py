"""Problems of an import of PostgreSQL: rights, versions, extensions and encoding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .import_problem import ImportProblem, amount
from .postgresql_client import PostgreSQLClient, ServerState
from .source import FIELD

_NOT_OF_EXTENSION = (
    "NOT EXISTS (SELECT FROM pg_depend d"
    " WHERE d.classid = '{0}'::regclass AND d.objid = {1}.oid AND d.deptype IN ('e', 'i'))"
)
_FIRST_OWN_OID = 16384


def _own(catalog: str, alias: str) -> str:
    """Condition of objects that neither the server nor an extension owns."""
    return f"{alias}.oid >= {_FIRST_OWN_OID} AND {_NOT_OF_EXTENSION.format(catalog, alias)}"


# pg_dump reads tables, sequences and large objects, and the definitions of all other objects.
_SOURCE = f"""
WITH own AS (
    SELECT n.oid AS schema, c.oid, c.relkind, format('%I.%I', n.nspname, c.relname) AS name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname !~ '^pg_(toast|temp)'
        AND c.relkind IN ('r', 'p', 'S') AND {_NOT_OF_EXTENSION.format("pg_class", "c")}),
restricted (name) AS (
    SELECT 'function ' || p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
    WHERE NOT l.lanpltrusted AND {_own("pg_proc", "p")}
        AND NOT EXISTS (SELECT FROM pg_aggregate a WHERE a.aggfnoid = p.oid)
    UNION ALL SELECT 'language ' || lanname FROM pg_language l WHERE {_own("pg_language", "l")}
    UNION ALL SELECT 'foreign-data wrapper ' || fdwname FROM pg_foreign_data_wrapper f
        WHERE {_own("pg_foreign_data_wrapper", "f")}
    UNION ALL SELECT 'operator class ' || opcname FROM pg_opclass o WHERE {_own("pg_opclass", "o")}
    UNION ALL SELECT 'text search parser ' || prsname FROM pg_ts_parser t WHERE {_own("pg_ts_parser", "t")}
    UNION ALL SELECT 'text search template ' || tmplname FROM pg_ts_template t
        WHERE {_own("pg_ts_template", "t")})
SELECT json_build_object(
    'encoding', getdatabaseencoding(),
    'extensions', (SELECT coalesce(json_agg(extname ORDER BY extname), '[]') FROM pg_extension),
    'denied', (
        SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM own
        WHERE NOT has_schema_privilege(schema, 'USAGE')
            OR NOT CASE relkind WHEN 'S' THEN has_sequence_privilege(oid, 'SELECT')
                ELSE has_table_privilege(oid, 'SELECT') END),
    'filtered', (
        SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM own
        WHERE relkind <> 'S' AND row_security_active(oid)),
    'large_objects', (
        SELECT coalesce(json_agg(m.oid::text ORDER BY m.oid), '[]') FROM pg_largeobject_metadata m
        WHERE NOT pg_has_role(m.lomowner, 'USAGE') AND NOT EXISTS (
            SELECT FROM aclexplode(m.lomacl) a WHERE a.privilege_type = 'SELECT'
                AND CASE a.grantee WHEN 0 THEN true ELSE pg_has_role(a.grantee, 'USAGE') END)),
    'restricted', (SELECT coalesce(json_agg(name ORDER BY name), '[]') FROM restricted))
"""  # noqa: S608 - constants
# Owners of a database can create trusted extensions.
_TARGET = """
SELECT json_build_object(
    'encoding', getdatabaseencoding(),
    'present', (SELECT coalesce(json_agg(extname), '[]') FROM pg_extension),
    'available', (SELECT coalesce(json_agg(name), '[]') FROM pg_available_extensions),
    'creatable', (
        SELECT coalesce(json_agg(DISTINCT name), '[]') FROM pg_available_extension_versions
        WHERE trusted OR NOT superuser))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSQLContent:
    """Content of a source that limits an import.

    Args:
        denied: tables and sequences that the account cannot read.
        filtered: tables with rows that row-level security hides.
        large_objects: those that the account cannot read.
        restricted: objects that only superusers create.
    """

    state: ServerState
    encoding: str
    extensions: Sequence[str] = ()
    denied: Sequence[str] = ()
    filtered: Sequence[str] = ()
    large_objects: Sequence[str] = ()
    restricted: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSQLTarget:
    """The new server and its database.

    Args:
        newest: major version of pg_dump.
        present: extensions that exist, or that the operator creates.
        available: extensions of the server.
        creatable: extensions that the owner of a database can create.
    """

    major: int
    version: str
    newest: int
    encoding: str
    present: frozenset[str]
    available: frozenset[str]
    creatable: frozenset[str]


def read_content(client: PostgreSQLClient) -> PostgreSQLContent:
    """Read the source. Raises ClientFailed."""
    state, found = client.state(), client.document(_SOURCE)
    return PostgreSQLContent(state=state, **found)


def read_target(client: PostgreSQLClient) -> PostgreSQLTarget:
    """Read the new server as the owner of the database. Raises ClientFailed."""
    state, found = client.state(), client.document(_TARGET)
    names: Mapping[str, frozenset[str]] = {
        name: frozenset(map(str, found[name])) for name in ("present", "available", "creatable")
    }
    return PostgreSQLTarget(
        major=state.major,
        version=state.version,
        newest=client.program_major(),
        encoding=str(found["encoding"]),
        **names,
    )


def problems_of(name: str, user: str, found: PostgreSQLContent, target: PostgreSQLTarget) -> Iterator[ImportProblem]:
    """Yield the problems of an import.

    Args:
        name: of the source, such as `Database shop of db.example.com`.
        user: account of the source.
    """
    yield from _version_problems(name, found.state, target)
    yield from _right_problems(name, user, found)
    yield from _extension_problems(name, found.extensions, target)
    yield from _encoding_problems(name, found.encoding, target.encoding)
    if found.restricted:
        yield ImportProblem(
            "SuperuserRequired",
            f"{name} has {amount(found.restricted, 'objects')} which only a superuser can create. Drop"
            " them on the source.",
            found.restricted,
        )


def _version_problems(name: str, state: ServerState, target: PostgreSQLTarget) -> Iterator[ImportProblem]:
    if state.major > target.newest:
        yield ImportProblem(
            "UnsupportedVersion",
            f"{name} is of PostgreSQL {state.version}, which pg_dump {target.newest} cannot dump. Upgrade the"
            " operator.",
        )
    elif state.major > target.major:
        yield newer_source(name, state.version, target.version)


def newer_source(name: str, version: str, target: str) -> ImportProblem:
    """Return the problem of a source that is newer than the server."""
    return ImportProblem(
        "SourceMismatch", f"{name} is of PostgreSQL {version}, and the server has {target}. Use a newer server."
    )


def _right_problems(name: str, user: str, found: PostgreSQLContent) -> Iterator[ImportProblem]:
    account = f"{user} of {FIELD}.credentials"
    if found.denied:
        yield ImportProblem(
            "RightsMissing",
            f"User {account} cannot read {amount(found.denied, 'tables or sequences')} of {name}. Grant it USAGE on"
            " the schemas and SELECT on the tables and sequences, or the role pg_read_all_data.",
            found.denied,
        )
    if found.filtered:
        yield ImportProblem(
            "RightsMissing",
            f"Row-level security hides rows of {amount(found.filtered, 'tables')} of {name} from user {account}. Use"
            " the owner of the tables or a user with BYPASSRLS.",
            found.filtered,
        )
    if found.large_objects:
        yield ImportProblem(
            "RightsMissing",
            f"User {account} cannot read {len(found.large_objects)} large objects of {name}. Grant it SELECT on them,"
            " or use their owner.",
            found.large_objects,
        )


def _extension_problems(name: str, extensions: Sequence[str], target: PostgreSQLTarget) -> Iterator[ImportProblem]:
    missing = [each for each in extensions if each not in target.present]
    unavailable = [each for each in missing if each not in target.available]
    if unavailable:
        yield ImportProblem(
            "ExtensionUnavailable",
            f"{name} has extension {', '.join(unavailable)}, which the new server does not offer. Drop it on the"
            " source, or use a server with it.",
            unavailable,
        )
    undeclared = [each for each in missing if each not in target.creatable and each not in unavailable]
    if undeclared:
        yield ImportProblem(
            "ExtensionMissing",
            f"{name} has extension {', '.join(undeclared)}, which only an administrator can create. Declare it in"
            " spec.extensions.",
            undeclared,
        )


def _encoding_problems(name: str, source: str, target: str) -> Iterator[ImportProblem]:
    """Reject an encoding whose characters the target may lack."""
    if source == target or (target == "UTF8" and source != "SQL_ASCII"):
        return
    yield ImportProblem(
        "EncodingMismatch",
        f"{name} has encoding {source}, and the new database has {target}. Create a new Database with spec.encoding"
        f" {source}{'' if source == 'SQL_ASCII' else ' or UTF8'}.",
    )
