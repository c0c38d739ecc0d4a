"""Acting as somebody else: whom a request names, and what its sender needs for it.

Source: "Authenticating", "User impersonation". Who has nothing but the narrower verbs of constrained impersonation
(KEP-5284) is refused with 501: what these permit is not imitated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from steersman_testing.apiserver.access.authorization import (
    ACCOUNT,
    Attributes,
    Authorizer,
    User,
    forbidden,
    impersonated,
)
from steersman_testing.apiserver.failures import refused_here

_VERB = "impersonate"
_GROUP = "authentication.k8s.io"
_NODE = "system:node:"
_MODES = ("user-info", "serviceaccount", "arbitrary-node", "associated-node")


@dataclass(frozen=True, slots=True)
class Impersonated:
    """Whom a request names to act as, in the words of its headers.

    Attributes:
        groups: without those that the server adds.
        extra: further facts.
        uid: may be empty.
    """

    name: str
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    uid: str = ""

    def user(self) -> User:
        """That user, with the groups that the server adds."""
        return impersonated(self.name, self.groups, self.extra, self.uid)

    def check(self, authorizer: Authorizer, sender: User) -> None:
        """Returns if ``sender`` may act so.

        Raises:
            ApiError: 403, for what is missing first.
        """
        for wanted in self._needs():
            decision = authorizer.decide(sender, wanted)
            if not decision.allowed:
                self._check_narrower(authorizer, sender)
                raise authorizer.refusal(forbidden(sender, wanted, decision.reason))

    def _check_narrower(self, authorizer: Authorizer, sender: User) -> None:
        named = next(self._needs())
        for mode in _MODES:
            node = named._replace(resource="nodes", name=self.name.removeprefix(_NODE)) if "node" in mode else named
            wanted = node._replace(verb=f"{_VERB}:{mode}", group=_GROUP)
            if authorizer.decide(sender, wanted).allowed:
                raise refused_here(f"the verb {wanted.verb}")

    def _needs(self) -> Iterator[Attributes]:
        match self.name.removeprefix(ACCOUNT).split(":") if self.name.startswith(ACCOUNT) else []:
            case [namespace, account]:
                yield Attributes(_VERB, "", "v1", "serviceaccounts", "", namespace, account)
            case _:
                yield Attributes(_VERB, "", "v1", "users", name=self.name)
        for group in self.groups:
            yield Attributes(_VERB, "", "v1", "groups", name=group)
        for key, values in self.extra.items():
            for value in values:
                yield Attributes(_VERB, _GROUP, "v1", "userextras", key, name=value)
        if self.uid:
            yield Attributes(_VERB, _GROUP, "v1", "uids", name=self.uid)
