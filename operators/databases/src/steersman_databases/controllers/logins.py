"""How a user logs in: what its Secret says, and the steps by which another password comes into use.

Each is written down before the next: a reconcile that is cut off anywhere is gone on with by the one after it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec.structs import replace

from steersman.api.core_v1 import Secret
from steersman.cache import CachedClient
from steersman.client import MergePatch
from steersman.controller import EventRecorder
from steersman.meta import Duration, ObjectKey, to_builtins
from steersman_databases.api import DatabaseUser
from steersman_databases.api.users import Rotation
from steersman_databases.clusters.schedule import ROTATION_KEYS, Credentialed, Wanted, other_name, wanted
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.servers import Located
from steersman_databases.engines import Credentials
from steersman_databases.resources.connections import USER_LABELS, connection_entries, user_secret

_RETRY_SECONDS = 30.0
_LOOKS_AGAIN = timedelta(minutes=5)
_LAST_ROTATION = Rotation(every=Duration("0s"))


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What a user has now: a server, a Secret, its last rotation, and when there is something to do again."""

    server: str
    secret: str | None
    rotated: datetime | None
    wakes: datetime | None


class Failed(Exception):
    """The user cannot be provisioned now. ``retry`` is in seconds; None backs off from 2 s to 30 s.

    ``server`` is where something may have been made nevertheless; None where that is not known now.
    ``done`` is there where all is done but what is waited for.
    """

    def __init__(self, message: str, retry: float | None = _RETRY_SECONDS) -> None:
        super().__init__(message)
        self.retry = retry
        self.server: str | None = None
        self.done: Provisioned | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """How far a user is on its way from one password to the next. ``every`` is None where none is to come."""

    held: Credentialed
    secret: Secret | None
    rotation: Rotation | None
    every: timedelta | None


@dataclass(frozen=True, slots=True)
class UserLogin:
    """The login of one user at one moment. ``located`` is its server."""

    client: CachedClient
    events: EventRecorder
    user: DatabaseUser
    located: Located
    now: datetime

    @property
    def second(self) -> str:
        """The name of its second login; its own where one account has two passwords."""
        return self.located.contents.second_username(self.user.spec.user)

    async def begun(self) -> Turn:
        """With the next password chosen, where it is time for one.

        Raises Failed.
        """
        user, secret = self.user, await self._own_secret()
        held, rotation = await self._credentials(secret), user.spec.rotation
        if rotation is not None:
            held = held.lasting(rotation.overlap.timedelta)
        elif _is_for_one_role(user) and held.current.username != user.spec.user:
            rotation = _LAST_ROTATION
        # A next password could not be tried by who is let in no more.
        ended = user.spec.valid_until is not None and user.spec.valid_until <= self.now
        every = rotation.every.timedelta if rotation is not None and not ended else None
        if every is None:
            held = held.given_up()
        if secret is None:
            # The key comes before what it opens: a user without a Secret could be opened by nobody.
            secret = await self._write(held, None) if user.spec.password is None else None
        elif every is not None and held.is_due(every, secret.metadata.creation_timestamp or self.now, self.now):
            held = held.begun(other_name(held, user.spec.user, self.second), _new_password())
            secret = await self._write(held, secret)
        return Turn(held, secret, rotation, every)

    def wanted(self, turn: Turn) -> Wanted:
        """What the server is to hold meanwhile."""
        spec, rotates = self.user.spec, turn.rotation is not None
        return wanted(turn.held, spec.user, self.second, spec.valid_until, self.now, rotates)

    def declared(self, as_wanted: Wanted) -> DatabaseUser:
        """The user, but for what it cannot have as long as it has two roles."""
        if not self._waits(as_wanted):
            return self.user
        spec = replace(self.user.spec, replication=False, bypass_row_level_security=False)
        return replace(self.user, spec=spec)

    async def ended(self, turn: Turn) -> tuple[Credentialed, Secret]:
        """With the next password in use, which opens, and the former one ended where it is time for that."""
        held, switches = turn.held, turn.held.following
        if switches is not None and turn.rotation is not None:
            held = held.switched(turn.rotation.overlap.timedelta, self.now)
        elif held.until is not None and self.now >= held.until:
            held = held.ended()
        secret = await self._write(held, turn.secret)
        if switches is not None:
            former = f"the former one is valid until {held.until:%Y-%m-%dT%H:%M:%SZ}"
            told = f"Secret {secret.metadata.name} has the next password, {former}"
            self.events.normal(self.user, "Rotated", told)
        return held, secret

    def missing(self, as_wanted: Wanted, held: Credentialed) -> str:
        """What comes with the end of the second role; empty where nothing does."""
        if not self._waits(as_wanted):
            return ""
        missing = f"replication and bypassRowLevelSecurity come when {self.second} logs in no more"
        if held.until is not None and held.current.username == self.user.spec.user:
            missing = f"{missing}: {held.until:%Y-%m-%dT%H:%M:%SZ}"
        return missing

    def wakes(self, every: timedelta | None, held: Credentialed, secret: Secret) -> datetime | None:
        """When there is something to do again."""
        ends = (held.until, self.user.spec.valid_until)
        ahead = [end for end in ends if end is not None and end > self.now]
        if ahead and self.second == self.user.spec.user:
            # No server ends it by itself, and the clock may be set while this waits.
            ahead.append(self.now + _LOOKS_AGAIN)
        due = held.wakes(every, secret.metadata.creation_timestamp or self.now)
        return min((*ahead, *filter(None, [due])), default=None)

    def _waits(self, as_wanted: Wanted) -> bool:
        by_two_roles = as_wanted.second is not None and self.second != self.user.spec.user
        return by_two_roles and self.user.spec.rotation is None and _is_for_one_role(self.user)

    async def _own_secret(self) -> Secret | None:
        key = secret_key(self.user)
        secret = await find(self.client, Secret, key)
        if secret is not None and not belongs_to(secret, self.user):
            raise Failed(f"Secret {key.name} exists and does not belong to this DatabaseUser: rename one of them")
        return secret

    async def _credentials(self, secret: Secret | None) -> Credentialed:
        name = self.user.spec.user
        if self.user.spec.password is not None:
            return Credentialed(Credentials(name, await self._given_password()))
        held = self._held(secret) if secret is not None else None
        return held or Credentialed(Credentials(name, _new_password()))

    def _held(self, secret: Secret) -> Credentialed | None:
        """What a Secret says, unless somebody has made that nobody's or another's."""
        held = Credentialed.read(secret.data, self.now)
        if held is None or held.current.username not in (self.user.spec.user, self.second):
            return None
        return held.paired(other_name(held, self.user.spec.user, self.second))

    async def _given_password(self) -> str:
        selector = self.user.spec.password
        assert selector is not None
        secret = await find_live(self.client, Secret, ObjectKey(self.user.metadata.namespace, selector.name))
        if secret is None:
            raise Failed(f"there is no Secret {selector.name} with the password: create it")
        try:
            password = secret.data.get(selector.key, b"").decode()
        except UnicodeDecodeError:
            raise Failed(f"key {selector.key} of Secret {selector.name} is no text: correct it") from None
        if not password:
            raise Failed(f"Secret {selector.name} has no password under the key {selector.key}: complete it")
        return password

    async def _write(self, held: Credentialed, secret: Secret | None) -> Secret:
        """The connection Secret, saying what ``held`` and the server say."""
        server, contents, database = self.located.server, self.located.contents, self.user.database or ""
        entries = connection_entries(server, contents, held.current, database)
        data = {**entries, **held.entries()}
        if secret is None:
            created = await self.client.create(user_secret(secret_key(self.user), data), owner=self.user)
            self.events.normal(self.user, "Created", f"created Secret {created.metadata.name}")
            return created
        dropped = {key: None for key in (*ROTATION_KEYS, "ca.crt") if key in secret.data and key not in data}
        # Who lost its labels is in no cache, and nobody would hear of it again.
        labels = {key: value for key, value in USER_LABELS.items() if secret.metadata.labels.get(key) != value}
        if not dropped and not labels and all(secret.data.get(key) == value for key, value in data.items()):
            return secret
        lost = self.user.spec.password is None and self._held(secret) is None
        # Not applied by force: a password that somebody has just set must not be overwritten by the one we read.
        patch: Mapping[str, object] = {
            "metadata": {"resourceVersion": secret.metadata.resource_version, "labels": labels},
            "data": {**to_builtins(data), **dropped},
        }
        patched = await self.client.patch(Secret, secret.key, MergePatch(patch))
        wrong = {name for name, value in entries.items() if secret.data.get(name) != value}
        # Another password is otherwise a rotation's, or what somebody declared.
        if lost or labels or (wrong and "password" not in wrong):
            new = ", with a new password" if lost else ""
            self.events.normal(self.user, "SecretRepaired", f"completed Secret {secret.metadata.name}{new}")
        return patched


def secret_key(user: DatabaseUser) -> ObjectKey:
    """The Secret for applications of a user."""
    return ObjectKey(user.metadata.namespace, user.secret_name)


def belongs_to(secret: Secret, user: DatabaseUser) -> bool:
    """Whether a Secret was made for a user."""
    owner = secret.controller_reference
    return owner is not None and owner.uid == user.metadata.uid


def all_done(done: Provisioned, missing: str) -> Provisioned:
    """What is done, where nothing is waited for. Raises Failed where something is."""
    if missing:
        failed = Failed(missing, None)
        failed.done = done
        raise failed
    return done


def _is_for_one_role(user: DatabaseUser) -> bool:
    """Whether it is declared to have what membership does not carry to a second role."""
    return user.spec.replication or user.spec.bypass_row_level_security


def _new_password() -> str:
    return secrets.token_urlsafe(24)
