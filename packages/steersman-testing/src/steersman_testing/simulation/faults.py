"""What is made to go wrong, as data: a plan is a text that a person can read and a test can replay.

``crash-after:3`` ends the process right after the operator's third call; ``delay-watch:websites:4+300`` holds back
the watch of websites before its fourth event, for 300 seconds; several are joined by commas.
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
    "crash-after": "the process is killed after call {at}: it was carried out, and nobody read the answer",
    "lost": "call {at} is carried out, its answer is lost",
    "timeout": "call {at} never arrives, and the operator does not learn it",
    "error": "call {at} fails",
    "409": "call {at} is refused as a conflict",
    "429": "call {at} is refused: too many requests",
    "500": "call {at} is refused: internal error",
    "concurrent-write": "another actor writes the same object just before call {at}",
    "lease": "another replica takes the lease while call {at} is under way",
    "delayed-write": "call {at} is on its way while another replica takes over",
    "delay-watch": "the watch of {resource} is held back before its event {at}",
    "relist": "the watch of {resource} is lost before its event {at}, and comes back by a new list",
    "disconnect": "the watch of {resource} breaks before its event {at}",
    "crash-on-event": "the process is killed before event {at} of {resource}",
}

DELAYED_WRITE_SECONDS = 25.0
"""Seconds after which a request arrives that another replica has overtaken: it leads after 15 to 20."""
_MIN_DELAYED_WRITE_SECONDS = 20.0

_FAULT_PATTERN = re.compile(
    r"(?P<kind>[a-z0-9-]+):(?:(?P<resource>[^:+,]+):)?(?P<at>\d+)(?:\+(?P<seconds>\d+(?:\.\d+)?))?"
)


class Fault(Struct, frozen=True, order=True):
    """One thing that goes wrong, at one place.

    Attributes:
        kind: one of ``CALL_FAULTS`` or ``EVENT_FAULTS``.
        at: the number of the operator's call, or of the event, from 1.
        resource: for events, of which watch: ``plural.group``, or ``plural`` in the core group.
        seconds: how long the process stays away, the watch is held back, or the call is on its way.
    """

    kind: str
    at: int
    resource: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        place = f"{self.resource}:{self.at}" if self.resource else str(self.at)
        return f"{self.kind}:{place}" + (f"+{self.seconds:g}" if self.seconds else "")

    def describe(self) -> str:
        """For people."""
        text = FAULT_DESCRIPTIONS[self.kind].format(at=self.at, resource=self.resource)
        return f"{text}, for {self.seconds:g} s" if self.seconds else text


class FaultPlan(Struct, frozen=True):
    """The faults of one run; empty for the run without any."""

    faults: tuple[Fault, ...] = ()

    def __str__(self) -> str:
        return ",".join(str(fault) for fault in self.faults)

    @property
    def needs_leader_election(self) -> bool:
        """Whether the run needs leader election."""
        return any(fault.kind in ("lease", "delayed-write") for fault in self.faults)

    def without(self, fault: Fault) -> FaultPlan:
        """The same plan, less one fault."""
        return FaultPlan(tuple(other for other in self.faults if other != fault))

    @classmethod
    def from_faults(cls, faults: Iterable[Fault]) -> FaultPlan:
        """A plan in the one order that it is written in; each call and each event has one fault at most."""
        by_place = {(fault.resource, fault.at): fault for fault in sorted(faults)}
        return cls(tuple(sorted(by_place.values(), key=lambda f: (f.resource, f.at))))

    @classmethod
    def parse(cls, text: str) -> FaultPlan:
        """Reads what ``str`` wrote.

        Raises:
            ValueError: it is no plan; says which part.
        """
        return cls.from_faults(_parse_fault(part.strip()) for part in text.split(",") if part.strip())


def _parse_fault(text: str) -> Fault:
    found = _FAULT_PATTERN.fullmatch(text)
    if found is None or found["kind"] not in FAULT_DESCRIPTIONS:
        raise ValueError(f"{text!r} is no fault; one is written as crash-after:3 or delay-watch:websites:4+300")
    kind, resource = found["kind"], found["resource"] or ""
    if (kind in EVENT_FAULTS) != bool(resource):
        needs = (
            "names the resource whose watch it is" if kind in EVENT_FAULTS else "is at a call and names no resource"
        )
        raise ValueError(f"{text!r}: {kind} {needs}")
    seconds = float(found["seconds"] or (DELAYED_WRITE_SECONDS if kind == "delayed-write" else 0))
    if kind == "delayed-write" and seconds < _MIN_DELAYED_WRITE_SECONDS:
        raise ValueError(
            f"{text!r}: another replica leads after {_MIN_DELAYED_WRITE_SECONDS:g} s, and only then is the call late"
        )
    return Fault(kind, int(found["at"]), resource, seconds)
