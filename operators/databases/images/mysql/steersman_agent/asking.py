"""What the group has, asked of its members by one that is in none.

A set that is read a moment too early lacks what is on its way: the primary may be about to commit it, another member
may have received it and looked for no conflicts yet. Who then has it, because it has left in between, is not errant,
and must not be made anew for that. So it is certain only once

- everybody has answered who is in the group by the word of those who have, each with a majority,
- nobody counts the one who asks as a member: whatever came to it came before it was put out, in one order for all,
- nothing that came is uncertified, and what is missing is not among what was certified last,
- and it is still missing a while later: what is being certified at the moment nobody tells.

What was certain once stays so for as long as nobody has it, however busy the group is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from .group import Look
from .gtids import GtidSet

_SURELY = 10.0  # seconds for which nobody else must have it


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What the members of a group that answered have together.

    `purged` is what each has no binary logs of any more; `everybody`: no other is in the group. `majority`: somebody
    reaches most of it; `listed`: all of those count this one as a member still. `errant` is what this one has
    beside, where it is certain.
    """

    has: GtidSet
    purged: Sequence[GtidSet]
    everybody: bool
    majority: bool
    listed: bool
    errant: GtidSet


@dataclass
class Asking:
    """One member's memory of what it has asked: what seemed errant, and since when."""

    clock: Callable[[], float] = time.monotonic
    _errant: GtidSet = field(default_factory=GtidSet)
    _since: float = 0.0

    def answers(self, looks: Sequence[Look], me: Look) -> Answers | None:
        """What follows from the words of others; None where none of them is in a group."""
        inside = [look for look in looks if look.state == "ONLINE"]
        if not inside:
            return None
        has, certified = GtidSet(), GtidSet()
        for look in inside:
            has |= look.has
            certified |= look.certified
        reaching = [look for look in inside if look.majority]
        states = {member.uuid: member.state for look in inside for member in look.members}
        expected = {uuid for uuid, state in states.items() if state != "RECOVERING"}
        everybody = expected <= {look.uuid for look in inside} and len(reaching) == len(inside)
        settled = everybody and me.uuid not in states and not any(look.uncertified for look in inside)
        unknown = me.has - has
        if settled and not unknown & certified and not self._errant >= unknown:
            self._errant, self._since = unknown, self.clock()
        self._errant &= unknown
        return Answers(
            has=has,
            purged=[look.purged for look in inside],
            everybody=everybody,
            majority=bool(reaching),
            listed=bool(reaching) and all(me.uuid in {m.uuid for m in look.members} for look in reaching),
            errant=self._errant if self.clock() >= self._since + _SURELY else GtidSet(),
        )
