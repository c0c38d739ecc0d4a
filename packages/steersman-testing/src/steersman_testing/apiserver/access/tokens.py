"""Tokens of service accounts: who holds one, and for how long. Source: "Managing Service Accounts", TokenRequest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_testing.apiserver.access.authorization import User, account_groups, joined
from steersman_testing.apiserver.kinds import GroupResource
from steersman_testing.apiserver.storage import Storage, Stored
from steersman_testing.apiserver.values import JsonObject, map_at

AUDIENCE = "https://kubernetes.default.svc"
_INVALID = "invalid bearer token"
_PREFIX = "authentication.kubernetes.io/"
_CREDENTIAL = f"{_PREFIX}credential-id"
_NODES = GroupResource("", "nodes")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token that was given out.

    Attributes:
        account: the service account, as it was then.
        audiences: whom it may be shown to.
        expires: when it stops being valid.
        credential: an id of the token itself.
        bound: the pod, Secret or node, as it was then, without which it is not valid; or None.
    """

    account: Stored
    audiences: tuple[str, ...]
    expires: datetime
    credential: str
    bound: Stored | None = None


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

    def issue(
        self,
        account: Stored,
        audiences: tuple[str, ...],
        expires: datetime,
        bits: int,
        bound: Stored | None = None,
    ) -> str:
        """A new token, made of 128 random ``bits``; for the rest see ``IssuedToken``."""
        token = f"in-memory-{bits:032x}"
        self.issued[token] = IssuedToken(account, audiences, expires, f"JTI={UUID(int=bits, version=4)}", bound)
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
        return Holder(self._account_of(issued).info(), fitting)

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
        return self._unbound(issued.bound) if issued.bound is not None else ""

    def _unbound(self, bound: Stored) -> str:
        current = self.storage.get(bound.collection, bound.key)
        if current is None:
            return "service account token has been invalidated"
        if current.uid != bound.uid:
            kind = bound.collection.plural.removesuffix("s")
            return f"{kind} UID ({current.uid}) does not match service account {kind} ref claim ({bound.uid})"
        return ""

    def _account_of(self, issued: IssuedToken) -> User:
        key = issued.account.key
        extra = {_CREDENTIAL: (issued.credential,), **self._bound_extra(issued.bound)}
        name = f"system:serviceaccount:{key.namespace}:{key.name}"
        return User(name, account_groups(key.namespace), issued.account.uid, extra)

    def _bound_extra(self, bound: Stored | None) -> dict[str, tuple[str, ...]]:
        """What a token tells of the object that it is bound to, and of a pod's node."""
        if bound is None or bound.collection.plural == "secrets":
            return {}
        if bound.collection.plural == "nodes":
            return _named("node", bound.key.name, bound.uid)
        told = _named("pod", bound.key.name, bound.uid)
        if not (node := map_at(bound.object, "spec").get("nodeName")):
            return told
        found = self.storage.get(_NODES, ObjectKey("", node))
        return told | _named("node", node, "" if found is None else found.uid)


def _named(kind: str, name: str, uid: str) -> dict[str, tuple[str, ...]]:
    told = {f"{_PREFIX}{kind}-name": name, f"{_PREFIX}{kind}-uid": uid}
    return {k: (v,) for k, v in told.items() if v}


def _listed(texts: tuple[str, ...]) -> str:
    quoted = " ".join(f'"{t}"' for t in texts)
    return f"[{quoted}]"
