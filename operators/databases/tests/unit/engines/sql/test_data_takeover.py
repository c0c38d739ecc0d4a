"""Marks and users of data that a cluster takes over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_databases.engines.errors import AlreadyExists
from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.ownership_marks import require_adoptable

HERE = "5f0c4a71"
SOURCE = OwnershipMark(HERE, "PostgreSQLCluster", "prod", "orders")
CLONE = OwnershipMark(HERE, "PostgreSQLCluster", "staging", "copy")
CLERK = OwnershipMark(HERE, "DatabaseUser", "prod", "clerk")
GUEST = OwnershipMark(HERE, "DatabaseUser", "guests", "clerk")
PREVIOUS = f"{SOURCE.text} uid-1"


def owner(restored: bool = True, mark: OwnershipMark = CLONE, **users: OwnershipMark) -> DataOwner:
    """The clone, with declared users by name."""
    declared = {declaring.text: {name} for name, declaring in users.items()}
    return DataOwner(f"{mark.text} uid-2", HERE, declared, restored=restored)


def test_restored_mark_moves_to_namespace_of_clone() -> None:
    replaced = OwnershipMark.read(owner().restored_mark(CLERK.text, PREVIOUS))
    assert replaced is not None
    assert replaced == OwnershipMark("restored", "DatabaseUser", "staging", "clerk")
    assert owner().restored_mark(replaced.text, PREVIOUS) == replaced.text, "a second run changes nothing"


def test_restored_mark_keeps_namespace_of_guest() -> None:
    replaced = OwnershipMark.read(owner().restored_mark(GUEST.text, PREVIOUS))
    assert replaced is not None and replaced.namespace == "guests"


@pytest.mark.parametrize(
    ("taker", "mark", "previous"),
    [
        (owner(restored=False), CLERK.text, PREVIOUS),
        (owner(mark=SOURCE), CLERK.text, PREVIOUS),
        (owner(), "for the reports", PREVIOUS),
        (owner(), CLERK.text, "somebody"),
    ],
    ids=["adopted", "same cluster", "no mark", "unknown source"],
)
def test_mark_of_other_takeovers_stays(taker: DataOwner, mark: str, previous: str) -> None:
    assert taker.restored_mark(mark, previous) is None


def test_restored_users_without_declaration_are_orphaned() -> None:
    elsewhere = replace(CLERK, cluster="another")
    declared = OwnershipMark(HERE, "DatabaseUser", "staging", "clerk-of-copy")
    marks = [("clerk", CLERK.text), ("guest", GUEST.text), ("app", SOURCE.text), ("moved", elsewhere.text)]
    taker = owner(clerk=declared, guest=replace(declared, name="guest"))
    assert taker.orphaned_users([*marks, ("by hand", "")], PREVIOUS) == ["app", "guest", "moved"]


def test_restored_mark_admits_objects_of_its_namespace_only() -> None:
    replaced = owner().restored_mark(CLERK.text, PREVIOUS)
    require_adoptable("user", "clerk", replaced, OwnershipMark(HERE, "DatabaseUser", "staging", "any"), False)
    with pytest.raises(AlreadyExists):
        require_adoptable("user", "clerk", replaced, OwnershipMark(HERE, "DatabaseUser", "guests", "any"), False)


def test_declared_user_with_uid_in_mark_is_not_orphaned() -> None:
    marks = [("guest", replace(GUEST, namespace_uid="uid-1").text)]
    assert owner(restored=False, guest=GUEST).orphaned_users(marks, PREVIOUS) == []
    assert owner(restored=False).orphaned_users(marks, PREVIOUS) == ["guest"]


@pytest.mark.parametrize(
    ("mark", "source", "restored"),
    [
        (GUEST, SOURCE, "steersman: restored DatabaseUser guests/clerk uid-1"),
        (GUEST, replace(SOURCE, cluster="another"), "steersman: restored DatabaseUser guests/clerk"),
        (CLERK, SOURCE, "steersman: restored DatabaseUser staging/clerk"),
    ],
    ids=["same Kubernetes cluster", "another Kubernetes cluster", "namespace of the source"],
)
def test_restored_mark_keeps_meaningful_uid_only(mark: OwnershipMark, source: OwnershipMark, restored: str) -> None:
    marked = replace(mark, namespace_uid="uid-1")
    assert owner().restored_mark(marked.text, f"{source.text} 7") == restored


@pytest.mark.parametrize("restored", [True, False])
def test_replacement_in_recreated_namespace_loses_uid(restored: bool) -> None:
    taker, marked = owner(restored=restored, mark=SOURCE), replace(CLERK, namespace_uid="uid-1")
    replaced = taker.replacement_mark(marked.text, PREVIOUS)
    assert replaced is not None and replaced == CLERK.text
    later = replace(marked, namespace_uid="uid-2")
    require_adoptable("user", "clerk", replaced, later, False)
    assert taker.replacement_mark(replaced, PREVIOUS) is None, "a second run changes nothing"


@pytest.mark.parametrize(
    ("taker", "mark"),
    [
        (owner(mark=SOURCE), replace(GUEST, namespace_uid="uid-1")),
        (owner(restored=False), replace(CLERK, namespace_uid="uid-1")),
        (owner(mark=SOURCE), replace(CLERK, cluster="another", namespace_uid="uid-1")),
    ],
    ids=["other namespace", "namespace of the source", "another Kubernetes cluster"],
)
def test_replacement_keeps_uid_of_other_namespaces(taker: DataOwner, mark: OwnershipMark) -> None:
    assert taker.replacement_mark(mark.text, PREVIOUS) is None


def test_replacement_for_clone_is_restored_mark() -> None:
    assert owner().replacement_mark(CLERK.text, PREVIOUS) == owner().restored_mark(CLERK.text, PREVIOUS) is not None


def test_undeclared_user_of_recreated_namespace_is_orphaned() -> None:
    marks = [("clerk", replace(CLERK, namespace_uid="uid-1").text)]
    assert owner(mark=SOURCE, clerk=replace(CLERK, name="other")).orphaned_users(marks, PREVIOUS) == ["clerk"]
    assert owner(mark=SOURCE, clerk=CLERK).orphaned_users(marks, PREVIOUS) == []
