"""Privileges of a source's accounts, grouped as in a ``DatabaseUser``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

MAX_ACCOUNTS = 200
MAX_GRANTS = 64
"""Grants of a ``DatabaseUser``."""
MAX_OBJECTS = 64
"""Objects of a grant."""
MAX_ROWS = 20_000
"""Privileges that are read of all accounts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPrivileges:
    """Privileges of one account on one object.

    Args:
        kind: database, schema, table, sequence or function.
        schema: of PostgreSQL.
        column: of the table, if the privileges are on a column.
        option: with grant option.
    """

    kind: str
    privileges: Sequence[str]
    schema: str = ""
    name: str = ""
    column: str = ""
    option: bool = False


def grouped(found: Iterable[ObjectPrivileges]) -> list[dict[str, Any]]:
    """Return grants that each have all objects with the same privileges."""
    # Of columns of one table, those with the same privileges. Of tables, those with the same privileges and columns.
    columns: dict[tuple[str, str, str, bool, tuple[str, ...]], set[str]] = {}
    for each in found:
        key = (each.kind, each.schema, each.name, each.option, tuple(sorted(each.privileges)))
        columns.setdefault(key, set()).update([each.column] if each.column else [])
    objects: dict[tuple[str, str, bool, tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for (kind, schema, name, option, privileges), named in columns.items():
        objects.setdefault((kind, schema, option, privileges, tuple(sorted(named))), []).append(name)
    return [
        {
            "kind": kind,
            "schema": schema,
            "objects": sorted(names)[start : start + MAX_OBJECTS],
            "columns": list(named),
            "privileges": list(privileges),
            "option": option,
        }
        for (kind, schema, option, privileges, named), names in sorted(objects.items())
        for start in range(0, len(names), MAX_OBJECTS)
    ]


def grants_document(found: Iterable[ObjectPrivileges]) -> dict[str, object]:
    """Return the grants that fit a ``DatabaseUser``, and the number of others."""
    grants = grouped(found)
    fitting = [each for each in grants if len(each["columns"]) <= MAX_OBJECTS][:MAX_GRANTS]
    return {"grants": fitting, "omittedGrants": len(grants) - len(fitting)}
