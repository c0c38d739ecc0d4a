"""What Events tell of something that a test does, by reason and words: how often, since repeats are counted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

from devcluster.target import wait_until

Read = Callable[[], Iterable[Mapping[str, Any]]]
"""The Events about something."""


def event_count(events: Iterable[Mapping[str, Any]], reason: str, words: str = "") -> int:
    """How often it was told for a reason, in these words."""
    told = [e for e in events if e["reason"] == reason and words in e["message"]]
    repeated: list[dict[str, int] | None] = [e.get("series") for e in told]
    return sum(1 if series is None else series["count"] for series in repeated)


@contextmanager
def expecting_events(read: Read, *reasons: tuple[str, str] | str, seconds: float = 15) -> Generator[None]:
    """Each reason, or reason and words, is told once more of what happens in the block, or soon after it."""
    wanted = [(one, "") if isinstance(one, str) else one for one in reasons]
    before = {one: event_count(read(), *one) for one in wanted}
    yield
    for one in wanted:
        what = f"an Event tells {': '.join(filter(None, one))}"
        wait_until(what, lambda one=one: event_count(read(), *one) > before[one], seconds=seconds, interval=0.5)
