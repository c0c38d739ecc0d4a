"""Reports of two runs that differ only in random names are equal."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import pytest

from steersman_testing.simulation.state import snapshot

Object = dict[str, Any]


def pod(name: str, owner: str = "", **spec: Any) -> Object:
    prefix = name[: name.rindex("-") + 1]
    metadata: Object = {"name": name, "generateName": prefix, "namespace": "default", "uid": f"uid-{name}"}
    if owner:
        metadata["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": f"uid-{owner}"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def given(name: str, **data: Any) -> Object:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def equivalent_clusters(*names: str) -> list[Sequence[str]]:
    return list(permutations(names))


def test_generated_name_is_normalized_everywhere() -> None:
    def world(name: str) -> list[Object]:
        about = given("about", current=name, host=f"{name}.web.svc", volume=f"data-{name}-0", **{name: "up"})
        return [pod(name), pod(f"{name}-x7k2p", owner=name), about]

    assert snapshot(world("web-aaaaa")) == snapshot(world("web-zzzzz"))
    data = snapshot(world("web-aaaaa"))["ConfigMap default/about"]["data"]
    assert data == {"current": "web-*", "host": "web-*.web.svc", "volume": "data-web-*-0", "web-*": "up"}


def test_generated_name_of_deleted_object_is_normalized() -> None:
    def world(name: str) -> Any:
        return snapshot([given("about", last=name)], generated={name: "web-"})

    assert world("web-aaaaa") == world("web-zzzzz")


def test_generated_name_prefixes_are_distinguished() -> None:
    def world(name: str) -> Any:
        child = pod(f"{name}-ccccc", owner=name)
        return snapshot([pod(name), child, given(f"{name}-admin", of=f"{name}-admin")])

    assert world("job-aaaaa") == world("job-bbbbb")
    assert sorted(world("job-aaaaa")) == ["ConfigMap default/job-*-admin", "Pod default/job-*", "Pod default/job-*-*"]


def test_equal_normalized_objects_are_sorted() -> None:
    gone = {"job-aaaaa": "job-", "job-bbbbb": "job-"}

    def world(one: str, two: str) -> Any:
        return snapshot([given(f"{one}-result", worth="1"), given(f"{two}-result", worth="2")], generated=gone)

    assert sorted(world("job-aaaaa", "job-bbbbb")) == [
        "ConfigMap default/job-*-result",
        "ConfigMap default/job-*-result (2)",
    ]
    assert world("job-aaaaa", "job-bbbbb") == world("job-bbbbb", "job-aaaaa")


def test_equal_normalized_fields_are_all_compared() -> None:
    gone = {"job-aaaaa": "job-", "job-bbbbb": "job-"}

    def data(one: str, two: str) -> Any:
        found = snapshot([given("about", **{"job-aaaaa": one, "job-bbbbb": two})], generated=gone)
        return found["ConfigMap default/about"]["data"]

    assert data("1", "2") == data("2", "1") == {"job-*": ["1", "2"]}
    assert data("1", "1") != data("1", "2")


def test_chosen_name_is_not_normalized() -> None:
    chosen = pod("web-aaaaa")
    chosen["metadata"]["generateName"] = "other-"
    assert list(snapshot([chosen])) == ["Pod default/web-aaaaa"]


@pytest.mark.parametrize("names", equivalent_clusters("web-aaaaa", "web-bbbbb", "web-ccccc"))
def test_equal_names_are_numbered_by_content(names: Sequence[str]) -> None:
    one, two, three = names
    about = given("about", of=[one, two, three], second=two)
    objects = sorted([pod(one, size=1), pod(two, size=2), pod(three, size=3), about], key=str)
    expected = snapshot([pod("web-x1111", size=1), pod("web-x2222", size=2), pod("web-x3333", size=3)])
    found = dict(snapshot(objects))
    told = found.pop("ConfigMap default/about")["data"]
    assert told == {"of": ["web-*", "web-* (2)", "web-* (3)"], "second": "web-* (2)"}
    assert found == expected


@pytest.mark.parametrize("names", equivalent_clusters("web-aaaaa", "web-bbbbb", "web-ccccc"))
def test_equal_objects_are_numbered_by_references(names: Sequence[str]) -> None:
    def world(one: str, two: str, three: str) -> Any:
        helpers = [pod("helper-11111", owner=one), pod("helper-22222", owner=two), pod("helper-33333", owner=three)]
        return snapshot(sorted([pod(one), pod(two), pod(three), *helpers, given("about", leader=two)], key=str))

    assert world(*names) == world("web-xxxxx", "web-yyyyy", "web-zzzzz")


def test_different_states_stay_different() -> None:
    one = snapshot([pod("web-aaaaa"), pod("web-bbbbb", owner="web-aaaaa")])
    other = snapshot([pod("web-aaaaa"), pod("web-bbbbb")])
    assert one != other


def test_snapshot_excludes_kinds_by_group() -> None:
    def kind(api_version: str, name: str) -> Object:
        return {"apiVersion": api_version, "kind": name, "metadata": {"name": "a", "uid": f"uid-{api_version}"}}

    found = snapshot(
        [
            kind("coordination.k8s.io/v1", "Lease"),
            kind("events.k8s.io/v1", "Event"),
            kind("v1", "Event"),
            kind("v1", "Namespace"),
            kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            kind("flats.example.com/v1", "Lease"),
        ]
    )
    assert sorted(found) == [
        "CustomResourceDefinition.apiextensions.k8s.io a",
        "Lease.flats.example.com a",
        "Namespace a",
    ]
