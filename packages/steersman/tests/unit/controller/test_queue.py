"""The work queue: deduplication, exclusive keys, back-off per key."""

from __future__ import annotations

import asyncio
import gc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steersman.controller import LOW_PRIORITY, QueueShutDown, Trigger, WorkQueue
from steersman.controller.queue import QueueItem
from steersman.controller.triggers import MAX_TRIGGERS
from steersman_testing.virtual_clock import run_virtual, virtual_runtime, virtual_time


def new_queue() -> WorkQueue[str]:
    return WorkQueue("test", runtime=virtual_runtime())


def now() -> float:
    return asyncio.get_running_loop().time()


async def run_ready_tasks() -> None:
    """Lets every task that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.requirement("programming/queue")
@virtual_time
async def test_keys_are_deduplicated_in_fifo_order() -> None:
    queue = new_queue()
    for key in "abcab":
        queue.add(key)
    assert len(queue) == 3
    assert [await queue.get() for _ in range(3)] == ["a", "b", "c"]
    assert len(queue) == 0


@virtual_time
async def test_add_during_processing_requeues_after_done() -> None:
    queue = new_queue()
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("a")
    assert len(queue) == 0
    queue.done("a")
    assert len(queue) == 1
    assert await queue.get() == "a"
    queue.done("a")
    assert len(queue) == 0


@virtual_time
async def test_getters_wait_and_each_key_wakes_one() -> None:
    queue = new_queue()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await run_ready_tasks()
    queue.add("a")
    queue.add("b")
    await run_ready_tasks()
    assert sorted(t.result() for t in getters if t.done()) == ["a", "b"]
    queue.add("c")
    await asyncio.gather(*getters)


@pytest.mark.parametrize("order", ["cancel first", "wake first"])
@virtual_time
async def test_cancelled_getter_wakes_another(order: str) -> None:
    queue = new_queue()
    cancelled_getter, other = (asyncio.create_task(queue.get()) for _ in range(2))
    await run_ready_tasks()
    steps = [cancelled_getter.cancel, lambda: queue.add("a")]
    for step in steps if order == "cancel first" else reversed(steps):
        step()
    assert await other == "a"
    assert cancelled_getter.cancelled()


@virtual_time
async def test_getter_woken_without_key_keeps_waiting() -> None:
    queue = new_queue()
    waiting = asyncio.create_task(queue.get())
    await run_ready_tasks()
    queue.add("a")
    assert await queue.get() == "a"
    await run_ready_tasks()
    assert not waiting.done()
    queue.add("b")
    assert await waiting == "b"


@pytest.mark.requirement("overview/back-off")
@virtual_time
async def test_rate_limited_delay_doubles_per_failure() -> None:
    queue = new_queue()
    assert [queue.add_rate_limited("a") for _ in range(4)] == pytest.approx([0.005, 0.01, 0.02, 0.04])
    assert queue.add_rate_limited("b") == pytest.approx(0.005)
    assert queue.failures("a") == 4
    queue.forget("a")
    assert queue.add_rate_limited("a") == pytest.approx(0.005)


@pytest.mark.parametrize("longest", [10.0, 1000.0])
@virtual_time
async def test_pauses_have_an_end(longest: float) -> None:
    queue: WorkQueue[str] = WorkQueue("test", runtime=virtual_runtime(), max_delay=longest)
    delays = [queue.add_rate_limited("a") for _ in range(2000)]
    assert max(delays) == delays[-1] == longest


@virtual_time
async def test_delayed_keys_are_ready_on_time() -> None:
    queue = new_queue()
    queue.add_after("late", 3600)
    queue.add_after("soon", 60)
    assert (await queue.get(), now()) == ("soon", pytest.approx(60))
    assert (await queue.get(), now()) == ("late", pytest.approx(3600))


@pytest.mark.parametrize("seconds", [0, -1])
@virtual_time
async def test_add_after_without_delay_is_ready_at_once(seconds: float) -> None:
    queue = new_queue()
    queue.add_after("a", seconds)
    assert len(queue) == 1


@pytest.mark.parametrize("delays", [(60, 10, 30), (10, 60, 30), (30, 60, 10)])
@virtual_time
async def test_earliest_of_several_delays_wins(delays: tuple[float, ...]) -> None:
    queue = new_queue()
    for delay in delays:
        queue.add_after("a", delay)
    assert (await queue.get(), now()) == ("a", pytest.approx(10))
    queue.done("a")
    await asyncio.sleep(3600)
    assert len(queue) == 0


@virtual_time
async def test_add_replaces_pending_delay() -> None:
    queue = new_queue()
    queue.add_after("a", 60)
    queue.add("a")
    assert (await queue.get(), now()) == ("a", 0.0)
    queue.done("a")
    await asyncio.sleep(3600)
    assert len(queue) == 0


@virtual_time
async def test_delay_added_during_processing_is_kept() -> None:
    queue = new_queue()
    queue.add("a")
    await queue.get()
    queue.add_after("a", 60)
    queue.done("a")
    assert (await queue.get(), now()) == ("a", pytest.approx(60))


@virtual_time
async def test_shut_down_wakes_getters_and_rejects_adds() -> None:
    queue = new_queue()
    queue.add("working")
    await queue.get()
    getters = [asyncio.create_task(queue.get()) for _ in range(3)]
    await run_ready_tasks()
    queue.add_after("later", 60)
    queue.add("working")
    queue.shut_down()
    assert [type(e) for e in await asyncio.gather(*getters, return_exceptions=True)] == [QueueShutDown] * 3
    queue.done("working")
    queue.add("new")
    await asyncio.sleep(120)
    assert len(queue) == 0
    with pytest.raises(QueueShutDown):
        await queue.get()


@virtual_time
async def test_shut_down_drops_waiting_keys() -> None:
    queue = new_queue()
    queue.add("a")
    queue.shut_down()
    with pytest.raises(QueueShutDown):
        await queue.get()


@virtual_time
async def test_priority_order_is_fifo_within_priority() -> None:
    queue = new_queue()
    for key, priority in (("low", LOW_PRIORITY), ("a", 0), ("high", 7), ("b", 0)):
        queue.add(key, priority=priority)
    assert queue.depths() == {7: 1, 0: 2, LOW_PRIORITY: 1}
    assert [await queue.get() for _ in range(4)] == ["high", "a", "b", "low"]


@virtual_time
async def test_waiting_key_priority_can_only_rise() -> None:
    queue = new_queue()
    for key in ("x", "y", "z"):
        queue.add(key, priority=LOW_PRIORITY)
    queue.add("a")
    queue.add("y", priority=0)
    queue.add("a", priority=LOW_PRIORITY)
    assert queue.depths() == {0: 2, LOW_PRIORITY: 2}
    assert [await queue.get() for _ in range(4)] == ["a", "y", "x", "z"]
    assert queue.depths() == {0: 0, LOW_PRIORITY: 0}


@virtual_time
async def test_readded_key_has_highest_added_priority() -> None:
    queue = new_queue()
    queue.add("a")
    await queue.get()
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("a", priority=5)
    queue.add("a", priority=0)
    queue.done("a")
    assert (await queue.get_item()).priority == 5


@virtual_time
async def test_delayed_key_keeps_its_priority() -> None:
    queue = new_queue()
    queue.add_after("a", 60, priority=LOW_PRIORITY)
    queue.add_after("b", 60, priority=LOW_PRIORITY)
    queue.add_after("b", 90)
    assert [((item := await queue.get_item()).key, item.priority) for _ in range(2)] == [
        ("b", 0),
        ("a", LOW_PRIORITY),
    ]
    assert now() == pytest.approx(60)


@pytest.mark.parametrize("ahead", [0, 1, 3])
@virtual_time
async def test_low_priority_keys_do_not_starve(ahead: int) -> None:
    queue = new_queue()
    for number in range(ahead):
        queue.add(f"ahead{number}", priority=LOW_PRIORITY)
    queue.add("patient", priority=LOW_PRIORITY)
    queue.add("patient too", priority=LOW_PRIORITY - 1)
    taken: list[str] = []
    for number in range(60):
        queue.add(f"urgent{number}", priority=number % 3)
        queue.add(f"more{number}", priority=9)
        taken.append(await queue.get())
        queue.done(taken[-1])
    assert taken.index("patient") + 1 == 10 * (ahead + 1)
    assert taken.index("patient too") + 1 == 10 * (ahead + 2)


@virtual_time
async def test_key_collects_its_triggers() -> None:
    queue = new_queue()
    one, two = Trigger("one", None, "external"), Trigger("two", None, "external")
    queue.add("a", trigger=one)
    queue.add("a", trigger=two)
    queue.add("a", trigger=one)
    item = await queue.get_item()
    assert item.triggers == [one, two]
    queue.add("a", trigger=two)
    queue.done("a")
    assert (await queue.get_item()).triggers == [two]


@virtual_time
async def test_delayed_key_keeps_its_triggers() -> None:
    queue = new_queue()
    one, two, three = (Trigger(name, None, "external") for name in ("one", "two", "three"))
    queue.add_after("a", 60, trigger=one)
    queue.add_after("a", 30, trigger=two)
    queue.add_after("a", 90, trigger=three)
    queue.add("b", trigger=one)
    queue.add_after("b", 10, trigger=two)
    assert [(item := await queue.get_item()).key, item.triggers] == ["b", [one, two]]
    item = await queue.get_item()
    assert (item.key, item.triggers, now()) == ("a", [one, two, three], pytest.approx(30))
    queue.add_after("c", 60, trigger=one)
    queue.add("c", trigger=two)
    assert (await queue.get_item()).triggers == [one, two]


@virtual_time
async def test_triggers_of_a_key_are_few() -> None:
    queue = new_queue()
    for number in range(100):
        queue.add("a", trigger=Trigger(f"source {number}", None, "external"))
    item = await queue.get_item()
    assert (len(item.triggers), item.omitted) == (MAX_TRIGGERS, 100 - MAX_TRIGGERS)


def count_items() -> int:
    gc.collect()
    return sum(isinstance(each, QueueItem) for each in gc.get_objects())


@virtual_time
async def test_replaced_delays_do_not_leak() -> None:
    before = count_items()
    queue = new_queue()
    for _ in range(20):
        for number in range(200):
            queue.add_after(f"k{number}", 1000)
            queue.add(f"k{number}")
        while len(queue):
            queue.done(await queue.get())
    assert count_items() - before <= 1500
    queue.add_after("real", 5)
    assert (await queue.get(), now()) == ("real", pytest.approx(5))


@virtual_time
async def test_discard_removes_waiting_keys() -> None:
    queue = new_queue()
    queue.add("a", priority=LOW_PRIORITY)
    queue.add("b", priority=LOW_PRIORITY)
    queue.add_after("later", 60)
    for key in ("a", "later", "unknown"):
        queue.discard(key)
    assert queue.depths() == {0: 0, LOW_PRIORITY: 1}
    assert [await queue.get(), await queue.get()] == ["b", "later"]
    queue.add("a")
    assert await queue.get() == "a"


@virtual_time
async def test_discarded_keys_do_not_leak() -> None:
    queue = new_queue()
    queue.add("first")
    before = count_items()
    for number in range(5000):
        queue.add(str(number))
        queue.discard(str(number))
    assert count_items() - before <= 1500
    queue.add("last")
    assert [await queue.get(), await queue.get()] == ["first", "last"]


@virtual_time
async def test_drain_returns_only_ready_keys() -> None:
    queue = new_queue()
    for key in "abc":
        queue.add(key)
    queue.add_after("later", 1)
    assert await queue.get() == "a"
    queue.add("a")
    queue.shut_down(drain=True)
    queue.add("new")
    assert [await queue.get() for _ in range(2)] == ["b", "c"]
    queue.done("b")
    queue.done("c")
    with pytest.raises(QueueShutDown):
        await queue.get()
    queue.done("a")  # it changed while it was worked on
    assert await queue.get() == "a"
    queue.done("a")
    assert now() == 0.0


Step = tuple[str, str, float]
steps = st.tuples(
    st.sampled_from(["add", "after", "fail", "pass"]), st.sampled_from("abc"), st.sampled_from([0.0, 0.5, 2.0, 30.0])
)


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=30), st.integers(1, 3))
def test_adds_are_never_lost_or_processed_concurrently(history: list[Step], workers: int) -> None:
    async def scenario() -> None:
        queue = new_queue()
        working: set[str] = set()
        started: dict[str, float] = {}
        added: dict[str, float] = {}

        async def work() -> None:
            while True:
                try:
                    key = await queue.get()
                except QueueShutDown:
                    return
                assert key not in working
                working.add(key)
                started[key] = now()
                await asyncio.sleep(1.5)
                working.remove(key)
                queue.done(key)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for action, key, seconds in history:
            if action == "pass":
                await asyncio.sleep(seconds)
                continue
            added[key] = now()
            if action == "add":
                queue.add(key)
            elif action == "after":
                queue.add_after(key, seconds)
            else:
                queue.add_rate_limited(key)
        await asyncio.sleep(1000)
        for key, moment in added.items():
            assert started[key] >= moment, f"{key}: the last add was lost"
        queue.shut_down()
        await asyncio.gather(*tasks)

    run_virtual(scenario())
