"""Faults and fault plans in a form that tests can replay.

``crash-after:3`` kills the process after the third call of the operator. ``delay-watch:websites:4+300`` delays the
watch of websites before its fourth event by 300 seconds. Commas separate the faults of a plan.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, get_args

from msgspec import Struct

CallFault = Literal[
    "crash-before",
    "crash-after",
    "lost",
    "timeout",
    "error",
    "409",
    "429",
    "500",
    "concurrent-write",
    "lease",
    "delayed-write",
]
EventFault = Literal["delay-watch", "relist", "disconnect", "crash-on-event"]
CALL_FAULTS: tuple[str, ...] = get_args(CallFault)
EVENT_FAULTS: tuple[str, ...] = get_args(EventFault)

FAULT_DESCRIPTIONS: Mapping[str, str] = {
    "crash-before": "the process is killed before call {at}",
    "crash-after": "the process is killed after call {at}, before it reads the response",
    "lost": "the response to call {at} is lost",
    "timeout": "call {at} is lost, and the operator waits for its timeout",
    "error": "call {at} fails",
    "409": "call {at} is rejected with 409 Conflict",
    "429": "call {at} is rejected with 429 Too Many Requests",
    "500": "call {at} is rejected with 500 Internal Server Error",
    "concurrent-write": "another client writes the same object immediately before call {at}",
    "lease": "another replica acquires the lease during call {at}",
    "delayed-write": "call {at} is delayed until another replica is the leader",
    "delay-watch": "the watch of {resource} is delayed before its event {at}",
    "relist": "the watch of {resource} expires before its event {at}, and relists",
    "disconnect": "the watch of {resource} disconnects before its event {at}",
    "crash-on-event": "the process is killed before event {at} of {resource}",
}

DELAYED_WRITE_SECONDS = 25.0
"""Default delay of a delayed write. Another replica becomes the leader after 15 to 20 seconds."""
_MIN_DELAYED_WRITE_SECONDS = 20.0

_FAULT_PATTERN = re.compile(
    r"(?P<kind>[a-z0-9-]+):(?:(?P<resource>[^:+,]+):)?(?P<at>\d+)(?:\+(?P<seconds>\d+(?:\.\d+)?))?"
)


class Fault(Struct, frozen=True, order=True):
    """One fault at one place.

    Attributes:
        kind: one of ``CALL_FAULTS`` or ``EVENT_FAULTS``.
        at: number of the call of the operator, or of the watch event, from 1.
        resource: resource of the watch, for event faults: ``plural.group``, or ``plural`` in the core group.
        seconds: duration: until the process restarts, the watch continues or the delayed call arrives.
    """

    kind: str
    at: int
    resource: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        place = f"{self.resource}:{self.at}" if self.resource else str(self.at)
        return f"{self.kind}:{place}" + (f"+{self.seconds:g}" if self.seconds else "")

    def describe(self) -> str:
        """Describe the fault in words."""
        text = FAULT_DESCRIPTIONS[self.kind].format(at=self.at, resource=self.resource)
        return f"{text}, for {self.seconds:g} s" if self.seconds else text


class FaultPlan(Struct, frozen=True):
    """The faults of one run. Empty for the reference run."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return ",".join(str(fault) for fault in self.faults)

    @property
    def needs_leader_election(self) -> bool:
        """Return True if a fault requires leader election."""
        return any(fault.kind in ("lease", "delayed-write") for fault in self.faults)

    def without(self, fault: Fault) -> FaultPlan:
        """Return the plan without ``fault``."""
        return FaultPlan(tuple(other for other in self.faults if other != fault))

    @classmethod
    def from_faults(cls, faults: Iterable[Fault]) -> FaultPlan:
        """Create a plan in canonical order.

        Each call and each event keeps at most one fault.
        """
        by_place = {(fault.resource, fault.at): fault for fault in sorted(faults)}
        return cls(tuple(sorted(by_place.values(), key=lambda f: (f.resource, f.at))))

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Parse the textual form of a plan.

        Raises:
            ValueError: if a part of the text is not a fault.
        """
        return cls.from_faults(_parse_fault(part.strip()) for part in text.split(",") if part.strip())


def _parse_fault(text: str) -> Fault:
    found = _FAULT_PATTERN.fullmatch(text)
    if found is None or found["kind"] not in FAULT_DESCRIPTIONS:
        raise ValueError(f"{text!r} is not a fault: write it like crash-after:3 or delay-watch:websites:4+300")
    kind, resource = found["kind"], found["resource"] or ""
    if (kind in EVENT_FAULTS) != bool(resource):
        needs = "needs the resource of the watch" if kind in EVENT_FAULTS else "applies to a call and has no resource"
        raise ValueError(f"{text!r}: {kind} {needs}")
    seconds = float(found["seconds"] or (DELAYED_WRITE_SECONDS if kind == "delayed-write" else 0))
    if kind == "delayed-write" and seconds < _MIN_DELAYED_WRITE_SECONDS:
        raise ValueError(
            f"{text!r}: the delay must be at least {_MIN_DELAYED_WRITE_SECONDS:g} s, until another replica leads"
        )
    return Fault(kind, int(found["at"]), resource, seconds)
