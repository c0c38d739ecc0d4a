"""User impersonation, and the permissions that it requires.

Constrained impersonation (KEP-5284) is not implemented. Users with those verbs only get 501. Source:
"Authenticating", "User impersonation".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steersman_testing.apiserver.access.authorization import (
    SERVICE_ACCOUNT_PREFIX,
    AuthorizationAttributes,
    Authorizer,
    RequestUser,
    forbidden_error,
    impersonated_user,
)
from steersman_testing.apiserver.failures import not_implemented

_VERB = "impersonate"
_GROUP = "authentication.k8s.io"
_NODE_PREFIX = "system:node:"
_CONSTRAINED_MODES = ("user-info", "serviceaccount", "arbitrary-node", "associated-node")


@dataclass(frozen=True, slots=True)
class ImpersonatedUser:
    """User of the impersonation headers.

    Attributes:
        groups: groups without those that the server adds.
        extra: extra attributes.
        uid: may be empty.
    """

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    uid: str = ""

    def to_user(self) -> RequestUser:
        """Return the user with the groups that the server adds."""
        return impersonated_user(self.name, self.groups, self.extra, self.uid)

    def authorize(self, authorizer: Authorizer, requester: RequestUser) -> RequestUser:
        """Return the impersonated user if RBAC allows the impersonation.

        Raises:
            ApiError: 403, for the first missing permission.
        """
        for attributes in self._required_attributes():
            decision = authorizer.decide(requester, attributes)
            if not decision.allowed:
                self._check_constrained(authorizer, requester)
                raise authorizer.record_denial(forbidden_error(requester, attributes, decision.reason))
        return self.to_user()

    def _check_constrained(self, authorizer: Authorizer, requester: RequestUser) -> None:
        unconstrained = next(self._required_attributes())
        for mode in _CONSTRAINED_MODES:
            node = (
                unconstrained._replace(resource="nodes", name=self.name.removeprefix(_NODE_PREFIX))
                if "node" in mode
                else unconstrained
            )
            attributes = node._replace(verb=f"{_VERB}:{mode}", group=_GROUP)
            if authorizer.decide(requester, attributes).allowed:
                raise not_implemented(f"the verb {attributes.verb}")

    def _required_attributes(self) -> Iterator[AuthorizationAttributes]:
        match (
            self.name.removeprefix(SERVICE_ACCOUNT_PREFIX).split(":")
            if self.name.startswith(SERVICE_ACCOUNT_PREFIX)
            else []
        ):
            case [namespace, account]:
                yield AuthorizationAttributes(_VERB, "", "v1", "serviceaccounts", "", namespace, account)
            case _:
                yield AuthorizationAttributes(_VERB, "", "v1", "users", name=self.name)
        for group in self.groups:
            yield AuthorizationAttributes(_VERB, "", "v1", "groups", name=group)
        for key, values in self.extra.items():
            for value in values:
                yield AuthorizationAttributes(_VERB, _GROUP, "v1", "userextras", key, name=value)
        if self.uid:
            yield AuthorizationAttributes(_VERB, _GROUP, "v1", "uids", name=self.uid)
