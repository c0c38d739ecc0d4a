"""Scenario 18: every field of a cluster's spec is set, changed and removed, and what it is about follows.

The definition on the API server says which fields there are: one without a case here fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from database_support.e2e.cluster import ClusterUnderTest, NamespaceClient
from database_support.e2e.engines import EACH_ENGINE, MYSQL, POSTGRESQL, EngineCommands
from database_support.fields import mysql_cluster, postgresql_cluster
from database_support.fields.cluster import OTHER_NAMESPACE, FieldCases, known_fields, nested, stage, wait_for_stage
from devcluster.errors import CommandFailed
from devcluster.images import tag
from devcluster.target import Target
from framework_support.certificates import CertificateAuthority

pytestmark = [pytest.mark.xdist_group("cluster-fields"), pytest.mark.timeout(1700), EACH_ENGINE]

FIELDS: Mapping[EngineCommands, FieldCases] = {POSTGRESQL: postgresql_cluster.FIELDS, MYSQL: mysql_cluster.FIELDS}


@pytest.fixture(scope="module")
def its(of: EngineCommands) -> FieldCases:
    """The fields of the engine's kind."""
    return FIELDS[of]


@pytest.fixture(scope="module")
def known(cluster: Target, of: EngineCommands) -> set[str]:
    """The paths of all fields that the API server knows."""
    return known_fields(cluster, of.kind)


@pytest.fixture(scope="module")
def orders(shared: NamespaceClient, of: EngineCommands, its: FieldCases) -> Iterator[ClusterUnderTest]:
    """A cluster with all first values."""
    target, authority = shared.target, CertificateAuthority()
    tag(its.cases["image"].first, its.other_image)
    given = {
        f"given-{name}": authority.issue("orders", names=[f"*.{shared.namespace}.svc", f"{name}.example.com"])
        for name in ("one", "two")
    }
    shared.create(
        *(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": name},
                "type": "kubernetes.io/tls",
                "stringData": {
                    "tls.crt": pair[0].decode(),
                    "tls.key": pair[1].decode(),
                    "ca.crt": authority.certificate.decode(),
                },
            }
            for name, pair in given.items()
        ),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "owner"},
            "type": "kubernetes.io/basic-auth",
            "stringData": {"username": "keeper", "password": "kept for itself"},
        },
        *(
            {"apiVersion": "v1", "kind": kind, "metadata": {"name": "sql"}, field: data}
            for kind, field, data in (
                ("Secret", "stringData", {"a": its.sql[0]}),
                ("ConfigMap", "data", {"b": its.sql[1]}),
            )
        ),
        *(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
            for name in ("e2e-fields-one", "e2e-fields-two")
        ),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": OTHER_NAMESPACE}},
    )
    made = ClusterUnderTest(shared, spec={}, engine=of)
    made.apply(**stage(its.cases, its.final, 0))
    there = {"kind": of.kind, "name": "orders", "namespace": shared.namespace}
    NamespaceClient(target, OTHER_NAMESPACE).apply(
        "Database", "guest", {"clusterRef": there, "deletionPolicy": "Delete"}
    )
    made.wait_ready(2, seconds=400)
    yield made
    target.kubectl("delete", "namespace", OTHER_NAMESPACE, "--timeout=120s", seconds=130)
    target.kubectl("delete", "priorityclass", "e2e-fields-one", "e2e-fields-two")


LOOKING = 400.0
"""Seconds: a look is some sixty calls of kubectl."""


def test_fields_all_have_a_case(known: set[str], its: FieldCases) -> None:
    assert known == {*its.cases, *its.final}


@pytest.mark.requirement("overview/level-1-parameters")
def test_fields_set_take_effect(orders: ClusterUnderTest, its: FieldCases) -> None:
    wait_for_stage(orders, its.cases, 0, LOOKING)


def test_bootstrap_fields_take_effect(orders: ClusterUnderTest, its: FieldCases) -> None:
    statement, answer = its.bootstrap_query
    assert orders.sql(statement) == answer
    orders.wait_reason("Applied", "PostInitSQLApplied")
    assert orders.sql("SELECT who FROM made", "shop") == "keeper"
    assert orders.namespace_client.secret("orders-app")["password"] == "kept for itself"
    claims = orders.namespace_client.all("pvc")
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"limited"}


ANOTHER = {"encoding": "UTF8", "localeProvider": "icu", "locale": "de", "walSegmentSize": 16}
"""Values that nothing else is wrong with; other texts may be any."""


def test_bootstrap_fields_are_immutable(orders: ClusterUnderTest, its: FieldCases) -> None:
    for path, value in its.final.items():
        other = f"{value}x" if isinstance(value, str) else [{"name": "x", "key": "x"}]
        other = ANOTHER.get(path.rpartition(".")[2], other)
        for change in (nested({path: other}), nested({path: None})):
            with pytest.raises(CommandFailed, match=r"immutable|cannot be added or removed|Required value"):
                orders.namespace_client.patch(orders.kind, "orders", {"spec": change})


def test_storage_size_cannot_shrink(orders: ClusterUnderTest, its: FieldCases) -> None:
    for path in its.cases.keys() & {"storage.size", "walStorage.size"}:
        with pytest.raises(CommandFailed, match="volumes never shrink"):
            orders.namespace_client.patch(orders.kind, "orders", {"spec": nested({path: "299Mi"})})


@pytest.mark.requirement("overview/level-2-versions")
def test_version_downgrade_is_rejected(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="version"):
        orders.namespace_client.patch(orders.kind, "orders", {"spec": {"version": "15"}})


@pytest.mark.requirement("overview/level-1-parameters")
def test_fields_changed_take_effect(orders: ClusterUnderTest, its: FieldCases) -> None:
    orders.spec = {}
    orders.apply(**stage(its.cases, its.final, 1))
    orders.wait_ready(3, seconds=500)
    wait_for_stage(orders, its.cases, 1, LOOKING)


@pytest.mark.parametrize("name", ["ro", "r"])
def test_service_disabled_is_deleted(orders: ClusterUnderTest, name: str) -> None:
    orders.namespace_client.patch(orders.kind, "orders", {"spec": {"services": {name: {"enabled": False}}}})
    orders.until("it is gone", lambda: not orders.namespace_client.get("service", f"orders-{name}"), 60)
    orders.namespace_client.patch(orders.kind, "orders", {"spec": {"services": {name: {"enabled": None}}}})
    orders.until("it is back", lambda: orders.namespace_client.get("service", f"orders-{name}"), 60)


def test_rw_service_cannot_be_disabled(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="always there"):
        orders.namespace_client.patch(orders.kind, "orders", {"spec": {"services": {"rw": {"enabled": False}}}})


def test_unknown_extended_resource_reports_api_error(orders: ClusterUnderTest, its: FieldCases) -> None:
    for path in (path for path in its.cases if path.endswith("resources.claims")):
        orders.namespace_client.patch(orders.kind, "orders", {"spec": nested({path: [{"name": "gpu"}]})})
        condition = orders.wait_reason("Invalid")
        assert "gpu" in condition["message"]
        orders.namespace_client.patch(orders.kind, "orders", {"spec": nested({path: None})})
        orders.wait_ready(3)


def test_fields_removed_return_to_defaults(orders: ClusterUnderTest, its: FieldCases) -> None:
    orders.spec = {}
    orders.apply(**stage(its.cases, its.final, 2))
    orders.wait_ready(3, seconds=500)
    wait_for_stage(orders, its.cases, 2, LOOKING)
    assert orders.found["spec"].keys().isdisjoint({"pooler", "affinity", "image", "resources", "priorityClassName"})
