"""Takeover of data of another cluster object.

They are retained volumes or a restored backup.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from .desired import OwnershipMark
from .sql_plan import SqlChange

_MAX_LISTED = 20
"""Names in one Event, which holds at most 1,024 characters."""


@dataclass(frozen=True, slots=True)
class DataOwner:
    """Cluster object that owns the data, and its declared users.

    The data hold the users of the previous owner, with their passwords. Users that no object declares any more are
    locked once, when the data are taken over.

    Args:
        text: the cluster's mark and UID, stored on the server to recognize the owner.
        cluster: ID of this Kubernetes cluster, as in ownership marks.
        users: names of declared users by the mark of the declaring object, without the UID of its namespace.
        retained_users: such marks of ``Database``s whose Secret was retained. Their users stay unlocked.
        restored: the data came from a backup. Marks of the source are replaced. See `restored_mark`.
    """

    text: str
    cluster: str
    users: Mapping[str, AbstractSet[str]]
    retained_users: AbstractSet[str] = field(default_factory=frozenset[str])
    restored: bool = False

    def orphaned_users(self, marks: Iterable[tuple[str, str]], previous: str | None = None) -> list[str]:
        """Return the users whose declaring object does not exist here.

        Marks of other Kubernetes clusters count only in restored data, where every mark is the source's.

        Args:
            marks: names of users with their marks.
            previous: text of the previous owner.
        """
        return sorted(name for name, mark in marks if self._is_orphaned(name, mark, previous or ""))

    def replacement_mark(self, mark: str, previous: str) -> str | None:
        """Return the mark that replaces a mark at a takeover, or None.

        The owner of the data owns the users and databases of its namespace, too. So their marks lose the UID of the
        namespace, which may have been created again. See `restored_mark` for the marks of a restore's source.

        Args:
            mark: mark of a user or database.
            previous: text of the previous owner.
        """
        if (restored := self.restored_mark(mark, previous)) is not None:
            return restored
        found, own = OwnershipMark.read(mark), _cluster_mark(self.text)
        if found is None or own is None or not found.namespace_uid:
            return None
        is_own_namespace = (found.cluster, found.namespace) == (own.cluster, own.namespace)
        return replace(found, namespace_uid="").text if is_own_namespace else None

    def restored_mark(self, mark: str, previous: str) -> str | None:
        """Return the mark that replaces a mark of the source, or None.

        The source's objects may still exist, so their marks must not count here. The namespace stays in the mark:
        a user or database is open only to objects of the namespace that had it in the source. Its UID stays only in
        the same Kubernetes cluster.

        Args:
            mark: mark of a user or database.
            previous: text of the previous owner, the source.
        """
        found, source, own = OwnershipMark.read(mark), _cluster_mark(previous), _cluster_mark(self.text)
        if not self.restored or found is None or source is None or own is None or source == own:
            return None
        restored = replace(found, cluster=OwnershipMark.RESTORED)
        if found.namespace == source.namespace:
            return replace(restored, namespace=own.namespace, namespace_uid="").text
        return (restored if source.cluster == own.cluster else replace(restored, namespace_uid="")).text

    def _is_orphaned(self, name: str, mark: str, previous: str) -> bool:
        if (restored := OwnershipMark.read(self.restored_mark(mark, previous))) is not None:
            declaring = (OwnershipMark.read(text) for text, names in self.users.items() if name in names)
            return restored.namespace not in {owner.namespace for owner in declaring if owner is not None}
        found = OwnershipMark.read(mark)
        if found is None or found.cluster != self.cluster or found.kind not in ("DatabaseUser", "Database"):
            return False
        text = replace(found, namespace_uid="").text
        return name not in self.users.get(text, ()) and text not in self.retained_users


def _cluster_mark(text: str) -> OwnershipMark | None:
    """Read the cluster's mark from the text of an owner.

    The text ends with the UID.
    """
    return OwnershipMark.read(text.rpartition(" ")[0])


def locked_users_change(names: list[str]) -> tuple[SqlChange, ...]:
    """Return the Event of users that were locked."""
    if not names:
        return ()
    reported = ", ".join(names[:_MAX_LISTED]) + (
        f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    )
    message = f"locked {reported}: they exist in the adopted data and are not declared"
    return (SqlChange("UsersLocked", message),)
