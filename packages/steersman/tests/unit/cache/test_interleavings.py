"""Whatever the order in which news arrives, a cached read never goes back in time and never forgets our own writes.

A model of the API server keeps the history of each object. Writes, ours and others', their answers, events of a watch
that lags by any number of changes, lists whose items trickle in, and reads that settle doubts come in any order that
hypothesis thinks of. After each step every cached read must be a state of the object's history that is no older than
what was read before, and no older than the last write of ours that was answered.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from dataclasses import dataclass
from types import coroutine
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from framework_support.buoy import Buoy, buoy
from steersman.cache import Informer, Selection
from steersman.cache.options import Scope
from steersman.cache.part import Part
from steersman.client import Client
from steersman.client.listing import ObjectList
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime, SystemClock

NAMES = st.sampled_from("ab")
IN, OUT = {"in": "yes"}, {"in": "no"}
LABELS = st.sampled_from((IN, IN, OUT))
DELETES = st.sampled_from((False, False, True))


@dataclass(frozen=True)
class State:
    """What became of an object at ``version``; None: it was gone."""

    version: int
    obj: Buoy | None


@dataclass
class Write:
    """One of ours, on its way."""

    name: str
    deletes: bool
    labels: dict[str, str]
    executed: bool = False
    answer: Buoy | None = None
    deleted_uid: str = ""


class Server:
    """The truth, and all that ever was."""

    def __init__(self, *, opaque: bool) -> None:
        self.version = 0
        self.log: list[tuple[int, str, Buoy | None, Buoy | None]] = []
        self.objects: dict[str, Buoy] = {}
        self.ends: dict[str, int] = {}
        self.opaque = opaque

    def text(self, version: int) -> str:
        return f"v{version * 7919 % 10007}" if self.opaque else str(version)

    def put(self, name: str, labels: dict[str, str]) -> Buoy:
        self.version += 1
        before = self.objects.get(name)
        uid = before.metadata.uid if before is not None else f"{name}-{self.version}"
        obj = self.objects[name] = buoy(name, self.text(self.version), uid=uid, labels=labels, depth=self.version)
        self.log.append((self.version, name, before, obj))
        return obj

    def delete(self, name: str) -> str:
        before = self.objects.pop(name, None)
        if before is None:
            return ""
        self.version += 1
        self.log.append((self.version, name, before, None))
        self.ends[before.metadata.uid] = self.version
        return before.metadata.uid


@coroutine
def pause() -> Generator[None, None, None]:
    yield


class Reader:
    """The client that settles doubts: its answer is true at the moment between request and answer."""

    field_manager = "tester"

    def __init__(self, machine: Interleavings) -> None:
        self.machine = machine

    async def list(self, kind: type[Buoy], *, field_selector: str, **_: Any) -> ObjectList[Buoy]:
        await pause()
        name = field_selector.rpartition("=")[2]
        server = self.machine.server
        found = server.objects.get(name)
        version = server.version
        visible = (found,) if found is not None and self.machine.shows(found) else ()
        await pause()
        self.machine.acknowledged(name, version)
        return ObjectList(visible, server.text(version))


class Interleavings(RuleBasedStateMachine):
    """See the module's text."""

    selective = True
    opaque = False

    def __init__(self) -> None:
        super().__init__()
        self.server = Server(opaque=self.opaque)
        selection = Selection(label_selector="in=yes") if self.selective else Selection()
        client = cast("Client", Reader(self))
        runtime = Runtime(clock=_StoppedClock())
        self.informer: Informer[Buoy] = Informer(client, Buoy, runtime=runtime, scopes=(Scope("", selection),))
        self.part: Part[Buoy] = self.informer.parts[0]
        self.cursor = 0
        self.listing: list[Buoy] | None = None
        self.list_version = 0
        self.writes: list[Write] = []
        self.settling: list[Coroutine[Any, Any, None]] = []
        self.floors: dict[str, int] = {}
        self.watching = True
        self.a_list_begins()
        self.the_list_ends()

    def shows(self, obj: Buoy | None) -> bool:
        return obj is not None and (not self.selective or obj.metadata.labels["in"] == "yes")

    def history(self, name: str) -> list[State]:
        """What this informer could ever have seen of ``name``."""
        changes = [(version, after) for version, changed, _, after in self.server.log if changed == name]
        return [State(0, None), *(State(v, obj if self.shows(obj) else None) for v, obj in changes)]

    def acknowledged(self, name: str, version: int) -> None:
        """From now on nothing may be read that is older than ``version``."""
        index = max(i for i, state in enumerate(self.history(name)) if state.version <= version)
        self.floors[name] = max(self.floors.get(name, 0), index)

    # What others do

    @rule(name=NAMES, labels=LABELS)
    def others_write(self, name: str, labels: dict[str, str]) -> None:
        self.server.put(name, labels)

    @precondition(lambda self: len(self.server.objects) > 1)
    @rule(name=NAMES)
    def others_delete(self, name: str) -> None:
        self.server.delete(name)

    # What we do

    @rule(name=NAMES, labels=LABELS, deletes=DELETES)
    def we_send(self, name: str, labels: dict[str, str], deletes: bool) -> None:
        self.part.begun(ObjectKey("sea", name))
        self.writes.append(Write(name, deletes, labels))

    @rule(name=NAMES, labels=LABELS, deletes=DELETES)
    def we_write(self, name: str, labels: dict[str, str], deletes: bool) -> None:
        self.we_send(name, labels, deletes)
        self.carry_out(self.writes[-1])
        self.take_answer(self.writes[-1])

    @precondition(lambda self: any(not w.executed for w in self.writes))
    @rule(data=st.data())
    def it_is_carried_out(self, data: st.DataObject) -> None:
        self.carry_out(data.draw(st.sampled_from([w for w in self.writes if not w.executed])))

    def carry_out(self, write: Write) -> None:
        write.executed = True
        if write.deletes:
            write.deleted_uid = self.server.delete(write.name)
        else:
            write.answer = self.server.put(write.name, write.labels)

    @precondition(lambda self: any(w.executed for w in self.writes))
    @rule(data=st.data())
    def it_is_answered(self, data: st.DataObject) -> None:
        self.take_answer(data.draw(st.sampled_from([w for w in self.writes if w.executed])))

    def take_answer(self, write: Write) -> None:
        self.writes.remove(write)
        key = ObjectKey("sea", write.name)
        if write.answer is not None:
            self.acknowledged(write.name, write.answer.spec.depth)
            self.part.written(write.answer, 10, dict)
        elif write.deleted_uid:
            self.acknowledged(write.name, self.server.ends[write.deleted_uid])
            self.part.deleted(key, write.deleted_uid)
        else:
            self.part.ended(key)

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def its_answer_is_lost(self, data: st.DataObject) -> None:
        write = data.draw(st.sampled_from(self.writes))
        self.writes.remove(write)
        self.part.doubt(ObjectKey("sea", write.name))
        self.part.ended(ObjectKey("sea", write.name))

    @precondition(lambda self: self.part.doubts)
    @rule(data=st.data())
    def a_doubt_is_looked_into(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.part.doubts)))
        settling = self.part.settle(key)
        settling.send(None)
        self.settling.append(settling)

    @precondition(lambda self: self.settling)
    @rule(data=st.data())
    def the_read_goes_on(self, data: st.DataObject) -> None:
        settling = data.draw(st.sampled_from(self.settling))
        try:
            settling.send(None)
        except StopIteration:
            self.settling.remove(settling)

    # What the watch says

    @precondition(lambda self: self.watching and self.cursor < self.server.version)
    @rule(number=st.integers(1, 4))
    def events(self, number: int) -> None:
        for version, _, before, after in self.server.log[self.cursor :][:number]:
            self.cursor = version
            text = self.server.text(version)
            if self.shows(after):
                assert after is not None
                self.part.upsert(after, 10)
            elif self.shows(before):
                assert before is not None
                self.part.delete(before.key, before.metadata.uid, text)

    @precondition(lambda self: self.watching and self.cursor < self.server.version)
    @rule()
    def an_event(self) -> None:
        self.events(1)

    @precondition(lambda self: self.watching)
    @rule()
    def a_bookmark(self) -> None:
        self.part.passed(self.server.text(self.cursor))

    # Lists

    @precondition(lambda self: self.watching)
    @rule()
    def a_list_begins(self) -> None:
        """Because the watch was refused, or a list failed."""
        self.watching = False
        self.part.list_begins(whole=False)
        self.listing = [obj for obj in self.server.objects.values() if self.shows(obj)]
        self.list_version = self.server.version

    @precondition(lambda self: self.listing)
    @rule()
    def an_item_comes(self) -> None:
        assert self.listing is not None
        self.part.listed(self.listing.pop(0), 10)

    @precondition(lambda self: self.listing is not None)
    @rule()
    def the_list_ends(self) -> None:
        for obj in self.listing or ():
            self.part.listed(obj, 10)
        self.listing = None
        assert self.part.list_ends(self.server.text(self.list_version))
        self.cursor = self.list_version
        self.watching = True

    # What must hold

    @invariant()
    def no_read_goes_back(self) -> None:
        if not self.informer.has_synced:
            return
        for name in "ab":
            key = ObjectKey("sea", name)
            if key not in self.part.doubts:
                self.floors[name] = self.place_in_history(name, self.informer.store.get(key))

    def place_in_history(self, name: str, read: Buoy | None) -> int:
        floor = self.floors.get(name, 0)
        history = self.history(name)
        for index in range(floor, len(history)):
            if history[index].obj == read:
                return index
        raise AssertionError(f"{name} was read as {read}, which is older than {history[floor]}")

    def teardown(self) -> None:
        """When all has been told, the store is what the server has."""
        for write in self.writes:
            self.part.ended(ObjectKey("sea", write.name))
        if self.listing is not None:
            self.the_list_ends()
        if self.opaque:
            # What nobody could tell from older news waits for a list, which is asked for.
            self.a_list_begins()
            self.the_list_ends()
        for settling in self.settling:
            for _ in settling.__await__():
                pass
        self.events(len(self.server.log))
        for key in tuple(self.part.doubts):
            for _ in self.part.settle(key).__await__():
                pass
        self.no_read_goes_back()
        assert {o.key.name: o for o in self.informer.store} == {
            name: obj for name, obj in self.server.objects.items() if self.shows(obj)
        }


class _StoppedClock(SystemClock):
    def monotonic(self) -> float:
        return 0.0


@pytest.mark.parametrize("opaque", [False, True], ids=["numbers", "opaque"])
@pytest.mark.parametrize("selective", [False, True], ids=["all", "selected"])
def test_reads_never_go_back(opaque: bool, selective: bool) -> None:
    machine = type("Machine", (Interleavings,), {"opaque": opaque, "selective": selective})
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        machine,
        settings=settings(
            max_examples=100,
            derandomize=True,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
