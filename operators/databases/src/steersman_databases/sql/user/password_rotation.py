"""Password rotation: state in the Secret, desired passwords, next step.

The Secret holds all state, since applications read it anyway. Each write to it is one step, so the process may end
between any two:

    current                   in use
    current, next             the server learns the next password, and it is tried
    current, previous         applications use the new one; the previous one is valid until the overlap ends
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from steersman_databases.engines.server import SqlCredentials
from steersman_databases.engines.sql.desired import Password, PasswordDirective, SecondCredential

Data = Mapping[str, bytes]

ROTATION_KEYS = (
    *("next-username", "next-password", "previous-username", "previous-password", "previous-until"),
    "rotated-at",
)
_USERNAME, _PASSWORD = "username", "password"
_NEVER_ROTATED = datetime(2000, 1, 1, tzinfo=UTC)
_CLOCK_SKEW = timedelta(
    days=1
)  # by which a clock may be set back, or another be ahead: as much as time zones may differ


@dataclass(frozen=True, slots=True)
class RotatingCredentials:
    """Credentials of one user as its Secret holds them.

    `rotated` is the time of the last rotation. `until` is the end of the previous password's validity.
    """

    current: SqlCredentials
    next: SqlCredentials | None = None
    previous: SqlCredentials | None = None
    rotated_at: datetime | None = None
    previous_valid_until: datetime | None = None

    @classmethod
    def read(cls, data: Data, now: datetime) -> RotatingCredentials | None:
        """Parse a Secret. Returns None without a user name or a password.

        An overlap without a valid start and end is treated as over.
        """
        current = _credentials_in(data, "")
        if current is None:
            return None
        previous, rotated = _credentials_in(data, "previous-"), _parse_time(data.get("rotated-at", b""))
        if rotated is not None and rotated > now + _CLOCK_SKEW:
            rotated = None
        until = None
        if previous is not None:
            # A password that a user wants to replace must not stay valid for ever.
            until = (_parse_time(data.get("previous-until", b"")) if rotated is not None else None) or _NEVER_ROTATED
            rotated = rotated or _NEVER_ROTATED
        return cls(current, _credentials_in(data, "next-"), previous, rotated, until)

    def entries(self) -> dict[str, bytes]:
        """Entries of the Secret for the rotation, without user name and password."""
        entries: dict[str, bytes] = {}
        for prefix, credentials in (("next-", self.next), ("previous-", self.previous)):
            if credentials is not None:
                entries[f"{prefix}username"] = credentials.username.encode()
                entries[f"{prefix}password"] = credentials.password.encode()
        if self.previous_valid_until is not None:
            entries["previous-until"] = self.previous_valid_until.isoformat().encode()
        if self.rotated_at is not None:
            entries["rotated-at"] = self.rotated_at.isoformat().encode()
        return entries

    def is_due(self, every: timedelta, since: datetime, now: datetime) -> bool:
        """Return True if the next rotation is due. `since`: start of the first password's use."""
        return self.next is None and self.previous is None and now >= _add_saturating(self.rotated_at or since, every)

    def with_next(self, username: str, password: str) -> RotatingCredentials:
        """Copy with the next password chosen."""
        return replace(self, next=SqlCredentials(username, password))

    def without_next(self) -> RotatingCredentials:
        """Copy without a next password."""
        return replace(self, next=None)

    def promoted(self, overlap: timedelta, now: datetime) -> RotatingCredentials:
        """Copy with the next password in use.

        Raises:
            ValueError: there is no next password.
        """
        if self.next is None:
            raise ValueError("the rotation has no next credentials")
        rotated = now.replace(microsecond=0)
        return RotatingCredentials(self.next, None, self.current, rotated, _add_saturating(rotated, overlap))

    def with_overlap(self, overlap: timedelta) -> RotatingCredentials:
        """Copy with the currently declared overlap of the previous password."""
        if self.previous is None or self.rotated_at is None:
            return self
        return replace(self, previous_valid_until=_add_saturating(self.rotated_at, overlap))

    def restricted_to(self, other: str) -> RotatingCredentials:
        """Copy without credentials of other names than `other`.

        A role has one password, the one in use.
        """
        following = self.next if self.next is not None and self.next.username == other else None
        stays = self.previous is None or self.previous.username == other
        return replace(self if stays else self.without_previous(), next=following)

    def without_previous(self) -> RotatingCredentials:
        """Copy without the previous password."""
        return replace(self, previous=None, previous_valid_until=None)

    def next_due(self, every: timedelta | None, since: datetime) -> datetime | None:
        """Time of the next step. None if nothing is due later."""
        if self.previous is not None:
            return self.previous_valid_until
        return None if every is None or self.next is not None else _add_saturating(self.rotated_at or since, every)


@dataclass(frozen=True, slots=True)
class DesiredPasswords:
    """Passwords that the server should hold for a user: fields of `DesiredUser`."""

    password: Password = field(repr=False)
    second_credential: SecondCredential | None = None
    valid_until: datetime | None = None


def desired_passwords(
    rotating: RotatingCredentials,
    user: str,
    rotation_username: str,
    valid_until: datetime | None,
    now: datetime,
    rotates: bool,
) -> DesiredPasswords:
    """Passwords that the server should hold.

    Args:
        rotating: content of the Secret.
        user: the user's own name.
        rotation_username: name of the second credential: another role, or `user` where one account has two.
        valid_until: from the spec.
        now: the current time.
        rotates: a second credential is wanted; otherwise it is removed.
    """
    expiry = rotating.previous_valid_until
    previous = rotating.previous if expiry is not None and now < expiry else None
    if not rotates and rotating.next is None and previous is None and rotating.current.username == user:
        return DesiredPasswords(rotating.current.password, None, valid_until)
    if rotation_username == user:
        newest, older = (rotating.next, rotating.current) if rotating.next else (rotating.current, previous)
        retained: Password = PasswordDirective.NONE if older is None else older.password
        return DesiredPasswords(newest.password, SecondCredential(retained), valid_until)
    passwords: dict[str, tuple[Password, datetime | None]] = {}
    for credentials in (rotating.current, rotating.next):
        if credentials is not None:
            passwords[credentials.username] = (credentials.password, valid_until)
    if previous is not None:
        passwords[previous.username] = (previous.password, min(m for m in (expiry, valid_until) if m is not None))
    no_passwords: tuple[Password, datetime | None] = (PasswordDirective.NONE, valid_until)
    own, other = passwords.get(user, no_passwords), passwords.get(rotation_username, no_passwords)
    return DesiredPasswords(own[0], SecondCredential(*other), own[1])


def alternate_username(credentials: RotatingCredentials, user: str, rotation_username: str) -> str:
    """Name of the next credentials."""
    return rotation_username if credentials.current.username == user else user


def _credentials_in(data: Data, prefix: str) -> SqlCredentials | None:
    username, password = (data.get(f"{prefix}{key}", b"").decode(errors="replace") for key in (_USERNAME, _PASSWORD))
    return SqlCredentials(username, password) if username and password else None


def _add_saturating(moment: datetime, span: timedelta) -> datetime:
    # Declared periods may exceed the range of datetime.
    try:
        return moment + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _parse_time(text: bytes) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
