"""Transactions of the group, queried by a member outside of it.

A set that is read too early lacks transactions in progress: the primary may be about to commit one, or another
member may have received but not certified it. A member that has such a transaction after leaving the group is not
errant, and must not be recreated. So a transaction is certainly errant only if

- all members of the group, as listed by those that responded, have responded, each with a majority,
- no member lists the querying one: all that it received came before its expulsion, in one order for all,
- no received transaction is uncertified, and the missing ones are not among the last certified ones,
- and it is still missing a while later, because no member reports transactions during certification.

A certain result stays as long as no member has the transaction, however busy the group is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from steersman_instance.gtids import GtidSet

from .group_status import ServerStatus

_CONFIRMED_AFTER_SECONDS = 10.0  # seconds for which no other member has it


@dataclass(frozen=True, kw_only=True)
class GroupAnswer:
    """Combined response of the members of a group.

    Attributes:
        executed: transactions of all responding members.
        purged: per member, transactions without binary logs.
        all_answered: all members of the group have responded.
        has_majority: at least one member reaches a majority.
        is_listed: all of these list the querying member.
        errant_gtids: certain errant transactions of the querying member.
    """

    executed: GtidSet
    purged: Sequence[GtidSet]
    all_answered: bool
    has_majority: bool
    is_listed: bool
    errant_gtids: GtidSet


@dataclass
class GroupQuery:
    """Transactions that seemed errant, and since when."""

    clock: Callable[[], float] = time.monotonic
    _errant: GtidSet = field(default_factory=GtidSet)
    _since: float = 0.0

    def evaluate(self, statuses: Sequence[ServerStatus], me: ServerStatus) -> GroupAnswer | None:
        """Evaluate the statuses of others.

        None if none of them is in a group.
        """
        in_group = [status for status in statuses if status.state == "ONLINE"]
        if not in_group:
            return None
        has, certified = GtidSet(), GtidSet()
        for look in in_group:
            has |= look.executed
            certified |= look.certified
        reaching = [look for look in in_group if look.has_majority]
        states = {member.uuid: member.state for look in in_group for member in look.members}
        expected = {uuid for uuid, state in states.items() if state != "RECOVERING"}
        everybody = expected <= {look.uuid for look in in_group} and len(reaching) == len(in_group)
        confirmed = everybody and me.uuid not in states and not any(look.uncertified for look in in_group)
        unknown = me.executed - has
        if confirmed and not unknown & certified and not self._errant >= unknown:
            self._errant, self._since = unknown, self.clock()
        self._errant &= unknown
        return GroupAnswer(
            executed=has,
            purged=[look.purged for look in in_group],
            all_answered=everybody,
            has_majority=bool(reaching),
            is_listed=bool(reaching) and all(me.uuid in {m.uuid for m in look.members} for look in reaching),
            errant_gtids=self._errant if self.clock() >= self._since + _CONFIRMED_AFTER_SECONDS else GtidSet(),
        )
