"""MySQL servers and their groups as a model, which group_contract.py holds to the real ones.

Of a group's promises there are these:

- A transaction is acknowledged once it is on the primary's disk, and most of the group have received it. They have it
  in memory alone until they have written it.
- Who does not answer is put out after some seconds by those who are most of the group. Without most of it nobody is
  put out, nothing is acknowledged, and who is left gives up after some more.
- The primary's successor is of the lowest version, of these the one of the highest weight, then of the lowest UUID.
  It writes down what it has received before it takes writes.
- Nobody comes in who has what the group has not. Who is coming in when nobody is left who could send him the rest
  gives up.

Networks that are cut are not modelled: founding_world.py has them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from steersman_agent.group.group_status import GroupPeer, ServerQueryFailed, ServerStatus
from steersman_instance.gtids import GtidSet

DETECTION_SECONDS = 5.0  # seconds until who is silent is found out, and put out
EXPEL_SECONDS = 10.0  # seconds more until who has no majority leaves (unreachable_majority_timeout)
RECOVERY_SECONDS = 2.0
FLUSH_SECONDS = 0.5
START_SECONDS = 1.0
VERSION = "9.7.4"
PLUGIN = "group_replication_"


@dataclass(eq=False)
class SimulatedMysqld:
    """A volume with its data, and the server that runs on them while one does."""

    name: str
    address: str = ""
    has_data: bool = False
    uuid: str = ""
    version: str = VERSION
    durable: GtidSet = field(default_factory=GtidSet)
    memory: GtidSet = field(default_factory=GtidSet)
    runs: bool = False
    group: SimulatedGroup | None = None
    state: str = "OFFLINE"
    since: float = 0.0
    """When it came to this state."""
    answers_at: float = 0.0
    received_at: float = 0.0
    variables: dict[str, str] = field(default_factory=dict[str, str])
    copies: int = 0

    @property
    def has(self) -> GtidSet:
        return self.durable | self.memory


@dataclass(eq=False)
class ViewMember:
    """A server in a group's view: it may be there no more, or another start of it may be."""

    server: SimulatedMysqld
    uuid: str
    lost: float | None = None


@dataclass(eq=False)
class SimulatedGroup:
    """One that was founded."""

    number: int
    name: str
    seats: list[ViewMember]
    primary: str
    views: int = 1

    @property
    def view(self) -> str:
        return f"{1000 + self.number}:{self.views}"

    @property
    def alive(self) -> list[SimulatedMysqld]:
        return [seat.server for seat in self.seats if seat.lost is None]

    @property
    def serves(self) -> bool:
        return len(self.alive) * 2 > len(self.seats)

    def leave(self, server: SimulatedMysqld, now: float) -> None:
        """It goes in order: the others hear of it, if they are enough to agree."""
        [seat] = [seat for seat in self.seats if seat.server is server and seat.lost is None]
        if not self.serves:
            seat.lost = now
            return
        self.seats.remove(seat)
        self.views += 1
        self.elect()

    def elect(self) -> None:
        """Where the primary is gone."""
        online = [s for s in self.alive if s.state == "ONLINE"]
        if self.primary in {s.uuid for s in online} or not online:
            return
        heir = min(self.eligible, key=lambda s: (-int(s.variables.get(f"{PLUGIN}member_weight", "50")), s.uuid))
        heir.durable, heir.memory, self.primary = heir.has, GtidSet(), heir.uuid

    @property
    def eligible(self) -> list[SimulatedMysqld]:
        """Those of the lowest version."""
        online = [s for s in self.alive if s.state == "ONLINE"]
        lowest = min((_parts(s.version) for s in online), default=())
        return [s for s in online if _parts(s.version) == lowest]


@dataclass
class SimulatedServers:
    """All servers there are. Whatever time has brought about is so with the next thing that is asked.

    Attributes:
        acknowledged: what clients were told is kept.
        given_up: what a person may have agreed to lose of that.
        wrong: what must never be.
        changes: how often something has come about that others may want to look at; writes are none of it.
    """

    clock: Callable[[], float]
    seed: int = 0
    all: dict[str, SimulatedMysqld] = field(default_factory=dict[str, SimulatedMysqld])
    groups: list[SimulatedGroup] = field(default_factory=list[SimulatedGroup])
    founded: list[str] = field(default_factory=list[str])
    initialised: int = 0
    acknowledged: GtidSet = field(default_factory=GtidSet)
    given_up: GtidSet = field(default_factory=GtidSet)
    violations: list[str] = field(default_factory=list[str])
    changes: int = 0

    def advance(self) -> None:
        """Has come about what was to by now."""
        now = self.clock()
        for server in self.all.values():
            if server.memory and now >= server.received_at + FLUSH_SECONDS:
                server.durable, server.memory = server.has, GtidSet()
        for group in [*self.groups]:
            self._put_out(group, now)
            self._give_up(group, now)
            self._recover(group, now)
            if not group.alive:
                self.groups.remove(group)
        if len(primaries := self.primaries()) > 1:
            self.violations.append(f"{', '.join(p.name for p in primaries)} take writes at once")

    def _put_out(self, group: SimulatedGroup, now: float) -> None:
        gone = [s for s in group.seats if s.lost is not None and now >= s.lost + DETECTION_SECONDS]
        if gone and group.serves:
            group.seats = [s for s in group.seats if s not in gone]
            group.views += 1
            self.changes += 1
            group.elect()

    def _give_up(self, group: SimulatedGroup, now: float) -> None:
        lost = sorted(s.lost for s in group.seats if s.lost is not None)
        if not group.serves and lost and now >= lost[-1] + DETECTION_SECONDS + EXPEL_SECONDS:
            for server in group.alive:
                server.group, server.state, server.since = None, "ERROR", now
            group.seats = []
            self.changes += 1

    def _recover(self, group: SimulatedGroup, now: float) -> None:
        donors = [s for s in group.alive if s.state == "ONLINE"]
        recovering = [s for s in group.alive if s.state == "RECOVERING"]
        for server in recovering:
            if donors and now >= server.since + RECOVERY_SECONDS:
                server.durable, server.memory = server.has | donors[0].has, GtidSet()
                server.state, server.since = "ONLINE", now
                self.changes += 1
        if recovering and len(recovering) == len(group.seats):
            # All donors have left: it gives up, and says so by leaving.
            for server in recovering:
                server.group, server.state, server.since = None, "ERROR", now
            group.seats = []
            self.changes += 1

    def primaries(self) -> list[SimulatedMysqld]:
        """Those who take writes."""
        return [s for g in self.groups if g.serves for s in g.alive if s.uuid == g.primary and s.state == "ONLINE"]

    def server_at(self, address: str) -> SimulatedMysqld | None:
        """Who answers there."""
        return next((s for s in self.all.values() if s.runs and s.address == address), None)

    # What is done with servers.

    def start(self, server: SimulatedMysqld, variables: Mapping[str, str]) -> None:
        if not server.uuid:
            server.copies += 1
            server.uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{self.seed} {server.name} {server.copies}"))
        server.runs, server.answers_at, server.variables = True, self.clock() + START_SECONDS, dict(variables)
        self.changes += 1

    def kill(self, server: SimulatedMysqld) -> None:
        """What it had in memory is gone, and nobody was told."""
        self.advance()
        if server.group is not None:
            for seat in server.group.seats:
                if seat.server is server and seat.lost is None:
                    seat.lost = self.clock()
        if server.runs:
            self.changes += 1
        server.runs, server.group, server.state, server.memory = False, None, "OFFLINE", GtidSet()

    def shut_down(self, server: SimulatedMysqld) -> None:
        """In order: it leaves its group."""
        self.leave(server)
        server.runs = False

    def leave(self, server: SimulatedMysqld) -> None:
        self.advance()
        if server.group is not None:
            server.group.leave(server, self.clock())
        server.durable, server.memory = server.has, GtidSet()
        server.group, server.state = None, "OFFLINE"
        self.changes += 1

    def bootstrap(self, server: SimulatedMysqld, name: str) -> None:
        """A group of its own, whoever is in one."""
        self.advance()
        missing = self.acknowledged - server.has - self.given_up
        if missing:
            self.violations.append(f"{server.name} founds a group, and lacks {missing}")
        self.acknowledged &= server.has
        if serving := [g for g in self.groups if g.serves]:
            self.violations.append(f"{server.name} founds a group while {serving[0].alive[0].name} is in one")
        self.founded.append(server.name)
        group = SimulatedGroup(len(self.founded), name, [ViewMember(server, server.uuid)], server.uuid)
        self.groups.append(group)
        server.group, server.state, server.since = group, "ONLINE", self.clock()
        self.changes += 1

    def join(self, server: SimulatedMysqld, name: str, seeds: str) -> None:
        """Raises Unreachable."""
        self.advance()
        found = [s for a in seeds.split(",") if (s := self.server_at(a)) is not None and s.group is not None]
        group = found[0].group if found else None
        if group is None or not group.serves or group.name != name:
            raise server_error(3092, "no group answered that takes it in")
        if server.uuid in {seat.uuid for seat in group.seats}:
            raise server_error(3092, "the group has not put its former self out yet")
        known = GtidSet()
        for one in group.alive:
            known |= one.has
        if not known >= server.has:
            raise server_error(3092, "it has transactions that the group has not")
        group.seats.append(ViewMember(server, server.uuid))
        group.views += 1
        server.group, server.state, server.since = group, "RECOVERING", self.clock()
        self.changes += 1

    def appoint(self, server: SimulatedMysqld, heir: str) -> None:
        """Raises Unreachable."""
        self.advance()
        group = server.group
        eligible = group.eligible if group is not None and group.serves else []
        if group is None or heir not in {s.uuid for s in eligible}:
            raise server_error(3910, "the requested member cannot be the primary")
        for one in eligible:
            one.durable, one.memory = one.has, GtidSet()
        group.primary = heir
        self.changes += 1

    def write(self, server: SimulatedMysqld) -> bool:
        """A client commits something; whether it was acknowledged."""
        self.advance()
        if server not in self.primaries() or server.group is None:
            return False
        name = server.group.name
        if lost := self.acknowledged - server.has:
            self.violations.append(f"{server.name} accepts writes, and lacks {lost}")
        taken = server.has.intervals.get(name, ())
        new = GtidSet.parse(f"{name}:{taken[-1][1] + 1 if taken else 1}")
        if self.acknowledged & new:
            self.violations.append(f"{server.name} gives the number {new} again")
        server.durable |= new
        for one in server.group.alive:
            if one is not server:
                one.memory, one.received_at = one.memory | new, self.clock()
        self.acknowledged |= new
        return True

    def status_of(self, server: SimulatedMysqld) -> ServerStatus:
        """Raises Unreachable."""
        self.advance()
        if not server.runs or self.clock() < server.answers_at:
            raise ServerQueryFailed(OSError(2002, "it does not answer"))
        return ServerStatus(
            uuid=server.uuid,
            version=server.version,
            state=server.state,
            view="" if server.group is None else server.group.view,
            members=self._seen(server),
            executed=server.has,
            apply_queue=0,
            applied=len(server.durable),
        )

    def _seen(self, server: SimulatedMysqld) -> list[GroupPeer]:
        if server.group is None:
            return [_other(server, server.uuid, server.state, primary=False)]
        group, now = server.group, self.clock()
        return [
            _other(seat.server, seat.uuid, _state(seat, now), primary=seat.uuid == group.primary)
            for seat in group.seats
        ]


def _state(seat: ViewMember, now: float) -> str:
    if seat.lost is None:
        return seat.server.state
    return "UNREACHABLE" if now >= seat.lost + DETECTION_SECONDS else "ONLINE"


def _other(server: SimulatedMysqld, uuid_: str, state: str, *, primary: bool) -> GroupPeer:
    host, _, port = server.address.rpartition(":")
    return GroupPeer(uuid=uuid_, host=host, port=int(port or 0), state=state, primary=primary)


def server_error(code: int, words: str) -> ServerQueryFailed:
    """As a server answers."""
    return ServerQueryFailed(Exception(code, words))


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
