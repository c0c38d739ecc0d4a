"""Cached reads are monotonic in every order of events, lists and responses.

A model of the API server keeps the history of each object. Hypothesis interleaves writes of ours and of others, their
responses, events of a lagging watch, lists in several parts, and reads of uncertain objects. After each step, every
cached read must be a state of the object's history. It must not be older than the last read, or than the last
response to one of our writes.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from framework_support.widget import Widget, widget
from steersman.cache import Informer, Selection
from steersman.cache.options import WatchScope
from steersman.cache.sink import InformerSink
from steersman.client import Client
from steersman.client.decode import ObjectList
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime, SystemClock

# make simulate runs more.
EXAMPLES = 200 if os.environ.get("SIMULATE") == "whole" else 50
NAMES = st.sampled_from("ab")
IN, OUT = {"in": "yes"}, {"in": "no"}
LABELS = st.sampled_from((IN, IN, OUT))
DELETES = st.sampled_from((False, False, True))


@dataclass(frozen=True)
class ObjectState:
    """The state of an object at ``version``; None if it was deleted."""

    version: int
    obj: Widget | None


@dataclass
class PendingWrite:
    """A pending write of ours."""

    name: str
    is_delete: bool
    labels: dict[str, str]
    executed: bool = False
    response: Widget | None = None
    deleted_uid: str = ""


class ModelServer:
    """Current state and history of all objects."""

    def __init__(self, *, opaque: bool) -> None:
        self.version = 0
        self.changes: list[tuple[int, str, Widget | None, Widget | None]] = []
        self.objects: dict[str, Widget] = {}
        self.deleted_at: dict[str, int] = {}
        self.opaque = opaque

    def format_version(self, version: int) -> str:
        return f"v{version * 7919 % 10007}" if self.opaque else str(version)

    def put(self, name: str, labels: dict[str, str]) -> Widget:
        self.version += 1
        before = self.objects.get(name)
        uid = before.metadata.uid if before is not None else f"{name}-{self.version}"
        obj = self.objects[name] = widget(
            name, self.format_version(self.version), uid=uid, labels=labels, depth=self.version
        )
        self.changes.append((self.version, name, before, obj))
        return obj

    def delete(self, name: str) -> str:
        before = self.objects.pop(name, None)
        if before is None:
            return ""
        self.version += 1
        self.changes.append((self.version, name, before, None))
        self.deleted_at[before.metadata.uid] = self.version
        return before.metadata.uid


@coroutine
def suspend() -> Generator[None, None, None]:
    yield


class ModelClient:
    """The client for uncertain objects. It responds with the current state."""

    field_manager = "tester"

    def __init__(self, machine: Interleavings) -> None:
        self.machine = machine

    async def list(self, kind: type[Widget], *, field_selector: str, **_: Any) -> ObjectList[Widget]:
        await suspend()
        name = field_selector.rpartition("=")[2]
        server = self.machine.server
        found = server.objects.get(name)
        version = server.version
        visible = (found,) if found is not None and self.machine.is_visible(found) else ()
        await suspend()
        self.machine.require_version(name, version)
        return ObjectList(visible, server.format_version(version))


class Interleavings(RuleBasedStateMachine):
    """The state machine: see the module's docstring."""

    selective = True
    opaque = False

    def __init__(self) -> None:
        super().__init__()
        self.server = ModelServer(opaque=self.opaque)
        selection = Selection(label_selector="in=yes") if self.selective else Selection()
        client = cast("Client", ModelClient(self))
        runtime = Runtime(clock=_StoppedClock())
        self.informer: Informer[Widget] = Informer(
            client, Widget, runtime=runtime, scopes=(WatchScope("", selection),)
        )
        self.sink: InformerSink[Widget] = self.informer.sinks[0]
        self.cursor = 0
        self.listing: list[Widget] | None = None
        self.list_version = 0
        self.writes: list[PendingWrite] = []
        self.resolving: list[Coroutine[Any, Any, None]] = []
        self.min_history_index: dict[str, int] = {}
        self.watching = True
        self.start_list()
        self.finish_list()

    def is_visible(self, obj: Widget | None) -> bool:
        return obj is not None and (not self.selective or obj.metadata.labels["in"] == "yes")

    def history(self, name: str) -> list[ObjectState]:
        """Return the states of ``name`` that the informer may observe."""
        changes = [(version, after) for version, changed, _, after in self.server.changes if changed == name]
        return [ObjectState(0, None), *(ObjectState(v, obj if self.is_visible(obj) else None) for v, obj in changes)]

    def require_version(self, name: str, version: int) -> None:
        """Require later reads to be at least as new as ``version``."""
        index = max(i for i, state in enumerate(self.history(name)) if state.version <= version)
        self.min_history_index[name] = max(self.min_history_index.get(name, 0), index)

    # What others do

    @rule(name=NAMES, labels=LABELS)
    def external_write(self, name: str, labels: dict[str, str]) -> None:
        self.server.put(name, labels)

    @precondition(lambda self: len(self.server.objects) > 1)
    @rule(name=NAMES)
    def external_delete(self, name: str) -> None:
        self.server.delete(name)

    # What we do

    @rule(name=NAMES, labels=LABELS, deletes=DELETES)
    def start_write(self, name: str, labels: dict[str, str], deletes: bool) -> None:
        self.sink.on_write_started(ObjectKey("orders", name))
        self.writes.append(PendingWrite(name, deletes, labels))

    @rule(name=NAMES, labels=LABELS, deletes=DELETES)
    def write(self, name: str, labels: dict[str, str], deletes: bool) -> None:
        self.start_write(name, labels, deletes)
        self.execute(self.writes[-1])
        self.deliver_response(self.writes[-1])

    @precondition(lambda self: any(not w.executed for w in self.writes))
    @rule(data=st.data())
    def execute_one(self, data: st.DataObject) -> None:
        self.execute(data.draw(st.sampled_from([w for w in self.writes if not w.executed])))

    def execute(self, write: PendingWrite) -> None:
        write.executed = True
        if write.is_delete:
            write.deleted_uid = self.server.delete(write.name)
        else:
            write.response = self.server.put(write.name, write.labels)

    @precondition(lambda self: any(w.executed for w in self.writes))
    @rule(data=st.data())
    def respond_to_one(self, data: st.DataObject) -> None:
        self.deliver_response(data.draw(st.sampled_from([w for w in self.writes if w.executed])))

    def deliver_response(self, write: PendingWrite) -> None:
        self.writes.remove(write)
        key = ObjectKey("orders", write.name)
        if write.response is not None:
            self.require_version(write.name, write.response.spec.depth)
            self.sink.on_write_succeeded(key, write.response, 10, dict)
        elif write.deleted_uid:
            self.require_version(write.name, self.server.deleted_at[write.deleted_uid])
            self.sink.on_deleted(key, write.deleted_uid)
        else:
            self.sink.on_write_finished(key)

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def lose_response(self, data: st.DataObject) -> None:
        write = data.draw(st.sampled_from(self.writes))
        self.writes.remove(write)
        self.sink.mark_uncertain(ObjectKey("orders", write.name))
        self.sink.on_write_finished(ObjectKey("orders", write.name))

    @precondition(lambda self: self.sink.uncertain_keys)
    @rule(data=st.data())
    def start_resolve(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.sink.uncertain_keys)))
        resolving = self.sink.resolve(key)
        resolving.send(None)
        self.resolving.append(resolving)

    @precondition(lambda self: self.resolving)
    @rule(data=st.data())
    def continue_resolve(self, data: st.DataObject) -> None:
        resolving = data.draw(st.sampled_from(self.resolving))
        try:
            resolving.send(None)
        except StopIteration:
            self.resolving.remove(resolving)

    # Watch events

    @precondition(lambda self: self.watching and self.cursor < self.server.version)
    @rule(number=st.integers(1, 4))
    def deliver_events(self, number: int) -> None:
        for version, _, before, after in self.server.changes[self.cursor :][:number]:
            self.cursor = version
            text = self.server.format_version(version)
            if self.is_visible(after):
                assert after is not None
                self.sink.apply(after, 10)
            elif self.is_visible(before):
                assert before is not None
                self.sink.delete(before.key, before.metadata.uid, text)

    @precondition(lambda self: self.watching and self.cursor < self.server.version)
    @rule()
    def deliver_event(self) -> None:
        self.deliver_events(1)

    @precondition(lambda self: self.watching)
    @rule()
    def deliver_bookmark(self) -> None:
        self.sink.bookmark(self.server.format_version(self.cursor))

    # Lists

    @precondition(lambda self: self.watching)
    @rule()
    def start_list(self) -> None:
        """The watch was rejected, or a list failed."""
        self.watching = False
        self.sink.init(replace_all=False)
        self.listing = [obj for obj in self.server.objects.values() if self.is_visible(obj)]
        self.list_version = self.server.version

    @precondition(lambda self: self.listing)
    @rule()
    def deliver_list_item(self) -> None:
        assert self.listing is not None
        self.sink.init_apply(self.listing.pop(0), 10)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def finish_list(self) -> None:
        for obj in self.listing or ():
            self.sink.init_apply(obj, 10)
        self.listing = None
        assert self.sink.init_done(self.server.format_version(self.list_version))
        self.cursor = self.list_version
        self.watching = True

    # Invariants

    @invariant()
    def reads_are_monotonic(self) -> None:
        if not self.informer.has_synced:
            return
        for name in "ab":
            key = ObjectKey("orders", name)
            if key not in self.sink.uncertain_keys:
                self.min_history_index[name] = self.history_index(name, self.informer.store.get(key))

    def history_index(self, name: str, read: Widget | None) -> int:
        min_index = self.min_history_index.get(name, 0)
        history = self.history(name)
        for index in range(min_index, len(history)):
            if history[index].obj == read:
                return index
        raise AssertionError(f"{name} was read as {read}, which is older than {history[min_index]}")

    def teardown(self) -> None:
        """Once everything is delivered, the store equals the server."""
        for write in self.writes:
            self.sink.on_write_finished(ObjectKey("orders", write.name))
        if self.listing is not None:
            self.finish_list()
        if self.opaque:
            # Responses without an order stay uncertain until the requested list.
            self.start_list()
            self.finish_list()
        for resolving in self.resolving:
            for _ in resolving.__await__():
                pass
        self.deliver_events(len(self.server.changes))
        for key in tuple(self.sink.uncertain_keys):
            for _ in self.sink.resolve(key).__await__():
                pass
        self.reads_are_monotonic()
        assert {o.key.name: o for o in self.informer.store} == {
            name: obj for name, obj in self.server.objects.items() if self.is_visible(obj)
        }


class _StoppedClock(SystemClock):
    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize("opaque", [False, True], ids=["numbers", "opaque"])
@pytest.mark.parametrize("selective", [False, True], ids=["all", "selected"])
def test_reads_are_monotonic_under_interleavings(opaque: bool, selective: bool) -> None:
    machine = type("Machine", (Interleavings,), {"opaque": opaque, "selective": selective})
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            derandomize=True,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
