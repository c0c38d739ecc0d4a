"""Ownership marks decide which objects may be taken over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ..errors import AlreadyExists, NotPermitted, OwnedByAnother
from .desired import EMPTY_TEMPLATE, DesiredDatabase, DesiredUser, OwnershipMark
from .inspection import DatabaseState, Inspection, UserState


def require_adoptable(
    kind: str, name: str, mark: str | None, ownership_mark: OwnershipMark | None, adopt: bool
) -> None:
    """Reject taking over an object that another owner has.

    Args:
        kind: word for the object in messages.
        name: name of the object.
        mark: the mark stored at the object on the server.
        ownership_mark: the mark of the new owner. `None` takes over whatever exists.
        adopt: take over objects without a mark or with the mark of another Kubernetes cluster, for example after
            a move or in a restored dump.

    Raises:
        AlreadyExists: the object bears no mark, that of another Kubernetes cluster, or that of a previous namespace.
        OwnedByAnother: another object of this Kubernetes cluster owns it.
    """
    if is_marked_by(mark, ownership_mark) or ownership_mark is None:
        return
    owner = OwnershipMark.read(mark)
    is_restored = owner is not None and owner.cluster == OwnershipMark.RESTORED
    if owner is not None and is_restored:
        owner = replace(owner, cluster=ownership_mark.cluster)
        if ownership_mark.is_in_same_namespace(owner):
            return
    is_previous = owner is not None and ownership_mark.is_of_previous_namespace(owner)
    if owner is not None and owner.cluster == ownership_mark.cluster and not (is_previous or is_restored):
        raise OwnedByAnother(kind, name, owner)
    if not adopt:
        raise AlreadyExists(kind, name, of_previous_namespace=is_previous)


def is_marked_by(mark: str | None, ownership_mark: OwnershipMark | None) -> bool:
    """Return True if the object has this mark, or needs none."""
    return ownership_mark is None or has_mark(mark, ownership_mark)


def has_mark(mark: str | None, ownership_mark: OwnershipMark | None) -> bool:
    """Return True if the object has this mark. The stored one may lack the UID of the namespace."""
    owner = OwnershipMark.read(mark)
    return owner is not None and ownership_mark is not None and ownership_mark.is_of_same_object(owner)


def needs_mark(mark: str | None, ownership_mark: OwnershipMark | None) -> bool:
    """Return True if the mark must be stored, or completed.

    If the namespace was not found, `ownership_mark` has no UID. It never replaces the stored mark of the same object.
    """
    if ownership_mark is None or (has_mark(mark, ownership_mark) and not ownership_mark.namespace_uid):
        return False
    return mark != ownership_mark.text


def retention_reason(state: DatabaseState | UserState | None, mark: OwnershipMark) -> str:
    """Reason why an object outlives its Kubernetes object, or empty."""
    if state is None or is_marked_by(state.mark, mark) or (isinstance(state, DatabaseState) and not state.exists):
        return ""
    return "it has another ownership mark, or none"


def require_references_permitted(inspection: Inspection, desired: DesiredDatabase | DesiredUser) -> None:
    """Reject references of a cross-namespace object to foreign objects.

    An object with a matching name may belong to another namespace, so the marks on the server decide.

    Raises:
        NotPermitted: names the database or role.
    """
    if not desired.cross_namespace:
        return
    if isinstance(desired, DesiredDatabase):
        named = {desired.owner, *(schema.owner for schema in desired.schemas if schema.owner)}
        made, template = inspection.databases.get(desired.name), inspection.databases.get(desired.template)
        copies = desired.template != EMPTY_TEMPLATE and (made is None or not made.exists)
        # A database that is copied exposes all of its contents.
        if copies and template is not None and not template.is_template:
            _require_database_same_namespace(template, desired.mark)
    else:
        named = {*(role.role for role in desired.roles), *(c for grant in desired.grants for c in grant.created_by)}
        for name in sorted({grant.database for grant in desired.grants}):
            if (state := inspection.databases.get(name)) is not None:
                _require_database_same_namespace(state, desired.mark)
    require_same_namespace(inspection, named, desired.mark)


def _require_database_same_namespace(database: DatabaseState, mark: OwnershipMark | None) -> None:
    # Privileges that remain of a dropped database have no owner: they may be revoked.
    if database.exists and not same_namespace(database.mark, mark):
        raise NotPermitted("database", database.name)


def require_same_namespace(inspection: Inspection, roles: Iterable[str], mark: OwnershipMark | None) -> None:
    """Reject existing roles that were created for another namespace.

    Raises:
        NotPermitted: names the role.
    """
    for name in sorted(roles):
        state = inspection.users.get(name)
        if state is not None and not same_namespace(state.mark, mark):
            raise NotPermitted("role", name)


def same_namespace(mark: str | None, ownership_mark: OwnershipMark | None) -> bool:
    """Return True if the mark has the namespace of the object."""
    owner = OwnershipMark.read(mark)
    return owner is not None and ownership_mark is not None and ownership_mark.is_in_same_namespace(owner)
