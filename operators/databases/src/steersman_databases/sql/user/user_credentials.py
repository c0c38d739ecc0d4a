"""Login of a user: its Secret, and the steps of a rotation.

Each step is stored before the next one, so the next reconcile continues an interrupted one.
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
from steersman_databases.api.database_user import PasswordRotation
from steersman_databases.api.group import is_adoption_requested
from steersman_databases.core.cached_reads import get_cached_or_live, get_live
from steersman_databases.core.context import adoption_advice, adoption_patch
from steersman_databases.engines import SqlCredentials
from steersman_databases.sql.connection_secret import USER_LABELS, connection_entries, user_secret
from steersman_databases.sql.server_resolver import ResolvedServer
from steersman_databases.sql.user.password_rotation import (
    ROTATION_KEYS,
    DesiredPasswords,
    RotatingCredentials,
    alternate_username,
    desired_passwords,
)

_RETRY_SECONDS = 30.0
_RECHECK_INTERVAL = timedelta(minutes=5)
_ROTATE_NOW_ONCE = PasswordRotation(every=Duration("0s"))


@dataclass(frozen=True, slots=True)
class ProvisionedUser:
    """Current state of a user: server, Secret, last rotation, next step."""

    server: str
    secret: str | None
    rotated_at: datetime | None
    next_wakeup: datetime | None


class ProvisioningFailed(Exception):
    """The user cannot be provisioned now. `retry` is in seconds; None backs off from 2 s to 30 s.

    `server` may hold objects of the user nevertheless; None if unknown. `provisioned` is set if only missing objects
    remain. `cause` is the reason that decides whether the user is stalled.
    """

    def __init__(self, message: str, retry: float | None = _RETRY_SECONDS, *, cause: str = "ProvisionFailed") -> None:
        super().__init__(message)
        self.retry_seconds = retry
        self.cause = cause
        self.server: str | None = None
        self.provisioned: ProvisionedUser | None = None


@dataclass(frozen=True, slots=True)
class RotationState:
    """Progress of a user from one password to the next. `every` is None without rotation."""

    credentials: RotatingCredentials
    secret: Secret | None
    rotation: PasswordRotation | None
    interval: timedelta | None


@dataclass(frozen=True, slots=True)
class UserCredentials:
    """Login of one user at one moment. `resolved` is its server."""

    client: CachedClient
    events: EventRecorder
    user: DatabaseUser
    resolved: ResolvedServer
    now: datetime

    @property
    def rotation_username(self) -> str:
        """Name of its second login. Equal to its own name where one account has two passwords."""
        return self.resolved.sql_engine.rotation_username(self.user.spec.user)

    async def start_rotation(self) -> RotationState:
        """Choose the next password if a rotation is due.

        Raises:
            ProvisioningFailed: the Secret cannot be used.
        """
        user, secret = self.user, await self._own_secret()
        held, rotation = await self._credentials(secret), user.spec.rotation
        if rotation is not None:
            held = held.with_overlap(rotation.overlap.timedelta)
        elif _needs_single_role(user) and held.current.username != user.spec.user:
            rotation = _ROTATE_NOW_ONCE
        # An expired user could not try the next password.
        ended = user.spec.valid_until is not None and user.spec.valid_until <= self.now
        every = rotation.every.timedelta if rotation is not None and not ended else None
        if every is None:
            held = held.without_next()
        if secret is None:
            # The Secret is written first: a login is impossible without it.
            secret = await self._write(held, None) if user.spec.password is None else None
        elif every is not None and held.is_due(every, secret.metadata.creation_timestamp or self.now, self.now):
            held = held.with_next(alternate_username(held, user.spec.user, self.rotation_username), _new_password())
            secret = await self._write(held, secret)
        return RotationState(held, secret, rotation, every)

    def desired_passwords(self, rotation_state: RotationState) -> DesiredPasswords:
        """Passwords that the server holds meanwhile."""
        spec, rotates = self.user.spec, rotation_state.rotation is not None
        return desired_passwords(
            rotation_state.credentials, spec.user, self.rotation_username, spec.valid_until, self.now, rotates
        )

    def effective_user(self, as_wanted: DesiredPasswords) -> DatabaseUser:
        """User without attributes that it cannot have while it has two roles."""
        if not self._has_deferred(as_wanted):
            return self.user
        spec = replace(self.user.spec, replication=False, bypass_row_level_security=False)
        return replace(self.user, spec=spec)

    async def finish_rotation(self, rotation_state: RotationState) -> tuple[RotatingCredentials, Secret]:
        """Activate the verified next password, and discard an expired previous one."""
        held, is_switch = rotation_state.credentials, rotation_state.credentials.next
        if is_switch is not None and rotation_state.rotation is not None:
            held = held.promoted(rotation_state.rotation.overlap.timedelta, self.now)
        elif held.previous_valid_until is not None and self.now >= held.previous_valid_until:
            held = held.without_previous()
        secret = await self._write(held, rotation_state.secret)
        if is_switch is not None:
            previous = f"the previous one is valid until {held.previous_valid_until:%Y-%m-%dT%H:%M:%SZ}"
            reported = f"Secret {secret.metadata.name} has the next password, {previous}"
            self.events.normal(self.user, "Rotated", reported)
        return held, secret

    def deferred_attributes(self, as_wanted: DesiredPasswords, credentials: RotatingCredentials) -> str:
        """Return attributes that wait for the end of the second role, or ""."""
        if not self._has_deferred(as_wanted):
            return ""
        missing = (
            f"replication and bypassRowLevelSecurity take effect after the last login of {self.rotation_username}"
        )
        if credentials.previous_valid_until is not None and credentials.current.username == self.user.spec.user:
            missing = f"{missing}: {credentials.previous_valid_until:%Y-%m-%dT%H:%M:%SZ}"
        return missing

    def next_wakeup(
        self, every: timedelta | None, credentials: RotatingCredentials, secret: Secret
    ) -> datetime | None:
        """Time of the next step."""
        expiry = (credentials.previous_valid_until, self.user.spec.valid_until)
        upcoming = [end for end in expiry if end is not None and end > self.now]
        if upcoming and self.rotation_username == self.user.spec.user:
            # No server ends the overlap by itself, and the clock may change while this waits.
            upcoming.append(self.now + _RECHECK_INTERVAL)
        due = credentials.next_due(every, secret.metadata.creation_timestamp or self.now)
        return min((*upcoming, *filter(None, [due])), default=None)

    def _has_deferred(self, as_wanted: DesiredPasswords) -> bool:
        by_two_roles = as_wanted.second_credential is not None and self.rotation_username != self.user.spec.user
        return by_two_roles and self.user.spec.rotation is None and _needs_single_role(self.user)

    async def _own_secret(self) -> Secret | None:
        key = secret_key(self.user)
        secret = await get_cached_or_live(self.client, Secret, key)
        if secret is None or belongs_to(secret, self.user):
            return secret
        restored = secret.controller_reference is None and USER_LABELS.items() <= secret.metadata.labels.items()
        if restored and is_adoption_requested(self.user):
            return await self.client.patch(Secret, key, adoption_patch(secret, self.user))
        advice = adoption_advice(DatabaseUser.api_resource.kind) if restored else ""
        raise ProvisioningFailed(
            f"Secret {key.name} exists and does not belong to this DatabaseUser. Rename one of them{advice}"
        )

    async def _credentials(self, secret: Secret | None) -> RotatingCredentials:
        name = self.user.spec.user
        if self.user.spec.password is not None:
            return RotatingCredentials(SqlCredentials(name, await self._user_password()))
        held = self._credentials_in(secret) if secret is not None else None
        return held or RotatingCredentials(SqlCredentials(name, _new_password()))

    def _credentials_in(self, secret: Secret) -> RotatingCredentials | None:
        """Credentials in a Secret, unless it belongs to another owner."""
        held = RotatingCredentials.read(secret.data, self.now)
        if held is None or held.current.username not in (self.user.spec.user, self.rotation_username):
            return None
        return held.restricted_to(alternate_username(held, self.user.spec.user, self.rotation_username))

    async def _user_password(self) -> str:
        selector = self.user.spec.password
        assert selector is not None
        secret = await get_live(self.client, Secret, ObjectKey(self.user.metadata.namespace, selector.name))
        if secret is None:
            raise ProvisioningFailed(f"Secret {selector.name} with the password does not exist. Create it")
        try:
            password = secret.data.get(selector.key, b"").decode()
        except UnicodeDecodeError:
            raise ProvisioningFailed(
                f"key {selector.key} of Secret {selector.name} is not UTF-8. Correct it"
            ) from None
        if not password:
            raise ProvisioningFailed(f"Secret {selector.name} has no password in key {selector.key}. Add it")
        return password

    async def _write(self, credentials: RotatingCredentials, secret: Secret | None) -> Secret:
        """Write the connection Secret."""
        server, contents, database = self.resolved.server, self.resolved.sql_engine, self.user.database or ""
        entries = connection_entries(server, contents, credentials.current, database)
        data = {**entries, **credentials.entries()}
        if secret is None:
            created = await self.client.create(user_secret(secret_key(self.user), data), owner=self.user)
            self.events.normal(self.user, "Created", f"created Secret {created.metadata.name}")
            return created
        dropped = {key: None for key in (*ROTATION_KEYS, "ca.crt") if key in secret.data and key not in data}
        # A Secret without its labels is in no cache, so its changes would not be observed.
        labels = {key: value for key, value in USER_LABELS.items() if secret.metadata.labels.get(key) != value}
        if not dropped and not labels and all(secret.data.get(key) == value for key, value in data.items()):
            return secret
        missing_labels = self.user.spec.password is None and self._credentials_in(secret) is None
        # Not forced: a password that a user has just set must not be overwritten by the one that was read.
        patch: Mapping[str, object] = {
            "metadata": {"resourceVersion": secret.metadata.resource_version, "labels": labels},
            "data": {**to_builtins(data), **dropped},
        }
        patched = await self.client.patch(Secret, secret.key, MergePatch(patch))
        changed = {name for name, value in entries.items() if secret.data.get(name) != value}
        # Any other password comes from a rotation or from a declared Secret.
        if missing_labels or labels or (changed and "password" not in changed):
            new = ", with a new password" if missing_labels else ""
            self.events.normal(self.user, "SecretRestored", f"completed Secret {secret.metadata.name}{new}")
        return patched


def secret_key(user: DatabaseUser) -> ObjectKey:
    """Secret with a user's connection details."""
    return ObjectKey(user.metadata.namespace, user.secret_name)


def belongs_to(secret: Secret, user: DatabaseUser) -> bool:
    """Return True if a Secret was created for the user."""
    owner = secret.controller_reference
    return owner is not None and owner.uid == user.metadata.uid


def require_complete(provisioned: ProvisionedUser, missing: str, deferred: str = "") -> ProvisionedUser:
    """Return the result if nothing is missing.

    Args:
        missing: objects that do not exist, or "".
        deferred: attributes that take effect later, or "".

    Raises:
        ProvisioningFailed: something is missing.
    """
    if missing or deferred:
        failed = ProvisioningFailed(missing or deferred, None, cause="ObjectsMissing" if missing else "Deferred")
        failed.provisioned = provisioned
        raise failed
    return provisioned


def _needs_single_role(user: DatabaseUser) -> bool:
    """Return True if attributes of the user need a single role.

    Memberships do not pass these attributes to a second role.
    """
    return user.spec.replication or user.spec.bypass_row_level_security


def _new_password() -> str:
    return secrets.token_urlsafe(24)
