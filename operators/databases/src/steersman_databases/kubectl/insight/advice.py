"""Rules about indexes and keys, from catalogs and counters of index use."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from steersman.meta import FrozenStruct
from steersman_databases.core.sizes import format_bytes

NEAR_END_PERCENT = 75
_DAY_SECONDS = 86400


class IndexFacts(FrozenStruct):
    """A valid index. All names and columns are quoted.

    Attributes:
        columns: key columns; empty text for an expression or a prefix of a column.
        signature: equal for indexes with the same definition, apart from uniqueness.
        condition: condition of a partial index.
        constraint: it belongs to a constraint or a partitioned index, and cannot be dropped alone.
        drop: SQL that removes it, or that prepares the removal.
        invisible: statements do not use it, although it is maintained.
    """

    table: str
    name: str
    columns: tuple[str, ...]
    signature: str
    unique: bool
    bytes: int
    drop: str
    constraint: bool = False
    ordered: bool = True
    invisible: bool = False
    condition: str | None = None


class ForeignKeyFacts(FrozenStruct):
    """A foreign key. `bytes` is the size of the referencing table, and `create` the SQL of an index."""

    table: str
    name: str
    columns: tuple[str, ...]
    referenced: str
    referenced_columns: tuple[str, ...] = ()
    bytes: int = 0
    create: str = ""


class NumberingFacts(FrozenStruct):
    """A sequence, or a column with AUTO_INCREMENT. `limit` is the last value that inserts can use."""

    name: str
    last: int
    limit: int
    change: str = ""
    rewrites: bool = False


class TableFacts(FrozenStruct):
    """A table without a key that identifies rows. `change` is the SQL of one."""

    name: str
    change: str


class Catalog(FrozenStruct):
    """Definitions in one database, from the primary. `is_mysql` selects the rules."""

    database: str
    indexes: tuple[IndexFacts, ...] = ()
    foreign_keys: tuple[ForeignKeyFacts, ...] = ()
    numberings: tuple[NumberingFacts, ...] = ()
    keyless: tuple[TableFacts, ...] = ()
    is_mysql: bool = False


class IndexUsage(FrozenStruct):
    """Uses of the indexes of a database that one instance has counted.

    Attributes:
        at: time of the server in seconds since 1970.
        since: begin of the count. None if the instance does not count reliably.
        scans: number by the name of the index.
    """

    database: str
    at: float
    since: float | None
    scans: Mapping[str, int]


class Advice(FrozenStruct):
    """One finding, with SQL to copy."""

    rule: str
    database: str
    object: str
    message: str
    sql: str


def advise(
    catalog: Catalog, usages: Mapping[str, IndexUsage | None], *, minimum_days: float
) -> tuple[list[Advice], str]:
    """Return findings about a database, and why unused indexes are missing.

    Args:
        usages: by instance. None for one that did not respond.
        minimum_days: shortest time that each instance must have counted the use of indexes.
    """
    duplicates = list(duplicate_indexes(catalog))
    found = [*numberings_near_end(catalog), *tables_without_key(catalog), *foreign_keys_without_index(catalog)]
    found += duplicates
    since, reason = counted_since(usages, minimum_days=minimum_days)
    if since is not None:
        known = {one.object for one in duplicates}
        found += [one for one in unused_indexes(catalog, usages, since) if one.object not in known]
    return found, reason if catalog.indexes else ""


def numberings_near_end(catalog: Catalog) -> Iterator[Advice]:
    """Yield sequences and AUTO_INCREMENT columns that run out of values."""
    for one in sorted(catalog.numberings, key=lambda one: -one.last / one.limit):
        percent = 100 * one.last // one.limit
        if percent < NEAR_END_PERCENT:
            continue
        rewrite = " The change of the column rewrites the table under an exclusive lock." if one.rewrites else ""
        yield Advice(
            rule="AutoIncrementNearEnd" if catalog.is_mysql else "SequenceNearEnd",
            database=catalog.database,
            object=one.name,
            message=f"{min(percent, 100)} % of its values are used. Inserts fail after {one.limit}.{rewrite}",
            sql=one.change,
        )


def tables_without_key(catalog: Catalog) -> Iterator[Advice]:
    """Yield tables to which a MySQL group refuses writes."""
    for one in catalog.keyless:
        message = "It has no primary key. The group refuses writes to it. The change rebuilds the table."
        yield Advice(
            rule="TableWithoutPrimaryKey",
            database=catalog.database,
            object=one.name,
            message=message,
            sql=one.change,
        )


def foreign_keys_without_index(catalog: Catalog) -> Iterator[Advice]:
    """Yield foreign keys without an index, the largest table first."""
    indexes = _by_table(catalog.indexes)
    # MySQL requires an index for each foreign key.
    keys = [] if catalog.is_mysql else sorted(catalog.foreign_keys, key=lambda one: -one.bytes)
    for key in keys:
        if any(_serves(one, key.columns) for one in indexes[key.table]):
            continue
        yield Advice(
            rule="ForeignKeyWithoutIndex",
            database=catalog.database,
            object=key.table,
            message=f"No index begins with the columns of {key.name}."
            f" A delete in {key.referenced} reads the whole table of {format_bytes(key.bytes)}.",
            sql=key.create,
        )


def duplicate_indexes(catalog: Catalog) -> Iterator[Advice]:
    """Yield indexes that another index of the table replaces, the largest first."""
    groups: defaultdict[tuple[str, str], list[IndexFacts]] = defaultdict(list)
    for one in catalog.indexes:
        groups[one.table, one.signature].append(one)
    found: list[tuple[IndexFacts, IndexFacts]] = []
    for group in groups.values():
        kept, *others = sorted(group, key=_preference)
        found += [(one, kept) for one in others if not one.constraint and one.unique <= kept.unique]
    for one, kept in sorted(found, key=lambda pair: -pair[0].bytes):
        yield Advice(
            rule="DuplicateIndex",
            database=catalog.database,
            object=one.name,
            message=f"{kept.name} has the same definition{' and is unique' * (kept.unique and not one.unique)}. It"
            f" occupies {format_bytes(one.bytes)}, and each write maintains it.",
            sql=one.drop,
        )


def unused_indexes(catalog: Catalog, usages: Mapping[str, IndexUsage | None], since: float) -> Iterator[Advice]:
    """Yield indexes that no instance has used, the largest first.

    Unique indexes and those of constraints enforce something. Those that serve a foreign key are required sooner or
    later. An index that an instance did not count is not unused.
    """
    when = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M} UTC"
    for one in sorted(catalog.indexes, key=lambda one: -one.bytes):
        if one.unique or one.constraint or _is_required(one, catalog.foreign_keys):
            continue
        if any(usage is None or usage.scans.get(one.name) != 0 for usage in usages.values()):
            continue
        yield Advice(
            rule="UnusedIndex",
            database=catalog.database,
            object=one.name,
            message=f"No instance has used it since {when}, or since its creation. It occupies"
            f" {format_bytes(one.bytes)}, and each write maintains it.",
            sql=one.drop,
        )


def counted_since(usages: Mapping[str, IndexUsage | None], *, minimum_days: float) -> tuple[float | None, str]:
    """Return since when all instances have counted, or None with the reason."""
    latest = 0.0
    for instance, usage in sorted(usages.items()):
        if usage is None:
            return None, f"{instance} did not respond"
        if usage.since is None:
            return None, f"{instance} does not count the use of indexes"
        days = (usage.at - usage.since) / _DAY_SECONDS
        if days < minimum_days:
            return None, f"{instance} has counted for {days:.1f} days, and {minimum_days:g} are required (--days)"
        latest = max(latest, usage.since)
    return (latest, "") if usages else (None, "the cluster has no instance")


def _preference(index: IndexFacts) -> tuple[bool, bool, bool, int, str]:
    """Return a key that sorts indexes with the same definition. The first one is kept."""
    return index.invisible, not index.unique, not index.constraint, len(index.name), index.name


def _by_table(indexes: Sequence[IndexFacts]) -> Mapping[str, list[IndexFacts]]:
    found: defaultdict[str, list[IndexFacts]] = defaultdict(list)
    for one in indexes:
        found[one.table].append(one)
    return found


def _serves(index: IndexFacts, columns: Sequence[str]) -> bool:
    """Return True if a lookup by these columns can use the index."""
    # A lookup for a referenced row never searches for NULL.
    partial = index.condition is not None and index.condition not in {f"({one} IS NOT NULL)" for one in columns}
    return index.ordered and not partial and set(index.columns[: len(columns)]) == set(columns)


def _is_required(index: IndexFacts, keys: Sequence[ForeignKeyFacts]) -> bool:
    """Return True if a foreign key may use the index."""
    return any(
        (index.table == key.table and _serves(index, key.columns))
        or (index.table == key.referenced and key.referenced_columns and _serves(index, key.referenced_columns))
        for key in keys
    )
