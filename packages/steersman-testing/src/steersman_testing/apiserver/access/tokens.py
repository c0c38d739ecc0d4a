"""Tokens of service accounts.

Source: "Managing Service Accounts", TokenRequest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_testing.apiserver.access.authorization import RequestUser, aggregate_errors, service_account_groups
from steersman_testing.apiserver.kinds import GroupResource
from steersman_testing.apiserver.storage import Storage, StoredObject
from steersman_testing.apiserver.values import JsonObject, get_object

DEFAULT_AUDIENCE = "https://kubernetes.default.svc"
_INVALID_TOKEN = "invalid bearer token"  # noqa: S105
_EXTRA_PREFIX = "authentication.kubernetes.io/"
_CREDENTIAL_ID = f"{_EXTRA_PREFIX}credential-id"
_NODES = GroupResource("", "nodes")


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """An issued token.

    Attributes:
        service_account: the service account at the time of issue.
        audiences: audiences that accept it.
        expires_at: end of its validity.
        credential_id: ID of the token.
        bound_object: pod, Secret or node at the time of issue, whose deletion invalidates the token. Or None.
    """

    service_account: StoredObject
    audiences: tuple[str, ...]
    expires_at: datetime
    credential_id: str
    bound_object: StoredObject | None = None


@dataclass(frozen=True, slots=True)
class AuthenticationResult:
    """Result of a token authentication.

    Attributes:
        user_info: ``UserInfo`` in wire form. None if the token is invalid.
        audiences: requested audiences of the token.
        error: why the token is invalid.
    """

    user_info: JsonObject | None
    audiences: tuple[str, ...] = ()
    error: str = ""


@dataclass(slots=True)
class TokenAuthenticator:
    """Authenticates issued tokens and the tokens of tests."""

    storage: Storage
    clock: Clock
    issued: dict[str, IssuedToken] = field(default_factory=dict[str, IssuedToken])
    users: dict[str, JsonObject] = field(default_factory=dict[str, JsonObject])

    def issue(
        self,
        service_account: StoredObject,
        audiences: tuple[str, ...],
        expires_at: datetime,
        random_bits: int,
        bound_object: StoredObject | None = None,
    ) -> str:
        """Issue a token from 128 random bits. See ``IssuedToken``."""
        token = f"in-memory-{random_bits:032x}"
        self.issued[token] = IssuedToken(
            service_account, audiences, expires_at, f"JTI={UUID(int=random_bits, version=4)}", bound_object
        )
        return token

    def authenticate_token(
        self, token: str, audiences: tuple[str, ...] = (DEFAULT_AUDIENCE,)
    ) -> AuthenticationResult:
        """Authenticate ``token`` for one of ``audiences``."""
        issued = self.issued.get(token)
        if issued is None:
            info = self.users.get(token)
            return (
                AuthenticationResult(info, audiences)
                if info is not None
                else AuthenticationResult(None, error=_INVALID_TOKEN)
            )
        matching_audiences = tuple(a for a in issued.audiences if a in audiences)
        problem = self._token_error(issued)
        if not matching_audiences:
            target = f"the target audiences {_quoted_list(audiences)}"
            problem = f"token audiences {_quoted_list(issued.audiences)} is invalid for {target}"
        if problem:
            return AuthenticationResult(None, error=aggregate_errors([_INVALID_TOKEN, problem]))
        return AuthenticationResult(self._user_of_token(issued).to_user_info(), matching_audiences)

    def authenticate(self, token: str) -> RequestUser | None:
        """Return the user of a valid token, or None."""
        info = self.authenticate_token(token).user_info
        if info is None:
            return None
        extra = {k: tuple(v) for k, v in info.get("extra", {}).items()}
        groups: tuple[str, ...] = tuple(info.get("groups", []))
        if "system:authenticated" not in groups:
            groups = (*groups, "system:authenticated")
        return RequestUser(info.get("username", ""), groups, info.get("uid", ""), extra)

    def _token_error(self, issued: IssuedToken) -> str:
        if self.clock.now() >= issued.expires_at:
            return "service account token has expired"
        key, uid = issued.service_account.key, issued.service_account.uid
        current = self.storage.get(issued.service_account.collection, key)
        if current is None:
            return f'serviceaccounts "{key.name}" not found'
        if current.uid != uid:
            return f"service account UID ({current.uid}) does not match claim ({uid})"
        return self._bound_object_error(issued.bound_object) if issued.bound_object is not None else ""

    def _bound_object_error(self, bound_object: StoredObject) -> str:
        current = self.storage.get(bound_object.collection, bound_object.key)
        if current is None:
            return "service account token has been invalidated"
        if current.uid != bound_object.uid:
            kind = bound_object.collection.plural.removesuffix("s")
            return f"{kind} UID ({current.uid}) does not match service account {kind} ref claim ({bound_object.uid})"
        return ""

    def _user_of_token(self, issued: IssuedToken) -> RequestUser:
        key = issued.service_account.key
        extra = {_CREDENTIAL_ID: (issued.credential_id,), **self._bound_extra(issued.bound_object)}
        name = f"system:serviceaccount:{key.namespace}:{key.name}"
        return RequestUser(name, service_account_groups(key.namespace), issued.service_account.uid, extra)

    def _bound_extra(self, bound_object: StoredObject | None) -> dict[str, tuple[str, ...]]:
        """Return the extra attributes for the bound object and its node."""
        if bound_object is None or bound_object.collection.plural == "secrets":
            return {}
        if bound_object.collection.plural == "nodes":
            return _extra_of("node", bound_object.key.name, bound_object.uid)
        extra = _extra_of("pod", bound_object.key.name, bound_object.uid)
        if not (node := get_object(bound_object.object, "spec").get("nodeName")):
            return extra
        found = self.storage.get(_NODES, ObjectKey("", node))
        return extra | _extra_of("node", node, "" if found is None else found.uid)


def _extra_of(kind: str, name: str, uid: str) -> dict[str, tuple[str, ...]]:
    values = {f"{_EXTRA_PREFIX}{kind}-name": name, f"{_EXTRA_PREFIX}{kind}-uid": uid}
    return {k: (v,) for k, v in values.items() if v}


def _quoted_list(texts: tuple[str, ...]) -> str:
    quoted = " ".join(f'"{t}"' for t in texts)
    return f"[{quoted}]"
