"""Conformance cases for the in-memory API server and the real one.

A case is an async function of an ``Api`` with its own namespace. Unit tests run the cases in memory, and integration
tests run them on a real kube-apiserver. ``tests/conformance.md`` lists them with the documents that they come from.
"""

from apiserver_cases import (
    access_escalation,
    access_reviews,
    access_roles,
    access_streams,
    admission_decoding,
    admission_requests,
    admission_responses,
    apply,
    bodies,
    bulk,
    conversions,
    costs,
    creates,
    custom,
    decoding,
    definitions,
    deletion,
    discovery,
    dry_runs,
    entries,
    events,
    expressions,
    lists,
    metadata,
    names,
    namespaces,
    noops,
    objects,
    ownership,
    parameters,
    patches,
    reading,
    reviews,
    rules,
    schemas,
    statuses,
    subresource_bodies,
    subresources,
    tables,
    updates,
    versions,
    watches,
    workloads,
)
from apiserver_cases.api import BASE_CRDS, Api, Case
from apiserver_cases.gaps import KNOWN_DIFFERENCES, NOT_IMPLEMENTED

_MODULES = (
    creates,
    updates,
    names,
    decoding,
    bodies,
    parameters,
    reading,
    lists,
    patches,
    apply,
    ownership,
    entries,
    dry_runs,
    deletion,
    bulk,
    noops,
    statuses,
    watches,
    metadata,
    custom,
    schemas,
    rules,
    expressions,
    tables,
    costs,
    definitions,
    versions,
    conversions,
    subresources,
    subresource_bodies,
    namespaces,
    workloads,
    objects,
    events,
    reviews,
    access_roles,
    access_escalation,
    access_reviews,
    access_streams,
    admission_requests,
    admission_responses,
    admission_decoding,
    discovery,
)

CASES: dict[str, Case] = {
    f"{module.__name__.rpartition('.')[2]}-{name.removeprefix('case_')}": function
    for module in _MODULES
    for name, function in vars(module).items()
    if name.startswith("case_")
}

CRDS = [*BASE_CRDS, rules.CRD, schemas.CRD, subresources.CRD, versions.CRD, expressions.CRD, tables.CRD]

__all__ = ["CASES", "CRDS", "KNOWN_DIFFERENCES", "NOT_IMPLEMENTED", "Api", "Case"]
