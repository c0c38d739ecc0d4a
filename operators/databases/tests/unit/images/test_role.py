"""Whatever the order of events, -rw ends at the last holder of the lock: all orders of two primaries are tried."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from database_support.unit.image_script import script

role = script("postgresql", "role")
SLICE, LEADER = "/slice", "/leader"
PREFIX = "app.kubernetes.io"
LABELS = {
    f"{PREFIX}/name": "postgresql",
    f"{PREFIX}/instance": "orders",
    f"{PREFIX}/managed-by": "steersman-databases",
}
REFERENCE = {"apiVersion": "databases.steersman.dev/v1alpha1", "kind": "PostgreSQLCluster", "name": "orders"}
CONTROLLED = {"ownerReferences": [{**REFERENCE, "uid": "uid-orders", "controller": True}]}


def controlled(**other: Any) -> dict[str, Any]:
    """By something else than the cluster, with the cluster's labels."""
    return {"labels": LABELS, "ownerReferences": [{**CONTROLLED["ownerReferences"][0], **other}]}


OURS: dict[str, dict[str, Any]] = {
    "made by the operator": {"labels": LABELS, **CONTROLLED},
    "lost its labels": CONTROLLED,
    "lost its owners": {"labels": {**LABELS, "kubernetes.io/service-name": "orders-rw"}},
    "and somebody else's, who does not control it": {
        "labels": LABELS,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": "entry", "uid": "uid-entry"}],
    },
}
STRANGERS: dict[str, dict[str, Any]] = {
    "of nobody": {},
    "of a Service": {"labels": {"kubernetes.io/service-name": "orders-rw"}},
    "of another cluster": controlled(name="other"),
    "of another engine's cluster of the name": controlled(kind="MySQLCluster"),
    "of another project's cluster of the name": controlled(apiVersion="databases.example.com/v1"),
    "of a Service, which controls it": controlled(apiVersion="v1", kind="Service"),
    "labelled by another cluster": {"labels": {**LABELS, f"{PREFIX}/instance": "other"}},
    "labelled by another engine's cluster": {"labels": {**LABELS, f"{PREFIX}/name": "mysql"}},
    "labelled by somebody else's tools": {"labels": {**LABELS, f"{PREFIX}/managed-by": "Helm"}},
}


def pod(name: str, *addresses: str) -> Any:
    return role.PodIdentity(
        name=name, namespace="shop", uid=f"uid-{name}", node="n1", addresses=addresses or (f"10.0.0.{name}",)
    )


@dataclass
class Store:
    """The API server: a slice and Patroni's lock, each write with the precondition that it names."""

    version: int = 1
    annotations: dict[str, str] = field(default_factory=dict[str, str])
    endpoints: list[Any] = field(default_factory=list[Any])
    leader: str = ""
    transitions: int = -1
    made_for: dict[str, Any] = field(default_factory=lambda: {"labels": LABELS, **CONTROLLED})

    def answer(self, request: Any) -> Any:
        if request.body is None:
            return role.ApiResponse(200, self._leader() if request.path == LEADER else self._slice())
        if request.body["metadata"]["resourceVersion"] != str(self.version):
            return role.ApiResponse(409, {})
        before = (self.annotations, self.endpoints)
        self.annotations = {**self.annotations, **request.body["metadata"]["annotations"]}
        self.endpoints = request.body["endpoints"]
        # As the API server has it: what changes nothing is no new version.
        self.version += before != (self.annotations, self.endpoints)
        return role.ApiResponse(200, self._slice())

    def _slice(self) -> Any:
        return {
            "metadata": {**self.made_for, "resourceVersion": str(self.version), "annotations": self.annotations},
            "addressType": "IPv4",
            "endpoints": self.endpoints,
        }

    def _leader(self) -> Any:
        held = {"leader": self.leader, "transitions": str(self.transitions), "acquireTime": f"t{self.transitions}"}
        return {"metadata": {"annotations": held}}

    def take_lock(self, name: str) -> None:
        self.transitions += self.leader != name
        self.leader = name


class Unnumbered(Store):
    """A lock that does not tell one leadership from another."""

    def _leader(self) -> Any:
        return {"metadata": {"annotations": {"leader": self.leader}}}


@dataclass
class Callback:
    """One run of the script: it asks, and may be held up for any time before each request."""

    requests: Generator[Any, Any, None]
    pending: Any = None
    done: bool = False

    def step(self, store: Store) -> None:
        answer = None if self.pending is None else store.answer(self.pending)
        try:
            self.pending = self.requests.send(answer)
        except StopIteration:
            self.done = True


def run(store: Store, callback: Callback | None = None) -> None:
    """A callback of pod 1, to its end; each has one within a few requests."""
    callback = callback or Callback(role.claim_slice(pod("1"), "orders", SLICE, LEADER))
    for _ in range(10):
        callback.step(store)
        if callback.done:
            return
    raise AssertionError("it goes on and on")


def play(leaders: Sequence[str], choices: Sequence[int], kind: type[Store]) -> tuple[Store, list[int]]:
    """One order of events: which of those that can go on does so at each point, and how many could.

    The lock goes through the leaders; each starts its callback when it has the lock, and a pod's new callback kills
    its former one, as Patroni does. What has no choice left to read takes the first.
    """
    store, running, width = kind(), dict[str, Callback](), list[int]()
    coming = list(leaders)
    while coming or running:
        able = ["lock"] * bool(coming) + sorted(running)
        choice = choices[len(width)] if len(width) < len(choices) else 0
        width.append(len(able))
        event = able[choice]
        if event == "lock":
            name = coming.pop(0)
            store.take_lock(name)
            running[name] = Callback(role.claim_slice(pod(name), "orders", SLICE, LEADER))
        else:
            running[event].step(store)
            if running[event].done:
                del running[event]
    return store, width


def orders(leaders: Sequence[str], kind: type[Store] = Store) -> Iterator[Store]:
    """Every order, depth first: the last choice that had an alternative is changed, and what follows starts anew."""
    choices: list[int] = []
    while True:
        store, width = play(leaders, choices, kind)
        yield store
        taken = [*choices, *[0] * (len(width) - len(choices))]
        while taken and taken[-1] + 1 == width[len(taken) - 1]:
            taken.pop()
        if not taken:
            return
        choices = [*taken[:-1], taken[-1] + 1]


@pytest.mark.parametrize("leaders", ["12", "121", "112"])
def test_slice_follows_last_lock_holder(leaders: str) -> None:
    tried = 0
    for store in orders(leaders):
        tried += 1
        assert [one["targetRef"]["name"] for one in store.endpoints] == [leaders[-1]]
    assert tried > 10


def test_term_without_write_is_overtaken() -> None:
    """What the annotation is for: without it the explorer finds the order in which a late former leader wins."""
    ends = {store.endpoints[0]["targetRef"]["name"] for store in orders("121", Unnumbered)}
    assert ends == {"1", "2"}


def test_foreign_lock_is_respected() -> None:
    store = Store(leader="2")
    run(store)
    assert store.endpoints == [] and store.version == 1


@pytest.mark.parametrize("made_for", OURS.values(), ids=OURS)
def test_own_slice_is_filled(made_for: dict[str, Any]) -> None:
    store = Store(leader="1", made_for=made_for)
    run(store)
    assert [one["targetRef"]["name"] for one in store.endpoints] == ["1"]


@pytest.mark.parametrize("made_for", STRANGERS.values(), ids=STRANGERS)
def test_foreign_slice_is_kept(made_for: dict[str, Any]) -> None:
    """It leads the stranger's clients; the callback ends, and what comes after it is not held up."""
    store = Store(leader="1", made_for=made_for)
    run(store)
    assert store.endpoints == [] and store.version == 1


def test_foreign_slice_replacing_own_is_kept() -> None:
    store = Store(leader="1")
    callback = Callback(role.claim_slice(pod("1"), "orders", SLICE, LEADER))
    while callback.pending is None or callback.pending.body is None:
        callback.step(store)
    store.version, store.made_for = 7, {}
    run(store, callback)
    assert store.endpoints == [] and store.version == 7


@pytest.mark.parametrize("missing", [SLICE, LEADER])
def test_missing_slice_is_left_to_operator(missing: str) -> None:
    store = Store(leader="1")
    requests = role.claim_slice(pod("1"), "orders", SLICE, LEADER)
    request = next(requests)
    with pytest.raises(StopIteration):
        while True:
            absent = request.path == missing
            request = requests.send(role.ApiResponse(404, {}) if absent else store.answer(request))
    assert store.endpoints == []


def test_slice_gets_address_of_its_family() -> None:
    both = pod("1", "10.0.0.1", "fd00::1")
    assert [one["addresses"] for one in both.endpoints("IPv4")] == [["10.0.0.1"]]
    assert [one["addresses"] for one in both.endpoints("IPv6")] == [["fd00::1"]]
    assert pod("1", "10.0.0.1").endpoints("IPv6") == []


@pytest.mark.parametrize(
    ("annotations", "led"), [({"leader": "1"}, True), ({"leader": "2"}, False), ({"leader": ""}, True), (None, True)]
)
def test_last_leader_is_the_agreed_one(annotations: dict[str, str] | None, led: bool) -> None:
    asked = role.was_last_leader(pod("1"), "/sync")
    assert next(asked).path == "/sync"
    with pytest.raises(StopIteration) as end:
        asked.send(role.ApiResponse(200, {"metadata": {"annotations": annotations}}))
    assert end.value.value is led


def test_last_leader_without_record_may_be_any() -> None:
    asked = role.was_last_leader(pod("1"), "/sync")
    next(asked)
    with pytest.raises(StopIteration) as end:
        asked.send(role.ApiResponse(404, {}))
    assert end.value.value is True


@pytest.mark.parametrize(
    ("holder", "status", "serves"),
    [
        ("2", '{"state": "running", "role": "primary", "xlog_location": 7}', True),
        ("2", '{"state": "running", "role": "primary"}', False),  # it does not answer its own Patroni
        ("2", '{"state": "running", "role": "replica", "xlog_location": 7}', False),  # it waits for room
        ("2", '{"state": "starting", "role": "primary"}', False),
        ("2", None, False),
        ("1", "", False),
        ("", "", False),
    ],
)
def test_another_is_primary_with_lock_and_role(holder: str, status: str | None, serves: bool) -> None:
    asked = role.another_is_primary(pod("1"), LEADER)
    assert next(asked).path == LEADER
    with pytest.raises(StopIteration) as end:
        request = asked.send(role.ApiResponse(200, {"metadata": {"annotations": {"leader": holder}}}))
        assert request.path.endswith("/pods/2")
        told = role.ApiResponse(404, {}) if status is None else None
        asked.send(told or role.ApiResponse(200, {"metadata": {"annotations": {"status": status}}}))
    assert end.value.value is serves
