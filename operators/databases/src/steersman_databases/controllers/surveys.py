"""One look at a server for all who need one: for reconciles that wait, and for what changes behind our back.

A reconcile asks for a look that begins after it asked, and shares it with whoever asks meanwhile. At rest each server
is looked at every six to seven seconds, however many objects are on it, and only those that are no longer as declared
are reconciled. Nothing here must survive the process: it is filled by the first reconcile of each object.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from steersman.controller import Channel
from steersman.controller.sources import Enqueue
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.api import Database
from steersman_databases.controllers.drift import Desired, concerns, moved_between, stood_in, with_seconds
from steersman_databases.controllers.known_server import Interest, KnownServer
from steersman_databases.controllers.servers import Located
from steersman_databases.engines.desired import DesiredUser
from steersman_databases.engines.errors import (
    AccessRefused,
    AdministratorRejected,
    EngineError,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.names import possible
from steersman_databases.engines.plan import Change, Plan
from steersman_databases.engines.server import Credentials, Server
from steersman_databases.engines.settle import settle
from steersman_databases.engines.survey import NOT_YET, Scope, Survey

DATABASE = Database.api_resource.kind

LOOK_SECONDS = 6.0
"""Between two looks at a server at rest."""
VISITS = 12
"""So many databases are looked inside of each time. A visit is a connection of its own, 10 to 20 ms at both ends."""
TURNS = 3
"""Where there are more, all have had their turn in so many looks: what changed in one is found within 21 s."""
TIMEOUT_SECONDS = 15.0
_SIGN_OF_LIFE_SECONDS = 5.0
_VISIT_SECONDS = 0.5
"""So much more for each visit: a server that has many databases, or little time, is not away."""
LOGIN_SECONDS = 18.0
"""Where verifiers cannot be read, each password is tried by a login this often: one that differs is found in time."""
_LOGINS_AT_ONCE = 20
"""In each look. Where there are more than 60, who was tried longest ago is the next, and each waits longer."""
_FORGOTTEN_SECONDS = 3600.0
_DOUBT_SECONDS = 30.0
"""Where somebody's wish keeps the server from being looked at for all, each looks for itself this often."""


class ServerBusy(Exception):
    """So many work on this server that this one comes later, and is told when: see ``Surveys.tells``.

    ``retry_after``, in seconds, is for where that word is lost.
    """

    retry_after = 30.0


class Surveys:
    """The looks at all servers. A ``Source`` of one controller, whose queue it does not use: see ``tells``.

    Args:
        runtime: of the manager.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # By all that leads there, passwords included: who guesses one must not work with another's sessions.
        self._known: dict[Server, KnownServer] = {}
        self._channels: dict[str, Channel] = {}

    def tells(self, kind: str) -> Channel:
        """The source of a controller: objects of ``kind`` that are no longer as declared."""
        return self._channels.setdefault(kind, Channel("surveys"))

    async def settle(
        self, located: Located, kind: str, key: ObjectKey, desired: tuple[Desired, ...]
    ) -> tuple[Change, ...]:
        """Makes a server hold what an object wants, in this order, and keeps watch over it from now on.

        Raises:
            ServerBusy: others go first.
            EngineError: see ``engines.settle``; ``changes`` are what was changed before.
        """
        known = self._of(located)
        with self._place(known, kind, key):
            self.forget(kind, key)
            known.interests[kind, key] = Interest(desired, self.tells(kind))
            scope = Scope.of(desired)
            # What this raises is shared with others: it is not to be changed.
            try:
                survey = await self._tried(known, await self._look(known, scope), desired)
            except EngineError:
                if known.failure is None:
                    # By itself: what is looked at for all does without it.
                    self.forget(kind, key)
                raise
            changes: tuple[Change, ...] = ()
            try:
                for number, each in enumerate(desired):
                    looked = survey if number == 0 or not changes else None
                    changes += await self._settle_one(known, each, looked)
            except EngineError as error:
                error.changes = changes + error.changes
                raise
            # A new one: a look that is under way may have begun before.
            unseen = scope.inside.keys() | stood_in(survey, with_seconds(known.contents, scope))
            known.interests[kind, key] = Interest(desired, self.tells(kind), unseen)
            # One that did not open was reset, and of who is new it was set: not worth a try before the others are.
            theirs = self._credentials(known, survey, desired)
            self._remember(
                known, [c for c in theirs if c.username in survey.opened or c.username not in survey.users]
            )
            return changes

    async def _settle_one(self, known: KnownServer, desired: Desired, survey: Survey | None) -> tuple[Change, ...]:
        try:
            return await settle(known.contents, known.sessions, desired, survey, TIMEOUT_SECONDS)
        except ServerUnreachable:
            # It may be this object's trouble alone: no room for what it wants, or no time. Else the look tells all.
            with suppress(EngineError):
                await self._look(known, Scope())
            raise

    async def look(self, located: Located, kind: str, key: ObjectKey, scope: Scope) -> Survey:
        """A look at a server that begins after this was asked for, for an object.

        Raises:
            ServerBusy: others go first.
            EngineError: it cannot be looked at.
        """
        known = self._of(located)
        with self._place(known, kind, key):
            return await self._look(known, scope)

    async def in_force(
        self, located: Located, kind: str, key: ObjectKey, credentials: Credentials, like: str, database: str
    ) -> bool:
        """Whether a server keeps this password, and lets in its user from wherever it lets in the user ``like``.

        Not where that cannot be seen. As good as a login, for whoever must not log in from here.

        Raises:
            ServerBusy: others go first.
            EngineError: it cannot be looked at.
        """
        known, name = self._of(located), credentials.username
        with self._place(known, kind, key):
            survey = await self._look(known, Scope(unfollowed=frozenset({name})))
            state = survey.users.get(name)
            if state is None or not survey.verifiers_readable:
                return False
            kept = known.contents.verifies(credentials.password, state.verifier)
            return kept and (name == like or await known.contents.admits_alike(known.sessions, like, name, database))

    async def carry_out(
        self, located: Located, kind: str, key: ObjectKey, scope: Scope, planned: Callable[[Survey], Plan]
    ) -> tuple[Change, ...]:
        """Looks at a server once, for an object, and does what ``planned`` makes of it.

        Raises:
            ServerBusy: others go first.
            EngineError: it cannot be looked at or worked on; ``changes`` are what was changed before.
        """
        known = self._of(located)
        with self._place(known, kind, key):
            plan = planned(await self._look(known, scope))
            return await known.contents.carry_out(known.sessions, plan) if plan else ()

    @contextmanager
    def _place(self, known: KnownServer, kind: str, key: ObjectKey) -> Generator[None]:
        """One of the places at work on a server. Whoever finds none hears when there is one. Raises ServerBusy."""
        if known.places <= 0:
            known.parked[kind, key] = None
            raise ServerBusy
        known.parked.pop((kind, key), None)
        known.working += 1
        try:
            yield
        finally:
            known.working -= 1
            # Databases before users, who are granted something in them. Two for one, so that all places are taken
            # some time after a server has come back; not all at once, since those on their way are not counted.
            waiting = sorted(known.parked, key=lambda who: who[0] != DATABASE)
            for called in waiting[: max(0, min(known.places, 2))]:
                del known.parked[called]
                self.tells(called[0]).enqueue(called[1])

    async def _tried(
        self, known: KnownServer, survey: Survey, desired: Iterable[Desired], limit: int = 100
    ) -> Survey:
        """The survey, knowing which passwords a login found wrong, where verifiers cannot be read."""
        if survey.verifiers_readable:
            return survey
        now, server = self._runtime.clock.monotonic(), known.located.server
        known.tried = {c: at for c, at in known.tried.items() if now - at < _FORGOTTEN_SECONDS}
        there = [c for c in self._credentials(known, survey, desired) if c.username in survey.users]
        ages = {c: now - known.tried.get(c, -math.inf) for c in there}
        due = sorted((c for c, age in ages.items() if age >= LOGIN_SECONDS), key=ages.__getitem__, reverse=True)
        opened: dict[str, bool] = {}
        for credentials in due[:limit]:
            try:
                opens = await known.contents.opens(server, credentials, server.maintenance_database)
            except SqlFailed:
                # It was taken; what the user may not do with it is no matter of the password.
                opens = True
            except AccessRefused:
                # Nobody can tell from here. One that this process has not set yet is set once, and counts after that.
                if credentials in known.kept:
                    known.tried[credentials] = now
                    continue
                opens = False
            except EngineError:
                # Nobody knows, then. It comes last the next time: the server may shut out this one alone.
                known.tried[credentials] = now
                break
            opened[credentials.username] = opens
            if opens:
                self._remember(known, [credentials])
        known.kept &= known.tried.keys()
        return replace(survey, opened=opened)

    def _credentials(self, known: KnownServer, survey: Survey, desired: Iterable[Desired]) -> Iterator[Credentials]:
        """What should open a server whose verifiers cannot be read."""
        now = self._runtime.clock.now()
        for each in desired:
            if survey.verifiers_readable or not isinstance(each, DesiredUser) or not each.login:
                continue
            both = [(each.name, each.password, each.valid_until)]
            if (second := each.second) is not None:
                name = known.contents.second_username(each.name)
                both.append((name, second.password, second.valid_until))
            for name, password, end in both:
                if isinstance(password, str) and (end is None or end > now):
                    yield Credentials(name, password)

    def _remember(self, known: KnownServer, tried: Iterable[Credentials]) -> None:
        now = self._runtime.clock.monotonic()
        for credentials in tried:
            # Spread, so that those of one moment are not tried in one moment for ever.
            known.tried[credentials] = now - LOGIN_SECONDS * 0.2 * self._runtime.random.random()
            known.kept.add(credentials)

    def forget(self, kind: str, key: ObjectKey) -> None:
        """Stops to watch over what an object wanted."""
        for known in self._known.values():
            known.interests.pop((kind, key), None)
            known.parked.pop((kind, key), None)

    def _of(self, located: Located) -> KnownServer:
        known = self._known.get(located.server)
        if known is None:
            known = self._known[located.server] = KnownServer(located, located.contents.connect(located.server))
        return known

    async def _look(self, known: KnownServer, scope: Scope) -> Survey:
        now = self._runtime.clock.monotonic()
        if known.failure is not None and now < known.not_before:
            # One attempt for all: who asks meanwhile hears what it came to.
            raise known.failure.with_traceback(None)
        answer: asyncio.Future[Survey] = asyncio.get_running_loop().create_future()
        known.asked[answer] = possible(scope, known.contents.check_name)
        if known.looking is None:
            known.looking = self._runtime.spawn(self._answer(known), f"survey of {known.located.server.endpoint}")
        try:
            return await answer
        finally:
            known.asked.pop(answer, None)

    async def _answer(self, known: KnownServer) -> None:
        """Looks as long as somebody asks, for all at once who asked before it begins."""
        try:
            while known.asked:
                asked = dict(known.asked)
                known.asked.clear()
                await self._answer_all(known, asked)
        finally:
            known.looking = None

    async def _answer_all(self, known: KnownServer, asked: dict[asyncio.Future[Survey], Scope]) -> None:
        try:
            outcome = await self._looked(known, asked.values())
            if isinstance(outcome, EngineError) and known.failure is None and len(asked) > 1:
                # The server answers, but for what one of them wants: that is told to nobody else.
                each = list(asked.items())
                for some in (each[::2], each[1::2]):
                    await self._answer_all(known, dict(some))
        except asyncio.CancelledError:
            for answer in asked:
                answer.cancel()
            raise
        for answer in asked:
            if answer.done():
                continue
            if isinstance(outcome, Survey):
                answer.set_result(outcome)
            else:
                answer.set_exception(outcome)

    async def _looked(self, known: KnownServer, scopes: Iterable[Scope]) -> Survey | Exception:
        """One look for all, or why there was none. What a server says of a wish alone is no failure of its own."""
        scope = Scope()
        for each in scopes:
            scope |= each
        survey = known.contents.survey
        try:
            if isinstance(known.failure, ServerUnreachable):
                # Whoever asks holds a worker: one that was away is waited for at length only once it answers at all.
                await survey(known.sessions, Scope(), _SIGN_OF_LIFE_SECONDS)
            found = await survey(known.sessions, scope, _patience(scope))
        except (ServerUnreachable, AdministratorRejected) as error:
            self._failed(known, error)
            return error
        except EngineError as error:
            try:
                await survey(known.sessions, Scope(), _SIGN_OF_LIFE_SECONDS)
            except EngineError as own:
                self._failed(known, own)
                return own
            known.succeeded()
            return error
        except Exception as error:
            # Nobody expects it, and nobody may wait for ever because of it.
            return error
        known.succeeded()
        return found

    def _failed(self, known: KnownServer, error: EngineError) -> None:
        # All hear that it is away, whoever noticed; that it is still away is told by nobody's reconcile.
        if known.failed(error, self._runtime):
            _tell(known.interests)

    # The source.

    @property
    def name(self) -> str:
        """Its name."""
        return "surveys"

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Looks at every server from time to time, until cancelled."""
        try:
            while True:
                now = self._runtime.clock.monotonic()
                for known in self._known.values():
                    self._watch(known, now)
                await self._drop_unused()
                await self._runtime.clock.sleep(1.0)
        finally:
            rounds = [known.watching for known in self._known.values() if known.watching is not None]
            for task in rounds:
                task.cancel()
            await asyncio.gather(*rounds, return_exceptions=True)

    def _watch(self, known: KnownServer, now: float) -> None:
        if known.watching is not None and not known.watching.done():
            return
        if known.due is None:
            known.due = now + LOOK_SECONDS * self._runtime.random.random()
        if now >= known.due:
            known.due = now + LOOK_SECONDS * (0.95 + 0.1 * self._runtime.random.random())
            endpoint = known.located.server.endpoint
            known.watching = self._runtime.spawn(self._round(known), f"watch of {endpoint}")

    async def _drop_unused(self) -> None:
        for server, known in list(self._known.items()):
            if known.interests or known.parked or known.working or known.looking is not None:
                continue
            if known.watching is not None and not known.watching.done():
                continue
            del self._known[server]
            await known.sessions.close()

    async def _round(self, known: KnownServer) -> None:
        """One look at a server that nobody asked for, and word to those whom what it found concerns."""
        recovering = known.failure is not None
        if recovering and self._runtime.clock.monotonic() < known.not_before:
            return
        interests = dict(known.interests)
        known.turn += 1
        scope = _scope_of_turn(known, (d for i in interests.values() for d in i.desired))
        found = await self._looked(known, [scope])
        if not isinstance(found, Survey | EngineError):
            raise found
        if isinstance(found, EngineError):
            now = self._runtime.clock.monotonic()
            if known.failure is None and now >= known.next_doubt:
                # Each finds out whether it is the one for whom nobody can look, and all others look for themselves.
                known.next_doubt = now + _DOUBT_SECONDS
                _tell(interests)
            return
        found = await self._tried(known, found, [d for i in interests.values() for d in i.desired], _LOGINS_AT_ONCE)
        known.visited |= {name: known.turn for name in scope.inside if found.unseen.get(name) != NOT_YET}
        former, known.latest = known.latest, _joined(found, known.latest)
        if recovering:
            _tell(interests)
            return
        latest, changed = known.latest, former != known.latest
        moved = moved_between(former, latest) if former is not None and changed else frozenset[str]()
        for who, interest in interests.items():
            before = None if interest.is_first_seen(scope.inside, latest) else former
            if (changed or before is None) and concerns(known.contents, interest.desired, before, latest, moved):
                _tell({who: interest})


def _tell(interests: dict[tuple[str, ObjectKey], Interest]) -> None:
    for (_, key), interest in interests.items():
        interest.tell.enqueue(key)


def _scope_of_turn(known: KnownServer, desired: Iterable[Desired]) -> Scope:
    """Everything that can be seen from outside of databases, and the inside of some of them, in turn."""
    whole = Scope.of(desired)
    stood = stood_in(known.latest, with_seconds(known.contents, whole)) if known.latest is not None else set[str]()
    inside = {**dict.fromkeys(stood, frozenset[str]()), **whole.inside}
    known.visited = {name: known.visited.get(name, 0) for name in sorted(inside)}
    turns = max(1, min(TURNS, -(-len(inside) // VISITS)))
    # Of which nothing is known yet at once, since nothing can be compared with what was never seen.
    due = sum(not turn or turn <= known.turn - turns for turn in known.visited.values())
    share = -(-len(inside) // turns)
    waiting = sorted(known.visited, key=known.visited.__getitem__)
    chosen = {name: inside[name] for name in waiting[: max(due, share)]}
    whole = replace(whole, databases=whole.databases | stood)
    return replace(whole, inside=chosen, users=frozenset[str](), unfollowed=whole.all_users)


def _patience(scope: Scope) -> float:
    return TIMEOUT_SECONDS + _VISIT_SECONDS * len(scope.inside)


def _joined(found: Survey, former: Survey | None) -> Survey:
    if former is None:
        return found
    # Of a database that was left out this time, what was known of it is.
    anew = {d: why for d, why in found.unseen.items() if why != NOT_YET or d not in former.inside}
    kept = {d: i for d, i in former.inside.items() if d in found.databases and d not in anew}
    unseen = {d: why for d, why in former.unseen.items() if d in found.databases and d not in found.inside}
    return replace(found, inside={**kept, **found.inside}, unseen={**unseen, **anew})
