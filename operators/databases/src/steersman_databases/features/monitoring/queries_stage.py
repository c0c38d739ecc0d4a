"""Ensures the exporter's file of user queries, and reports invalid ones."""

from __future__ import annotations

from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.meta import ObjectKey
from steersman_databases.api.references import KeySelector
from steersman_databases.cluster.status.conditions import ConditionSet
from steersman_databases.core.cached_reads import get_live
from steersman_databases.core.context import ClusterContext
from steersman_databases.core.labels import cluster_labels
from steersman_databases.features.monitoring.queries import (
    ParsedQueries,
    exporter_file,
    merge_queries,
    parse_queries,
)

CONDITION = "QueriesValid"
FILE_NAME = "queries.json"
_SHOWN_PROBLEMS = 3


async def ensure_queries(
    context: ClusterContext, references: tuple[KeySelector, ...], conditions: ConditionSet
) -> None:
    """Apply the ConfigMap of valid queries, or delete it without any.

    The kubelet updates the file in the pods within about a minute.

    Args:
        references: keys of ConfigMaps in the cluster's namespace.
    """
    key = context.declared.names.queries
    if not references:
        conditions.remove(CONDITION)
        with context.deferred:
            await context.delete_if_controlled(ConfigMap, key)
        return
    has_databases = context.declared.engine == "postgresql"
    sources: list[tuple[str, ParsedQueries]] = []
    missing: list[str] = []
    for reference in references:
        found = await get_live(context.client, ConfigMap, ObjectKey(key.namespace, reference.name))
        if found is None:
            missing.append(f"ConfigMap {reference.name}")
        elif reference.key not in found.data:
            missing.append(f"key {reference.key} in ConfigMap {reference.name}")
        else:
            parsed = parse_queries(found.data[reference.key], has_databases=has_databases)
            sources.append((f"{reference.name}/{reference.key}", parsed))
    merged = merge_queries(sources)
    with context.deferred:
        await context.apply(
            ConfigMap,
            core.ConfigMap(
                metadata=meta.ObjectMeta(
                    name=key.name, namespace=key.namespace, labels=cluster_labels(context.declared)
                ),
                data={FILE_NAME: exporter_file(merged.queries)},
            ),
        )
        _report(merged, missing, conditions)


def _report(merged: ParsedQueries, missing: list[str], conditions: ConditionSet) -> None:
    if missing:
        conditions.set(CONDITION, False, "ConfigMapNotFound", f"missing: {', '.join(dict.fromkeys(missing))}")
    elif merged.problems:
        shown = "; ".join(merged.problems[:_SHOWN_PROBLEMS])
        others = len(merged.problems) - _SHOWN_PROBLEMS
        more = f"; and {others} more" if others > 0 else ""
        conditions.set(CONDITION, False, "QueryInvalid", f"{shown}{more}")
    else:
        conditions.set(CONDITION, True, "Valid", f"queries that the instances run: {len(merged.queries)}")
