"""Each field of a spec needs a right of its user, or none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import BackupStore, Database, DatabaseUser, MySQLCluster, PostgreSQLCluster
from steersman_databases.api.cluster_common import AdditionalService, ServiceSettings, ServicesSettings
from steersman_databases.api.postgresql_cluster import PostgreSQLClusterSpec
from steersman_databases.webhooks.field_rights import (
    CREATE_SERVICES,
    DELETE_POLICIES,
    DELETE_VOLUMES,
    FIELD_RIGHTS,
    UNPRIVILEGED_FIELDS,
    UNPRIVILEGED_SUBFIELDS,
    FieldRight,
    privileged_values,
)
from steersman_manifests.crd import definition

KINDS = (PostgreSQLCluster, MySQLCluster, Database, DatabaseUser, BackupStore)


def leaves(schema: dict[str, Any], path: str) -> Iterator[str]:
    values = schema.get("additionalProperties")
    if "properties" in schema:
        for name, field in schema["properties"].items():
            yield from leaves(field, f"{path}.{name}")
    elif schema.get("type") == "array":
        yield from leaves(schema["items"], f"{path}[]")
    elif isinstance(values, dict):
        yield path
    else:
        yield path


def all_leaves() -> set[str]:
    found: set[str] = set()
    for kind in KINDS:
        schema: Any = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        found |= set(leaves(schema["properties"]["spec"], "spec"))
    return found


def is_within(leaf: str, field: str) -> bool:
    return leaf == field or leaf.startswith((f"{field}.", f"{field}["))


def test_each_field_is_in_a_table() -> None:
    leaf_paths = all_leaves()
    top = {re.split(r"[.\[]", path)[1] for path in leaf_paths}
    privileged = {re.split(r"[.\[]", path)[1] for path in FIELD_RIGHTS}
    assert top - privileged - set(UNPRIVILEGED_FIELDS) == set()
    assert set(UNPRIVILEGED_FIELDS) - top == set()
    mixed = [leaf for leaf in leaf_paths if re.split(r"[.\[]", leaf)[1] in privileged & set(UNPRIVILEGED_FIELDS)]
    tables = (*FIELD_RIGHTS, *UNPRIVILEGED_SUBFIELDS)
    assert [leaf for leaf in mixed if not any(is_within(leaf, field) for field in tables)] == []
    assert [field for field in UNPRIVILEGED_SUBFIELDS if not any(is_within(leaf, field) for leaf in mixed)] == []
    for field in FIELD_RIGHTS:
        assert any(is_within(leaf, field) for leaf in leaf_paths), field


def cluster(**spec: Any) -> PostgreSQLCluster:
    return PostgreSQLCluster(metadata=ObjectMeta(name="a", namespace="shop"), spec=PostgreSQLClusterSpec(**spec))


PUBLIC = ServiceSettings(type="LoadBalancer")


@pytest.mark.parametrize(
    ("spec", "field", "right"),
    [
        (
            {"services": ServicesSettings(rw=ServiceSettings(type="NodePort"))},
            "spec.services.rw.type",
            CREATE_SERVICES,
        ),
        (
            {"services": ServicesSettings(additional=(AdditionalService(name="payments", role="rw"),))},
            "spec.services.additional[payments].name",
            CREATE_SERVICES,
        ),
        ({"network_policy": "None"}, "spec.networkPolicy", DELETE_POLICIES),
        ({"deletion_policy": "Delete"}, "spec.deletionPolicy", DELETE_VOLUMES),
    ],
)
def test_privileged_field_needs_right(spec: dict[str, Any], field: str, right: FieldRight) -> None:
    values = privileged_values(cluster(**spec), cluster())
    assert {name: found for name, (value, found) in values.items() if value is not None} == {field: right}
    assert all(value is None for value, _ in privileged_values(cluster(), None).values())


def test_wider_source_ranges_need_right() -> None:
    limited = ServiceSettings(type="LoadBalancer", load_balancer_source_ranges=("10.0.0.0/8",))
    name = "spec.services.rw.loadBalancerSourceRanges"
    before = privileged_values(cluster(services=ServicesSettings(rw=limited)), None)
    after = privileged_values(cluster(services=ServicesSettings(rw=PUBLIC)), None)
    assert before[name] == ("10.0.0.0/8", CREATE_SERVICES)
    assert after[name] == ("all addresses", CREATE_SERVICES)


def test_deletion_policy_of_new_object_needs_no_right() -> None:
    assert "spec.deletionPolicy" not in privileged_values(cluster(deletion_policy="Delete"), None)


@pytest.mark.parametrize(
    ("spec", "needs"),
    [({"engine": "postgresql"}, True), ({"clusterRef": {"name": "main"}}, False)],
)
def test_deletion_of_database_without_volumes_needs_no_right(spec: dict[str, Any], needs: bool) -> None:
    manifest = {"metadata": {"name": "orders"}, "spec": {**spec, "deletionPolicy": "Delete"}}
    database = decode_builtins(manifest, Database)
    assert ("spec.deletionPolicy" in privileged_values(database, database)) == needs
