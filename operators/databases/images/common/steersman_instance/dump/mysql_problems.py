"""Problems of an import of MySQL: rights, versions and storage engines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .import_problem import ImportProblem, amount
from .mysql_client import MARKER, MysqlClient, is_mariadb, version_number
from .source import FIELD

# Without them, mysqldump omits objects silently.
_REQUIRED = ("SELECT", "SHOW VIEW", "TRIGGER", "EVENT", "EXECUTE")
_HOST = "SUBSTRING_INDEX(CURRENT_USER(), '@', -1)"
_USER = f"LEFT(CURRENT_USER(), CHAR_LENGTH(CURRENT_USER()) - CHAR_LENGTH({_HOST}) - 1)"
# A grant on databases has a pattern.
_PRIVILEGES = f"""
SELECT JSON_ARRAY(PRIVILEGE_TYPE) FROM (
    SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES
    UNION SELECT GRANTEE, PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE DATABASE() LIKE TABLE_SCHEMA
) found WHERE GRANTEE = CONCAT('''', {_USER}, '''@''', {_HOST}, '''')
"""  # noqa: S608 - a constant
_HIDDEN_ROUTINES = """
SELECT JSON_ARRAY(ROUTINE_NAME) FROM information_schema.ROUTINES
WHERE ROUTINE_SCHEMA = DATABASE() AND ROUTINE_DEFINITION IS NULL ORDER BY 1
"""
_OTHER_ENGINES = """
SELECT JSON_ARRAY(TABLE_NAME, ENGINE) FROM information_schema.TABLES
WHERE TABLE_SCHEMA = DATABASE() AND TABLE_TYPE = 'BASE TABLE' AND ENGINE <> 'InnoDB' ORDER BY 1
"""
_GROUP = """
SELECT JSON_ARRAY(COUNT(*)) FROM information_schema.PLUGINS
WHERE PLUGIN_NAME = 'group_replication' AND PLUGIN_STATUS = 'ACTIVE'
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlContent:
    """Content of a source that limits an import.

    Args:
        missing: privileges that the account lacks on the whole database.
        hidden: routines whose text the account cannot read.
        other_engines: tables, each with its storage engine, except InnoDB.
        is_unfinished: True if a restore into the source has not ended.
    """

    version: str
    missing: Sequence[str] = ()
    hidden: Sequence[str] = ()
    other_engines: Sequence[str] = ()
    is_unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlTarget:
    """The new server.

    Args:
        is_group: True with Group Replication, which writes InnoDB tables only.
    """

    version: str
    is_group: bool = False


def read_content(client: MysqlClient) -> MysqlContent:
    """Read the source. Raises ClientFailed."""
    version = client.version()
    privileges = {str(name) for (name,) in client.rows(_PRIVILEGES)}
    return MysqlContent(
        version=version,
        missing=[each for each in _REQUIRED if each not in privileges],
        hidden=[str(name) for (name,) in client.rows(_HIDDEN_ROUTINES)],
        other_engines=[f"{table} ({engine})" for table, engine in client.rows(_OTHER_ENGINES)],
        is_unfinished=MARKER in client.objects(),
    )


def read_target(client: MysqlClient) -> MysqlTarget:
    """Read the new server. Raises ClientFailed."""
    ((members,),) = client.rows(_GROUP)
    return MysqlTarget(version=client.version(), is_group=bool(members))


def problems_of(name: str, user: str, found: MysqlContent, target: MysqlTarget) -> Iterator[ImportProblem]:
    """Yield the problems of an import.

    Args:
        name: of the source, such as `Database shop of db.example.com`.
        user: account of the source.
    """
    account = f"User {user} of {FIELD}.credentials"
    if found.missing:
        yield ImportProblem(
            "RightsMissing",
            f"{account} lacks {', '.join(found.missing)} on {name}. Grant them on the whole database,"
            " without a role.",
        )
    if found.hidden:
        yield ImportProblem(
            "RightsMissing",
            f"{account} cannot read the text of routine {found.hidden[0]} of {name}. Grant it SHOW_ROUTINE, on"
            " MariaDB and MySQL 5.7 SELECT on mysql.proc.",
            found.hidden,
        )
    if found.is_unfinished:
        yield ImportProblem(
            "SourceMismatch",
            f"{name} has table {MARKER}, so a restore into it is not complete. Complete it, or drop the table.",
        )
    yield from version_problems(name, found.version, target.version)
    if target.is_group and found.other_engines:
        yield ImportProblem(
            "StorageEngine",
            f"{name} has {amount(found.other_engines, 'tables without InnoDB')} and Group Replication writes InnoDB"
            " tables only. Run ALTER TABLE … ENGINE=InnoDB on the source.",
            found.other_engines,
        )


def version_problems(name: str, found: str, version: str) -> Iterator[ImportProblem]:
    """Yield the problem of a newer source or another product."""
    if is_mariadb(found) is not is_mariadb(version) or version_number(found) > version_number(version):
        yield ImportProblem(
            "SourceMismatch",
            f"{name} is of version {found}, and the server has {version}. Use a server of the same product"
            " that is not older.",
        )
