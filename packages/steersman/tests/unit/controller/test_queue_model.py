"""The work queue against a model: no key is lost, none starves."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from steersman.controller import LOW_PRIORITY, WorkQueue
from steersman_testing.virtual_clock import VirtualTimeLoop, virtual_runtime


class QueueMachine(RuleBasedStateMachine):
    """The queue and its model: keys that wait, and keys in work."""

    KEYS = st.sampled_from("abcde")
    PRIORITIES = st.sampled_from([LOW_PRIORITY, 0, 0, 10])

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.queue: WorkQueue[str] = WorkQueue("machine", runtime=virtual_runtime())
        self.due_by: dict[str, float] = {}
        """When a key is to be ready at the latest."""
        self.working: set[str] = set()
        self.ranks: dict[str, int] = {}
        self.remaining_turns: dict[str, int] = {}
        """Return the upper limit of keys returned before a waiting key."""
        self.rushes = 0

    def run(self, action: Callable[[], object]) -> Any:
        async def act() -> object:
            return action()

        return self.loop.run_until_complete(act())

    def expect_by(self, key: str, due: float) -> None:
        self.due_by[key] = min(self.due_by.get(key, due), due)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: int) -> None:
        self.run(lambda: self.queue.add(key, priority=priority))
        self.expect_by(key, self.loop.time())

    @rule(key=KEYS, seconds=st.sampled_from([0.0, 0.5, 2.0, 30.0]), priority=PRIORITIES)
    def add_after(self, key: str, seconds: float, priority: int) -> None:
        self.run(lambda: self.queue.add_after(key, seconds, priority=priority))
        self.expect_by(key, self.loop.time() + seconds)

    @rule(key=KEYS)
    def fail(self, key: str) -> None:
        delay = self.run(lambda: self.queue.add_rate_limited(key))
        self.expect_by(key, self.loop.time() + delay)

    @rule(key=KEYS)
    def forget(self, key: str) -> None:
        self.queue.forget(key)

    @rule(key=KEYS)
    def discard(self, key: str) -> None:
        if any(item.key == key for item in self.queue.waiting()):
            self.due_by.pop(key)
            self.ranks.pop(key)
            self.remaining_turns.pop(key)
        self.queue.discard(key)

    @rule(seconds=st.sampled_from([0.25, 1.0, 60.0]))
    def pass_time(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @precondition(lambda self: len(self.queue) > 0)
    @rule()
    def take(self) -> None:
        key = self.run(self.queue.get_item_nowait).key
        assert key not in self.working, "two workers hold one key"
        assert self.due_by.pop(key) <= self.loop.time() + 1e-6, "it came before anybody wanted it"
        self.working.add(key)
        self.ranks.pop(key)
        self.remaining_turns.pop(key)
        for other in self.remaining_turns:
            self.remaining_turns[other] -= 1

    @rule(rounds=st.integers(5, 30), ready=st.booleans())
    def rush(self, rounds: int, ready: bool) -> None:
        """Important keys keep coming, and as many are taken."""
        for _ in range(rounds):
            self.rushes += 1
            self.add(f"urgent {self.rushes}", 20)
            self.track_waiting()
            self.take()
            if ready:
                first = min(self.working)
                self.working.remove(first)
                self.run(functools.partial(self.queue.done, first))

    @precondition(lambda self: bool(self.working))
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.working.remove(key)
        self.run(lambda: self.queue.done(key))

    @invariant()
    def due_keys_are_ready(self) -> None:
        ready = {
            key for key, due in self.due_by.items() if due <= self.loop.time() - 0.001 and key not in self.working
        }
        assert ready <= {item.key for item in self.queue.waiting()}, "a key was lost"
        self.track_waiting()

    def track_waiting(self) -> None:
        for item in self.queue.waiting():
            if self.ranks.get(item.key) != item.rank:
                self.ranks[item.key] = item.rank
                self.remaining_turns[item.key] = 10 * len(self.queue)

    @invariant()
    def no_key_starves(self) -> None:
        assert all(left > 0 for left in self.remaining_turns.values())

    @invariant()
    def counts_agree(self) -> None:
        depths = self.queue.depths()
        assert sum(depths.values()) == len(self.queue)
        assert all(depth >= 0 for depth in depths.values())

    def teardown(self) -> None:
        self.run(self.queue.shut_down)
        self.loop.close()


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
