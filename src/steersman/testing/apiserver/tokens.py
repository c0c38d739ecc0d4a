"""Tokens of service accounts: who holds one, and for how long. Source: "Managing Service Accounts", TokenRequest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from steersman.observability.runtime import Clock
from steersman.testing.apiserver.authorization import User, account_groups, joined
from steersman.testing.apiserver.storage import Storage, Stored
from steersman.testing.apiserver.values import JsonObject

AUDIENCE = "https://kubernetes.default.svc"
_INVALID = "invalid bearer token"
_CREDENTIAL = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token that was given out.

    Attributes:
        account: the service account, as it was then.
        audiences: whom it may be shown to.
        expires: when it stops being valid.
        credential: an id of the token itself.
    """

    account: Stored
    audiences: tuple[str, ...]
    expires: datetime
    credential: str


@dataclass(frozen=True, slots=True)
class Holder:
    """Who shows a token.

    Attributes:
        info: ``UserInfo`` in wire form; None where the token is refused.
        audiences: those of the token that were asked about.
        error: why it is refused.
    """

    info: JsonObject | None
    audiences: tuple[str, ...] = ()
    error: str = ""


@dataclass(slots=True)
class Tokens:
    """The tokens that the server gave out, and those that a test has named."""

    storage: Storage
    clock: Clock
    issued: dict[str, IssuedToken] = field(default_factory=dict[str, IssuedToken])
    users: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def issue(self, account: Stored, audiences: tuple[str, ...], expires: datetime, bits: int) -> str:
        """A new token, made of 128 random ``bits``."""
        token = f"in-memory-{bits:032x}"
        self.issued[token] = IssuedToken(account, audiences, expires, f"JTI={UUID(int=bits, version=4)}")
        return token

    def holder(self, token: str, audiences: tuple[str, ...] = (AUDIENCE,)) -> Holder:
        """Who holds ``token``, if it is meant for one of ``audiences``."""
        issued = self.issued.get(token)
        if issued is None:
            info = self.users.get(token)
            return Holder(info, audiences) if info is not None else Holder(None, error=_INVALID)
        fitting = tuple(a for a in issued.audiences if a in audiences)
        problem = self._problem(issued)
        if not fitting:
            wanted = f"the target audiences {_listed(audiences)}"
            problem = f"token audiences {_listed(issued.audiences)} is invalid for {wanted}"
        if problem:
            return Holder(None, error=joined([_INVALID, problem]))
        return Holder(_account_of(issued).info(), fitting)

    def authenticate(self, token: str) -> User | None:
        """The user who holds ``token``; None where it is none, or valid no more."""
        info = self.holder(token).info
        if info is None:
            return None
        extra = {k: tuple(v) for k, v in info.get("extra", {}).items()}
        groups: tuple[str, ...] = tuple(info.get("groups", []))
        if "system:authenticated" not in groups:
            groups = (*groups, "system:authenticated")
        return User(info.get("username", ""), groups, info.get("uid", ""), extra)

    def _problem(self, issued: IssuedToken) -> str:
        if self.clock.now() >= issued.expires:
            return "service account token has expired"
        key, uid = issued.account.key, issued.account.uid
        current = self.storage.get(issued.account.collection, key)
        if current is None:
            return f'serviceaccounts "{key.name}" not found'
        if current.uid != uid:
            return f"service account UID ({current.uid}) does not match claim ({uid})"
        return ""


def _account_of(issued: IssuedToken) -> User:
    key = issued.account.key
    extra = {_CREDENTIAL: (issued.credential,)}
    name = f"system:serviceaccount:{key.namespace}:{key.name}"
    return User(name, account_groups(key.namespace), issued.account.uid, extra)


def _listed(texts: tuple[str, ...]) -> str:
    quoted = " ".join(f'"{t}"' for t in texts)
    return f"[{quoted}]"
