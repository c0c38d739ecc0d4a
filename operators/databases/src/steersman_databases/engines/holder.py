"""Whose a cluster's data are now, and which of the users in them have nobody any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from .desired import Claim
from .plan import Change

_MANY = 20
"""So many names are told; an Event takes 1,024 characters."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The cluster's object, and the users that objects declare on it.

    Data that were kept hold the users of those days, with their last passwords. A user who was deleted together with
    the cluster could not be dropped; so whoever adopts the data lets in only who is declared again.

    `text` is left on the server and tells this object from the one that had the data before. `users` are names by the
    text of their object's claim. `cluster` is that of the marks, see `Claim`. `kept` are the claims of `Database`s of
    which the Secret was kept: who has that may come in.
    """

    text: str
    cluster: str
    users: Mapping[str, AbstractSet[str]]
    kept: AbstractSet[str] = frozenset()

    def strangers(self, marks: Iterable[tuple[str, str]]) -> list[str]:
        """Which users, of names with their marks, were made for an object that is not there.

        What other Kubernetes clusters made, or nobody, is not judged.
        """
        return sorted(name for name, mark in marks if self._is_left(name, Claim.read(mark)))

    def _is_left(self, name: str, claim: Claim | None) -> bool:
        if claim is None or claim.cluster != self.cluster or claim.kind not in ("DatabaseUser", "Database"):
            return False
        return name not in self.users.get(claim.text, ()) and claim.text not in self.kept


def locked(names: list[str]) -> tuple[Change, ...]:
    """What to tell of users that were locked."""
    if not names:
        return ()
    told = ", ".join(names[:_MANY]) + (f" and {len(names) - _MANY} more" if len(names) > _MANY else "")
    words = f"locked {told}: they were in the data that this cluster took over, and nothing declares them"
    return (Change("UsersLocked", words),)
