"""Rotation of a password: what the Secret says, what the server should hold, and when to look again.

All that is remembered stands in the Secret, which is the truth for applications anyway. Each write to it is one step,
so a process may end between any two:

    current                   in use
    current, next             the next one is made known to the server, and tried
    current, previous         applications have the new one; the former is valid until the overlap is over
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from steersman_databases.engines.desired import NoPassword, Password, SecondCredential
from steersman_databases.engines.server import Credentials

Data = Mapping[str, bytes]

ROTATION_KEYS = (
    *("next-username", "next-password", "previous-username", "previous-password", "previous-until"),
    "rotated-at",
)
_USERNAME, _PASSWORD = "username", "password"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
_SKEW = timedelta(days=1)  # by which a clock may be set back, or another be ahead: as much as time zones may differ


@dataclass(frozen=True, slots=True)
class Credentialed:
    """The credentials of one user as its Secret holds them.

    ``rotated`` is when ``current`` became so, and ``until`` how long ``previous`` is valid.
    """

    current: Credentials
    following: Credentials | None = None
    previous: Credentials | None = None
    rotated: datetime | None = None
    until: datetime | None = None

    @classmethod
    def read(cls, data: Data, now: datetime) -> Credentialed | None:
        """What a Secret says; None where it has no user name or no password.

        An overlap of which it does not say when it began or ends, or says what cannot be, is over.
        """
        current = _pair(data, "")
        if current is None:
            return None
        previous, rotated = _pair(data, "previous-"), _moment(data.get("rotated-at", b""))
        if rotated is not None and rotated > now + _SKEW:
            rotated = None
        until = None
        if previous is not None:
            # A password that somebody may want gone must not be valid for ever.
            until = (_moment(data.get("previous-until", b"")) if rotated is not None else None) or _LONG_AGO
            rotated = rotated or _LONG_AGO
        return cls(current, _pair(data, "next-"), previous, rotated, until)

    def entries(self) -> dict[str, bytes]:
        """What the Secret says of them, beside user name and password themselves."""
        entries: dict[str, bytes] = {}
        for prefix, held in (("next-", self.following), ("previous-", self.previous)):
            if held is not None:
                entries[f"{prefix}username"] = held.username.encode()
                entries[f"{prefix}password"] = held.password.encode()
        if self.until is not None:
            entries["previous-until"] = self.until.isoformat().encode()
        if self.rotated is not None:
            entries["rotated-at"] = self.rotated.isoformat().encode()
        return entries

    def is_due(self, every: timedelta, since: datetime, now: datetime) -> bool:
        """Whether it is time for the next one. ``since``: when the first one came into use."""
        return self.following is None and self.previous is None and now >= _after(self.rotated or since, every)

    def begun(self, username: str, password: str) -> Credentialed:
        """With the next one chosen."""
        return replace(self, following=Credentials(username, password))

    def given_up(self) -> Credentialed:
        """Without a next one: nothing new comes into use."""
        return replace(self, following=None)

    def switched(self, overlap: timedelta, now: datetime) -> Credentialed:
        """With the next one in use. Raises ValueError where there is none."""
        if self.following is None:
            raise ValueError("no next credentials were chosen")
        rotated = now.replace(microsecond=0)
        return Credentialed(self.following, None, self.current, rotated, _after(rotated, overlap))

    def lasting(self, overlap: timedelta) -> Credentialed:
        """With the former one valid for as long as is declared now."""
        if self.previous is None or self.rotated is None:
            return self
        return replace(self, until=_after(self.rotated, overlap))

    def paired(self, other: str) -> Credentialed:
        """Without others than of the ``other`` name: one role has one password, and the one in use counts."""
        following = self.following if self.following is not None and self.following.username == other else None
        stays = self.previous is None or self.previous.username == other
        return replace(self if stays else self.ended(), following=following)

    def ended(self) -> Credentialed:
        """With the former one gone."""
        return replace(self, previous=None, until=None)

    def wakes(self, every: timedelta | None, since: datetime) -> datetime | None:
        """When the next step is due; None where nothing is, or it is at once."""
        if self.previous is not None:
            return self.until
        return None if every is None or self.following is not None else _after(self.rotated or since, every)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the server should hold for a user: fields of ``DesiredUser``."""

    password: Password = field(repr=False)
    second: SecondCredential | None = None
    valid_until: datetime | None = None


def wanted(
    held: Credentialed, user: str, second: str, valid_until: datetime | None, now: datetime, rotates: bool
) -> Wanted:
    """What the server should hold.

    Args:
        held: what the Secret says.
        user: the user's own name.
        second: the name that the other credential goes by: another role, or ``user`` where one account has two.
        valid_until: of the spec.
        now: the time.
        rotates: whether there is to be another credential; who is done with it has one only.
    """
    ends = held.until
    former = held.previous if ends is not None and now < ends else None
    if not rotates and held.following is None and former is None and held.current.username == user:
        return Wanted(held.current.password, None, valid_until)
    if second == user:
        newest, older = (held.following, held.current) if held.following else (held.current, former)
        kept: Password = NoPassword.NONE if older is None else older.password
        return Wanted(newest.password, SecondCredential(kept), valid_until)
    passwords: dict[str, tuple[Password, datetime | None]] = {}
    for credentials in (held.current, held.following):
        if credentials is not None:
            passwords[credentials.username] = (credentials.password, valid_until)
    if former is not None:
        passwords[former.username] = (former.password, min(m for m in (ends, valid_until) if m is not None))
    nothing: tuple[Password, datetime | None] = (NoPassword.NONE, valid_until)
    own, other = passwords.get(user, nothing), passwords.get(second, nothing)
    return Wanted(own[0], SecondCredential(*other), own[1])


def other_name(held: Credentialed, user: str, second: str) -> str:
    """The name that the next credentials go by."""
    return second if held.current.username == user else user


def _pair(data: Data, prefix: str) -> Credentials | None:
    username, password = (data.get(f"{prefix}{key}", b"").decode(errors="replace") for key in (_USERNAME, _PASSWORD))
    return Credentials(username, password) if username and password else None


def _after(moment: datetime, span: timedelta) -> datetime:
    # The calendar has an end, and what somebody may write has none.
    try:
        return moment + span
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def _moment(text: bytes) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.decode())
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
