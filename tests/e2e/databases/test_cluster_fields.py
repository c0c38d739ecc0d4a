"""Scenario 18: every field of a cluster's spec is set, changed and removed, and what it is about follows.

The definition on the API server says which fields there are: one without a case here fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from certificates import Authority
from cluster_fields import CASES, ELSEWHERE, FINAL, OTHER_IMAGE, Found, Object
from cluster_under_test import ClusterUnderTest, Place
from devcluster.errors import CommandFailed
from devcluster.images import POSTGRESQL, tag
from devcluster.target import Target

pytestmark = [pytest.mark.xdist_group("cluster-fields"), pytest.mark.timeout(1700)]

CRD = "postgresqlclusters.databases.steersman.dev"


def fields(schema: Object, path: str = "") -> Iterator[str]:
    """The fields of a schema, by their paths. What is Kubernetes' own is one field."""
    for name, each in schema["properties"].items():
        where = f"{path}.{name}".removeprefix(".")
        if "properties" in each and not where.startswith("affinity."):
            yield from fields(each, where)
        else:
            yield where


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """A spec of fields by their paths."""
    spec: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = path.split(".")
        inner = spec
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[name] = value
    return spec


def stage(number: int) -> dict[str, Any]:
    """The spec of a stage: all first values, all second ones, none."""
    chosen = {} if number == 2 else {path: (c.first, c.second)[number] for path, c in CASES.items()}
    return nested({**FINAL, **{path: value for path, value in chosen.items() if value is not None}})


@pytest.fixture(scope="module")
def known(cluster: Target) -> set[str]:
    """The paths of all fields that the API server knows."""
    crd = cluster.get("crd", CRD)
    assert crd is not None
    return set(fields(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]))


@pytest.fixture(scope="module")
def orders(shared: Place) -> Iterator[ClusterUnderTest]:
    """A cluster with all first values."""
    target, authority = shared.target, Authority()
    tag(POSTGRESQL.reference, OTHER_IMAGE)
    given = {
        name: authority.issue("orders", names=[f"*.{shared.namespace}.svc"]) for name in ("given-one", "given-two")
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
                ("Secret", "stringData", {"a": "CREATE TABLE made (by text)"}),
                ("ConfigMap", "data", {"b": "INSERT INTO made SELECT current_user"}),
            )
        ),
        *(
            {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7}
            for name in ("e2e-fields-one", "e2e-fields-two")
        ),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ELSEWHERE}},
    )
    made = ClusterUnderTest(shared, spec={})
    made.apply(**stage(0))
    reference = {"clusterRef": {"name": "orders", "namespace": shared.namespace}, "deletionPolicy": "Delete"}
    Place(target, ELSEWHERE).declare("Database", "guest", reference)
    made.wait_ready(2, seconds=400)
    yield made
    target.kubectl("delete", "namespace", ELSEWHERE, "--timeout=120s", seconds=130)
    target.kubectl("delete", "priorityclass", "e2e-fields-one", "e2e-fields-two")


def judge(orders: ClusterUnderTest, number: int) -> None:
    """All fields at once: what is not as it should be is named."""
    found = Found(orders)
    wrong: dict[str, str] = {}

    def look() -> bool:
        nonlocal found
        found = Found(orders)
        wrong.clear()
        for path, case in CASES.items():
            if case.look is None:
                continue
            if (seen := case.look(found)) != case.expected(number):
                wrong[path] = f"{seen!r} in place of {case.expected(number)!r}"
        return not wrong

    try:
        # A look is some sixty calls of kubectl.
        orders.until("all is as declared", look, 400)
    except Exception as error:
        error.add_note(json.dumps(wrong, indent=1))
        raise


def test_every_field_has_a_case(known: set[str]) -> None:
    assert known == {*CASES, *FINAL}


def test_set(orders: ClusterUnderTest) -> None:
    judge(orders, 0)


def test_what_is_given_once(orders: ClusterUnderTest) -> None:
    about = (
        "SELECT pg_get_userbyid(datdba), pg_encoding_to_char(encoding), datlocprovider, datcollate FROM pg_database"
    )
    assert orders.sql(f"{about} WHERE datname = 'shop'") == "keeper|LATIN9|c|C"
    assert orders.sql("SHOW wal_segment_size") == "8MB"
    orders.wait_reason("Applied", "InitialConfiguration")
    assert orders.sql("SELECT by FROM made", "shop") == "keeper"
    assert orders.place.secret("orders-app")["password"] == "kept for itself"
    claims = orders.place.all("pvc")
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"limited"}


@pytest.mark.parametrize("path", sorted(FINAL))
def test_what_is_given_once_stays(orders: ClusterUnderTest, path: str) -> None:
    value = FINAL[path]
    other = 16 if isinstance(value, int) else f"{value}x" if isinstance(value, str) else [{"name": "x", "key": "x"}]
    if path.endswith((".encoding", ".localeProvider", ".locale")):
        other = {"encoding": "UTF8", "localeProvider": "icu", "locale": "de"}[path.rpartition(".")[2]]
    for change in (nested({path: other}), nested({path: None})):
        with pytest.raises(CommandFailed, match=r"immutable|neither added nor removed|Required value"):
            orders.place.patch("pg", "orders", {"spec": change})


@pytest.mark.parametrize("path", ["storage.size", "walStorage.size"])
def test_volumes_do_not_shrink(orders: ClusterUnderTest, path: str) -> None:
    with pytest.raises(CommandFailed, match="can grow but never shrink"):
        orders.place.patch("pg", "orders", {"spec": nested({path: "299Mi"})})


def test_another_version_is_not_gone_back_to(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="version"):
        orders.place.patch("pg", "orders", {"spec": {"version": "15"}})


def test_changed(orders: ClusterUnderTest) -> None:
    orders.spec = {}
    orders.apply(**stage(1))
    orders.wait_ready(3, seconds=500)
    judge(orders, 1)


@pytest.mark.parametrize("name", ["ro", "r"])
def test_a_service_that_is_not_wanted(orders: ClusterUnderTest, name: str) -> None:
    orders.place.patch("pg", "orders", {"spec": {"services": {name: {"enabled": False}}}})
    orders.until("it is gone", lambda: not orders.place.get("service", f"orders-{name}"), 60)
    orders.place.patch("pg", "orders", {"spec": {"services": {name: {"enabled": None}}}})
    orders.until("it is back", lambda: orders.place.get("service", f"orders-{name}"), 60)


def test_the_service_of_the_primary_is_always_there(orders: ClusterUnderTest) -> None:
    with pytest.raises(CommandFailed, match="always there"):
        orders.place.patch("pg", "orders", {"spec": {"services": {"rw": {"enabled": False}}}})


@pytest.mark.parametrize("path", ["resources.claims", "pooler.resources.claims"])
def test_devices_that_no_pod_has_are_refused_in_the_api_servers_words(orders: ClusterUnderTest, path: str) -> None:
    orders.place.patch("pg", "orders", {"spec": nested({path: [{"name": "gpu"}]})})
    condition = orders.wait_reason("Invalid")
    assert "gpu" in condition["message"]
    orders.place.patch("pg", "orders", {"spec": nested({path: None})})
    orders.wait_ready(3)


def test_removed(orders: ClusterUnderTest) -> None:
    orders.spec = {}
    orders.apply(**stage(2))
    orders.wait_ready(3, seconds=500)
    judge(orders, 2)
    assert orders.found["spec"].keys().isdisjoint({"pooler", "affinity", "image", "resources", "priorityClassName"})
