"""User queries: their text, and the file that the exporter reads.

Source of the format: postgres_exporter, "Adding new metrics via a config file", and CloudNativePG, "User defined
metrics".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
import yaml

from steersman_databases.engines.connection.input_limits import MAX_QUERIES, MAX_QUERIES_CHARACTERS
from steersman_databases.engines.digest_cache import cached_by_digest

_NAME = "^[a-z_][a-z0-9_]{0,62}$"

Name = Annotated[str, msgspec.Meta(pattern=_NAME)]
DatabaseName = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]


class _Column(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    usage: Literal["LABEL", "GAUGE", "COUNTER"]
    description: Annotated[str, msgspec.Meta(max_length=500)] = ""


class _Declared(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A query as users write it."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=8192)]
    metrics: Annotated[tuple[Mapping[Name, _Column], ...], msgspec.Meta(min_length=1, max_length=32)]
    target_databases: Annotated[tuple[DatabaseName, ...], msgspec.Meta(min_length=1, max_length=32)] | None = None
    primary: bool = False
    cache_seconds: Annotated[int, msgspec.Meta(ge=5, le=86400)] = 60


@dataclass(frozen=True, slots=True)
class ParsedQueries:
    """Queries for the exporter's file, and problems of others."""

    queries: Sequence[Mapping[str, Any]] = ()
    problems: Sequence[str] = ()


class _Loader(yaml.SafeLoader):
    """Without aliases: a few bytes of them can stand for gigabytes."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not supported")
        return super().compose_node(parent, index)


# Each reconcile parses the same text, and the parser is slow.
@cached_by_digest(maxsize=256)
def parse_queries(text: str, *, has_databases: bool) -> ParsedQueries:
    """Parse one key of a ConfigMap. A problem of one query does not affect others.

    Args:
        text: YAML, a mapping from the name of a query.
        has_databases: a session has one database, as in PostgreSQL.
    """
    if len(text) > MAX_QUERIES_CHARACTERS:
        return ParsedQueries(problems=[f"more than {MAX_QUERIES_CHARACTERS} characters: split it into several keys"])
    try:
        parsed: object = yaml.load(text, _Loader)  # noqa: S506 - a SafeLoader
        declared = msgspec.convert({} if parsed is None else parsed, dict[Name, Any])
    except (yaml.YAMLError, msgspec.ValidationError, ValueError) as error:
        return ParsedQueries(problems=[" ".join(str(error).split())])
    except RecursionError:
        return ParsedQueries(problems=["it is nested too deeply"])
    queries: list[Mapping[str, Any]] = []
    problems: list[str] = []
    for name, content in declared.items():
        try:
            queries.append(_for_exporter(name, msgspec.convert(content, _Declared), has_databases=has_databases))
        except ValueError as error:
            problems.append(f"query {name}: {error}")
    return ParsedQueries(queries, problems)


def _for_exporter(name: str, declared: _Declared, *, has_databases: bool) -> Mapping[str, Any]:
    """Return a query in the form of the exporter's file. Raises ValueError."""
    columns = [(column, settings) for each in declared.metrics for column, settings in each.items()]
    if len({column for column, _ in columns}) < len(columns):
        raise ValueError("metrics: a column occurs twice")
    values = [
        {"column": column, **_metric(column, settings)} for column, settings in columns if settings.usage != "LABEL"
    ]
    if not values:
        raise ValueError("metrics: no column has the usage GAUGE or COUNTER")
    if declared.target_databases is not None and not has_databases:
        raise ValueError("target_databases: it is not supported by MySQL. Qualify tables by their database instead")
    return {
        "name": name,
        "sql": declared.query,
        "labels": [column for column, settings in columns if settings.usage == "LABEL"],
        "values": values,
        "databases": list(declared.target_databases or ["postgres"]),
        "primaryOnly": declared.primary,
        "intervalSeconds": declared.cache_seconds,
    }


def _metric(column: str, settings: _Column) -> Mapping[str, str]:
    """Return kind and help of a value column. The name of a counter, and only that, ends with ``_total``."""
    kind = "counter" if settings.usage == "COUNTER" else "gauge"
    if (kind == "counter") != column.endswith("_total"):
        raise ValueError(
            f"metrics: {column}: the name of a column with the usage COUNTER, and only that, must end with _total"
        )
    return {"kind": kind, "help": settings.description or f"Column {column} of a user query."}


def merge_queries(sources: Iterable[tuple[str, ParsedQueries]]) -> ParsedQueries:
    """Return the queries of all sources. The first of several with one name counts.

    Args:
        sources: a description for messages, and the content.
    """
    queries: dict[str, Mapping[str, Any]] = {}
    problems: list[str] = []
    for source, parsed in sources:
        problems += [f"{source}: {problem}" for problem in parsed.problems]
        for query in parsed.queries:
            if query["name"] in queries:
                problems.append(f"{source}: query {query['name']}: another query has this name")
            elif len(queries) == MAX_QUERIES:
                problems.append(f"{source}: query {query['name']}: a cluster has at most {MAX_QUERIES} queries")
            else:
                queries[query["name"]] = query
    return ParsedQueries(list(queries.values()), problems)


def exporter_file(queries: Sequence[Mapping[str, Any]]) -> str:
    """Return the content of ``queries.json``."""
    return json.dumps({"queries": list(queries)}, indent=1)
