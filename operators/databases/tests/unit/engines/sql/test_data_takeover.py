"""Marks with the UID of a namespace in data of another cluster object."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_databases.engines.sql.data_takeover import DataOwner
from steersman_databases.engines.sql.desired import OwnershipMark

CLUSTER = OwnershipMark("c1", "PostgreSQLCluster", "shop", "main")
CLERK = OwnershipMark("c1", "DatabaseUser", "guests", "clerk", "uid-1")
SOURCE = f"{replace(CLUSTER, name='source').text} 7"


def owner(**users: set[str]) -> DataOwner:
    return DataOwner(f"{CLUSTER.text} 8", "c1", {replace(CLERK, namespace_uid="").text: users.get("clerk", set())})


def test_declared_user_with_uid_in_mark_is_not_orphaned() -> None:
    marks = [("clerk", CLERK.text)]
    assert owner(clerk={"clerk"}).orphaned_users(marks, SOURCE) == []
    assert owner().orphaned_users(marks, SOURCE) == ["clerk"]


@pytest.mark.parametrize(
    ("mark", "source", "restored"),
    [
        (CLERK, SOURCE, "steersman: restored DatabaseUser guests/clerk uid-1"),
        (CLERK, SOURCE.replace("c1", "c2"), "steersman: restored DatabaseUser guests/clerk"),
        (replace(CLERK, namespace="shop"), SOURCE, "steersman: restored DatabaseUser shop/clerk"),
    ],
    ids=["same Kubernetes cluster", "another Kubernetes cluster", "namespace of the source"],
)
def test_restored_mark_keeps_meaningful_uid_only(mark: OwnershipMark, source: str, restored: str) -> None:
    assert replace(owner(), restored=True).restored_mark(mark.text, source) == restored
