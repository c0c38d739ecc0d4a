"""Shared inspections of servers, for waiting reconciles and for drift.

A reconcile requests an inspection that starts after the request, and shares it with concurrent requests. While idle,
each server is polled every six to seven seconds, whatever the number of its objects. Only objects with drift are
reconciled. No state must survive the process: the first reconcile of each object fills it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from steersman.controller import Channel, Enqueue
from steersman.meta import ObjectKey
from steersman.observability.runtime import Runtime
from steersman_databases.api import Database
from steersman_databases.engines.errors import (
    AccessDenied,
    AdministratorRejected,
    EngineError,
    ServerUnreachable,
    SqlFailed,
)
from steersman_databases.engines.password_hashing import verifies, verify_expensive
from steersman_databases.engines.server import DatabaseServer, SqlCredentials
from steersman_databases.engines.sql.desired import DesiredUser
from steersman_databases.engines.sql.identifiers import without_invalid
from steersman_databases.engines.sql.inspection import NOT_INSPECTED, Inspection, InspectionScope
from steersman_databases.engines.sql.reconcile_sql import reconcile
from steersman_databases.engines.sql.sql_plan import SqlChange, SqlPlan
from steersman_databases.sql.inspector.inspected_server import DriftSubscription, InspectedServer, Visit
from steersman_databases.sql.inspector.namespace_slots import NamespaceSlots
from steersman_databases.sql.inspector.polling_scope import TIMEOUT_SECONDS, merged, scope_of_poll, timeout_for
from steersman_databases.sql.inspector.sql_drift import (
    Desired,
    changed_grantees,
    databases_with_privileges,
    needs_reconcile,
    with_rotation_logins,
)
from steersman_databases.sql.server_resolver import ResolvedServer

DATABASE_KIND = Database.api_resource.kind

POLL_INTERVAL_SECONDS = 6.0
"""Time between two polls of an idle server."""
_LIVENESS_TIMEOUT_SECONDS = 5.0
"""Timeout of an empty inspection, which shows that a server is reachable."""
LOGIN_CHECK_SECONDS = 18.0
"""Interval of test logins per password if verifiers are not readable."""
_MAX_LOGIN_CHECKS = 20
"""Limit of test logins per poll.

With more than 60 passwords, those with the oldest test come first, and each waits longer.
"""
_LOGIN_MEMORY_SECONDS = 3600.0
_INDIVIDUAL_CHECK_SECONDS = 30.0
"""Interval of individual inspections while a shared inspection fails.

One object's desired state may prevent the shared inspection.
"""


class NoSlotFree(Exception):
    """Too many workers use this server, or serve its namespace.

    The object is enqueued when a slot is free.

    See `ServerInspector.events_for`. `retry_after` (seconds) applies if this notification is lost.
    """

    retry_after = 30.0


class ServerInspector:
    """Inspections of all servers, as a `Source` of one controller.

    It does not use the queue of this controller, see `events_for`.

    Args:
        runtime: of the manager.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        # The key includes all connection parameters and passwords: a user who guesses a password must not share
        # sessions.
        self._servers: dict[DatabaseServer, InspectedServer] = {}
        self._channels: dict[str, Channel] = {}
        self._namespaces = NamespaceSlots()

    def events_for(self, kind: str) -> Channel:
        """Return the source of objects of `kind` with drift."""
        return self._channels.setdefault(kind, Channel("surveys"))

    async def reconcile(
        self, resolved: ResolvedServer, kind: str, key: ObjectKey, desired: tuple[Desired, ...]
    ) -> tuple[SqlChange, ...]:
        """Apply an object's desired state in order, and watch it.

        Raises:
            NoSlotFree: other workers come first.
            EngineError: see `reconcile_sql.reconcile`. `changes` are those before the error.
        """
        known = self._server_for(resolved)
        with self._slot(known, kind, key):
            self.forget(kind, key)
            known.subscriptions[kind, key] = DriftSubscription(desired, self.events_for(kind))
            scope = InspectionScope.of(desired)
            # This error is shared with other requests, so it must not be modified.
            try:
                inspection = await self._check_logins(known, await self._enqueue_inspection(known, scope), desired)
            except EngineError:
                if known.failure is None:
                    # The object itself is the cause, so it is excluded from shared inspections.
                    self.forget(kind, key)
                raise
            changes: tuple[SqlChange, ...] = ()
            try:
                for number, each in enumerate(desired):
                    inspected = inspection if number == 0 or not changes else None
                    changes += await self._reconcile_one(known, each, inspected)
            except EngineError as error:
                error.changes = changes + error.changes
                raise
            # A new subscription, because a running inspection may have started earlier.
            uninspected = scope.contents.keys() | databases_with_privileges(
                inspection, with_rotation_logins(known.sql_engine, scope)
            )
            known.subscriptions[kind, key] = DriftSubscription(desired, self.events_for(kind), uninspected)
            # A refused password was reset, and that of a new user was set. Their test can wait until others were
            # tested.
            other_changes = self._credentials(known, inspection, desired)
            self._remember_good(
                known,
                [
                    c
                    for c in other_changes
                    if c.username in inspection.login_results or c.username not in inspection.users
                ],
            )
            return changes

    async def _reconcile_one(
        self, inspected: InspectedServer, desired: Desired, inspection: Inspection | None
    ) -> tuple[SqlChange, ...]:
        try:
            return await reconcile(inspected.sql_engine, inspected.sessions, desired, inspection, TIMEOUT_SECONDS)
        except ServerUnreachable:
            # The object itself may be the cause, by its size or time. Otherwise this inspection reports the failure
            # to all.
            with suppress(EngineError):
                await self._enqueue_inspection(inspected, InspectionScope())
            raise

    async def inspect(
        self, resolved: ResolvedServer, kind: str, key: ObjectKey, scope: InspectionScope
    ) -> Inspection:
        """Run an inspection for an object that starts after this call.

        Raises:
            NoSlotFree: other workers come first.
            EngineError: the inspection failed.
        """
        known = self._server_for(resolved)
        with self._slot(known, kind, key):
            return await self._enqueue_inspection(known, scope)

    async def is_effective(
        self,
        resolved: ResolvedServer,
        kind: str,
        key: ObjectKey,
        credentials: SqlCredentials,
        like: str,
        database: str,
    ) -> bool:
        """Return True if the server has this password, and equal access rules.

        The rules must admit its user from the same places as the user `like`. It replaces a login for users that may
        not
        log in from here. False if this cannot be determined.

        Raises:
            NoSlotFree: other workers come first.
            EngineError: the inspection failed.
        """
        known, name = self._server_for(resolved), credentials.username
        with self._slot(known, kind, key):
            inspection = await self._enqueue_inspection(known, InspectionScope(without_contents=frozenset({name})))
            state = inspection.users.get(name)
            if state is None or not inspection.verifiers_readable:
                return False
            kept = await verifies(known.sql_engine, credentials.password, state.verifier)
            return kept and (
                name == like or await known.sql_engine.same_hba_access(known.sessions, like, name, database)
            )

    async def execute(
        self,
        resolved: ResolvedServer,
        kind: str,
        key: ObjectKey,
        scope: InspectionScope,
        planner: Callable[[Inspection], SqlPlan],
    ) -> tuple[SqlChange, ...]:
        """Inspect a server for an object and execute the plan of `planner`.

        Raises:
            NoSlotFree: other workers come first.
            EngineError: inspection or execution failed. `changes` are those before the error.
        """
        known = self._server_for(resolved)
        with self._slot(known, kind, key):
            plan = planner(await self._enqueue_inspection(known, scope))
            return await known.sql_engine.execute(known.sessions, plan) if plan else ()

    @contextmanager
    def _slot(self, inspected: InspectedServer, kind: str, key: ObjectKey) -> Generator[None]:
        """Reserve a slot, or enqueue the object for a later one.

        Raises NoSlotFree.
        """
        if inspected.free_slots <= 0:
            inspected.waiting[kind, key] = None
            raise NoSlotFree
        if not self._namespaces.acquire((kind, key)):
            raise NoSlotFree
        inspected.waiting.pop((kind, key), None)
        inspected.active += 1
        try:
            yield
        finally:
            inspected.active -= 1
            for waiting_kind, waiting_key in self._namespaces.release(key.namespace):
                self.events_for(waiting_kind).enqueue(waiting_key)
            # Databases come before users, whose grants need them. Two objects per free slot fill all slots some time
            # after a server has recovered. More would be too many, because objects on their way are not counted.
            waiting = sorted(inspected.waiting, key=lambda who: who[0] != DATABASE_KIND)
            for subscription_key in waiting[: max(0, min(inspected.free_slots, 2))]:
                del inspected.waiting[subscription_key]
                self.events_for(subscription_key[0]).enqueue(subscription_key[1])

    async def _check_logins(
        self, inspected: InspectedServer, inspection: Inspection, desired: Iterable[Desired], limit: int = 100
    ) -> Inspection:
        """Add the results of test logins if verifiers are not readable."""
        if inspection.verifiers_readable:
            return inspection
        now, server = self._runtime.clock.monotonic(), inspected.resolved.server
        inspected.login_checked_at = {
            c: at for c, at in inspected.login_checked_at.items() if now - at < _LOGIN_MEMORY_SECONDS
        }
        there = [c for c in self._credentials(inspected, inspection, desired) if c.username in inspection.users]
        ages = {c: now - inspected.login_checked_at.get(c, -math.inf) for c in there}
        due = sorted((c for c, age in ages.items() if age >= LOGIN_CHECK_SECONDS), key=ages.__getitem__, reverse=True)
        results: dict[str, bool] = {}
        for credentials in due[:limit]:
            try:
                opens = await inspected.sql_engine.can_log_in(server, credentials, server.maintenance_database)
            except SqlFailed:
                # The password was accepted. Missing rights of the user do not matter.
                opens = True
            except AccessDenied:
                # Access rules prevent a test. A password that this process has not set yet is set once and counts
                # afterwards.
                if credentials in inspected.good_logins:
                    inspected.login_checked_at[credentials] = now
                    continue
                opens = False
            except EngineError:
                # Unknown. It comes last next time, because the server may reject only this one.
                inspected.login_checked_at[credentials] = now
                break
            results[credentials.username] = opens
            if opens:
                self._remember_good(inspected, [credentials])
        inspected.good_logins &= inspected.login_checked_at.keys()
        return replace(inspection, login_results=results)

    def _credentials(
        self, inspected: InspectedServer, inspection: Inspection, desired: Iterable[Desired]
    ) -> Iterator[SqlCredentials]:
        """Yield the credentials to test if verifiers are not readable."""
        now = self._runtime.clock.now()
        for each in desired:
            if inspection.verifiers_readable or not isinstance(each, DesiredUser) or not each.login:
                continue
            both = [(each.name, each.password, each.valid_until)]
            if (second := each.second_credential) is not None:
                name = inspected.sql_engine.rotation_username(each.name)
                both.append((name, second.password, second.valid_until))
            for name, password, end in both:
                if isinstance(password, str) and (end is None or end > now):
                    yield SqlCredentials(name, password)

    def _remember_good(self, inspected: InspectedServer, credentials_list: Iterable[SqlCredentials]) -> None:
        now = self._runtime.clock.monotonic()
        for credentials in credentials_list:
            # Spread, so that passwords of the same time are not always tested together.
            inspected.login_checked_at[credentials] = now - LOGIN_CHECK_SECONDS * 0.2 * self._runtime.random.random()
            inspected.good_logins.add(credentials)

    def forget(self, kind: str, key: ObjectKey) -> None:
        """Stop watching an object."""
        for known in self._servers.values():
            known.subscriptions.pop((kind, key), None)
            known.waiting.pop((kind, key), None)

    def _server_for(self, resolved: ResolvedServer) -> InspectedServer:
        known = self._servers.get(resolved.server)
        if known is None:
            known = self._servers[resolved.server] = InspectedServer(
                resolved, resolved.sql_engine.connect(resolved.server)
            )
        return known

    async def _enqueue_inspection(self, inspected: InspectedServer, scope: InspectionScope) -> Inspection:
        now = self._runtime.clock.monotonic()
        if inspected.failure is not None and now < inspected.retry_at:
            # One attempt serves all: concurrent requests receive its result.
            raise inspected.failure.with_traceback(None)
        answer: asyncio.Future[Inspection] = asyncio.get_running_loop().create_future()
        inspected.requests[answer] = without_invalid(scope, inspected.sql_engine.check_name)
        if inspected.task is None:
            inspected.task = self._runtime.spawn(
                self._run_inspections(inspected), f"survey of {inspected.resolved.server.endpoint}"
            )
        try:
            return await answer
        finally:
            inspected.requests.pop(answer, None)

    async def _run_inspections(self, inspected: InspectedServer) -> None:
        """Run inspections while there are requests, each for all pending ones."""
        try:
            while inspected.requests:
                requests = dict(inspected.requests)
                inspected.requests.clear()
                await self._run_batch(inspected, requests)
        finally:
            inspected.task = None

    async def _run_batch(
        self, inspected: InspectedServer, requests: dict[asyncio.Future[Inspection], InspectionScope]
    ) -> None:
        try:
            outcome = await self._inspect_all(inspected, requests.values())
            if isinstance(outcome, EngineError) and inspected.failure is None and len(requests) > 1:
                # The server responds, but one of the requests fails. Halving the batch isolates it from the others.
                each = list(requests.items())
                for some in (each[::2], each[1::2]):
                    await self._run_batch(inspected, dict(some))
        except asyncio.CancelledError:
            for answer in requests:
                answer.cancel()
            raise
        for answer in requests:
            if answer.done():
                continue
            if isinstance(outcome, Inspection):
                answer.set_result(outcome)
            else:
                answer.set_exception(outcome)

    async def _inspect_all(
        self, inspected: InspectedServer, scopes: Iterable[InspectionScope]
    ) -> Inspection | Exception:
        """Run one inspection for all scopes, or return its error.

        An error that depends on a scope is not a failure of the server.
        """
        scope = InspectionScope.union(scopes)
        inspection = inspected.sql_engine.inspect
        try:
            if isinstance(inspected.failure, ServerUnreachable):
                # Each request occupies a worker, so a long wait follows only after an unreachable server has
                # responded.
                await inspection(inspected.sessions, InspectionScope(), _LIVENESS_TIMEOUT_SECONDS)
            found = await inspection(inspected.sessions, scope, timeout_for(scope))
        except (ServerUnreachable, AdministratorRejected) as error:
            self._record_failure(inspected, error)
            return error
        except EngineError as error:
            try:
                await inspection(inspected.sessions, InspectionScope(), _LIVENESS_TIMEOUT_SECONDS)
            except EngineError as own:
                self._record_failure(inspected, own)
                return own
            inspected.record_success()
            return error
        except Exception as error:
            # An unexpected error must not leave requests waiting.
            return error
        inspected.record_success()
        return found

    def _record_failure(self, inspected: InspectedServer, error: EngineError) -> None:
        # All subscribers are notified when the server becomes unreachable, but not while it stays so.
        if inspected.record_failure(error, self._runtime):
            _notify(inspected.subscriptions)

    # The source.

    @property
    def name(self) -> str:
        """Name of the source."""
        return "surveys"

    async def run(self, enqueue: Enqueue, runtime: Runtime) -> None:
        """Poll all servers until cancelled."""
        try:
            while True:
                now = self._runtime.clock.monotonic()
                for known in self._servers.values():
                    self._schedule_poll(known, now)
                await self._drop_unused()
                await self._runtime.clock.sleep(1.0)
        finally:
            rounds = [known.poll_task for known in self._servers.values() if known.poll_task is not None]
            for task in rounds:
                task.cancel()
            await asyncio.gather(*rounds, return_exceptions=True)

    def _schedule_poll(self, inspected: InspectedServer, now: float) -> None:
        if inspected.poll_task is not None and not inspected.poll_task.done():
            return
        if inspected.next_poll is None:
            inspected.next_poll = now + POLL_INTERVAL_SECONDS * self._runtime.random.random()
        if now >= inspected.next_poll:
            inspected.next_poll = now + POLL_INTERVAL_SECONDS * (0.95 + 0.1 * self._runtime.random.random())
            endpoint = inspected.resolved.server.endpoint
            inspected.poll_task = self._runtime.spawn(self._poll(inspected), f"watch of {endpoint}")

    async def _drop_unused(self) -> None:
        for server, known in list(self._servers.items()):
            if known.subscriptions or known.waiting or known.active or known.task is not None:
                continue
            if known.poll_task is not None and not known.poll_task.done():
                continue
            del self._servers[server]
            await known.sessions.close()

    async def _poll(self, inspected: InspectedServer) -> None:
        """Poll a server, and notify the objects with drift."""
        recovering = inspected.failure is not None
        if recovering and self._runtime.clock.monotonic() < inspected.retry_at:
            return
        subscriptions = dict(inspected.subscriptions)
        inspected.round += 1
        counters, now = await inspected.write_counters(), self._runtime.clock.monotonic()
        scope = scope_of_poll(inspected, (d for i in subscriptions.values() for d in i.desired), counters, now)
        found = await self._inspect_all(inspected, [scope])
        if not isinstance(found, Inspection | EngineError):
            raise found
        if isinstance(found, EngineError):
            now = self._runtime.clock.monotonic()
            inspected.visits.clear()
            if inspected.failure is None and now >= inspected.next_individual_check:
                # Each object is reconciled to find the one that prevents the shared inspection. All others inspect
                # individually.
                inspected.next_individual_check = now + _INDIVIDUAL_CHECK_SECONDS
                _notify(subscriptions)
            return
        everyone = [d for i in subscriptions.values() for d in i.desired]
        found = await self._check_logins(inspected, found, everyone, _MAX_LOGIN_CHECKS)
        inspected.last_round_of |= {
            name: inspected.round for name in scope.contents if found.uninspected.get(name) != NOT_INSPECTED
        }
        inspected.visits |= {name: Visit(counters[name], now) for name in counters.keys() & found.contents.keys()}
        previous, inspected.last = inspected.last, merged(found, inspected.last)
        if recovering:
            _notify(subscriptions)
            return
        latest, changed = inspected.last, previous != inspected.last
        await verify_expensive(inspected.sql_engine, latest, everyone)
        grantees_changed = (
            changed_grantees(previous, latest) if previous is not None and changed else frozenset[str]()
        )
        for grantees, subscription in subscriptions.items():
            before = None if subscription.is_fully_inspected(scope.contents, latest) else previous
            if (changed or before is None) and needs_reconcile(
                inspected.sql_engine, subscription.desired, before, latest, grantees_changed
            ):
                _notify({grantees: subscription})


def _notify(subscriptions: dict[tuple[str, ObjectKey], DriftSubscription]) -> None:
    for (_, key), subscription in subscriptions.items():
        subscription.channel.enqueue(key)
