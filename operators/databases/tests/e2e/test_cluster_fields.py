"""Scenario 18: every field of a cluster's spec is set, changed and removed, and what it is about follows.

The definition on the API server says which fields there are: one without a case here fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from database_support import mysql_fields, postgresql_fields
from database_support.cluster_engines import EACH, MYSQL, POSTGRESQL, Engine
from database_support.cluster_fields import ELSEWHERE, Fields, judge, known_fields, nested, stage
from database_support.cluster_under_test import ClusterUnderTest, Place
from devcluster.errors import CommandFailed
from devcluster.images import tag
from devcluster.target import Target
from framework_support.certificates import CertificateAuthority

pytestmark = [pytest.mark.xdist_group("cluster-fields"), pytest.mark.timeout(1700), EACH]

FIELDS: Mapping[Engine, Fields] = {POSTGRESQL: postgresql_fields.FIELDS, MYSQL: mysql_fields.FIELDS}


@pytest.fixture(scope="module")
def its(of: Engine) -> Fields:
    """The fields of the engine's kind."""
    return FIELDS[of]


@pytest.fixture(scope="module")
def known(cluster: Target, of: Engine) -> set[str]:
    """The paths of all fields that the API server knows."""
    return known_fields(cluster, of.kind)


@pytest.fixture(scope="module")
def orders(shared: Place, of: Engine, its: Fields) -> Iterator[ClusterUnderTest]:
    """A cluster with all first values."""
    target, authority = shared.target, CertificateAuthority()
    tag(its.cases["image"].first, its.other_image)
    given = {
        f"given-{name}": authority.issue("orders", names=[f"*.{shared.namespace}.svc", f"{name}.example.com"])
        for name in ("one", "two")
    }
    shared.make(
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
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}},
    )
    made = ClusterUnderTest(shared, spec={}, engine=of)
    made.apply(**stage(its.cases, its.final, 0))
    there = {"kind": of.kind, "name": "orders", "namespace": shared.namespace}
    Place(target, ELSEWHERE).declare("Database", "guest", {"clusterRef": there, "deletionPolicy": "Delete"})
    made.wait_ready(2, seconds=400)
    yield made
    target.kubectl("delete", "namespace", ELSEWHERE, "--timeout=120s", seconds=130)
    target.kubectl("delete", "priorityclass", "e2e-fields-one", "e2e-fields-two")


LOOKING = 400.0
"""Seconds: a look is some sixty calls of kubectl."""


def test_every_field_has_a_case(known: set[str], its: Fields) -> None:
    assert known == {*its.cases, *its.final}


def test_set(orders: ClusterUnderTest, its: Fields) -> None:
    judge(orders, its.cases, 0, LOOKING)


def test_what_is_given_once(orders: ClusterUnderTest, its: Fields) -> None:
    statement, answer = its.given
    assert orders.sql(statement) == answer
    orders.wait_reason("Applied", "InitialConfiguration")
    assert orders.sql("SELECT who FROM made", "shop") == "keeper"
    assert orders.place.secret("orders-app")["password"] == "kept for itself"
    claims = orders.place.all("pvc")
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"limited"}


ANOTHER = {"encoding": "UTF8", "localeProvider": "icu", "locale": "de", "walSegmentSize": 16}
"""Values that nothing else is wrong with; other texts may be any."""


def test_what_is_given_once_stays(orders: ClusterUnderTest, its: Fields) -> None:
    for path, value in its.final.items():
        other = f"{value}x" if isinstance(value, str) else [{"name": "x", "key": "x"}]
        other = ANOTHER.get(path.rpartition(".")[2], other)
        for change in (nested({path: other}), nested({path: None})):
            with pytest.raises(CommandFailed, match=r"immutable|neither added nor removed|Required value"):
                orders.place.patch(orders.kind, "orders", {"spec": change})


def test_volumes_do_not_shrink(orders: ClusterUnderTest, its: Fields) -> None:
    for path in its.cases.keys() & {"storage.size", "walStorage.size"}:
        with pytest.raises(CommandFailed, match="can grow but never shrink"):
            orders.place.patch(orders.kind, "orders", {"spec": nested({path: "299Mi"})})


def test_another_version_is_not_gone_back_to(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="version"):
        orders.place.patch(orders.kind, "orders", {"spec": {"version": "15"}})


def test_changed(orders: ClusterUnderTest, its: Fields) -> None:
    orders.spec = {}
    orders.apply(**stage(its.cases, its.final, 1))
    orders.wait_ready(3, seconds=500)
    judge(orders, its.cases, 1, LOOKING)


@pytest.mark.parametrize("name", ["ro", "r"])
def test_a_service_that_is_not_wanted(orders: ClusterUnderTest, name: str) -> None:
    orders.place.patch(orders.kind, "orders", {"spec": {"services": {name: {"enabled": False}}}})
    orders.until("it is gone", lambda: not orders.place.get("service", f"orders-{name}"), 60)
    orders.place.patch(orders.kind, "orders", {"spec": {"services": {name: {"enabled": None}}}})
    orders.until("it is back", lambda: orders.place.get("service", f"orders-{name}"), 60)


def test_the_service_of_the_primary_is_always_there(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="always there"):
        orders.place.patch(orders.kind, "orders", {"spec": {"services": {"rw": {"enabled": False}}}})


def test_devices_that_no_pod_has_are_refused_in_the_api_servers_words(orders: ClusterUnderTest, its: Fields) -> None:
    for path in (path for path in its.cases if path.endswith("resources.claims")):
        orders.place.patch(orders.kind, "orders", {"spec": nested({path: [{"name": "gpu"}]})})
        condition = orders.wait_reason("Invalid")
        assert "gpu" in condition["message"]
        orders.place.patch(orders.kind, "orders", {"spec": nested({path: None})})
        orders.wait_ready(3)


def test_removed(orders: ClusterUnderTest, its: Fields) -> None:
    orders.spec = {}
    orders.apply(**stage(its.cases, its.final, 2))
    orders.wait_ready(3, seconds=500)
    judge(orders, its.cases, 2, LOOKING)
    assert orders.found["spec"].keys().isdisjoint({"pooler", "affinity", "image", "resources", "priorityClassName"})
