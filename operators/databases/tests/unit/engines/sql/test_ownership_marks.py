"""Comparison of stored ownership marks with those of objects."""

from __future__ import annotations

from dataclasses import replace

import pytest

from steersman_databases.engines.sql.desired import OwnershipMark
from steersman_databases.engines.sql.ownership_marks import needs_mark

MARK = OwnershipMark("c1", "DatabaseUser", "shop", "clerk")
COMPLETE = replace(MARK, namespace_uid="uid-1")


@pytest.mark.parametrize(
    ("stored", "mark", "needed"),
    [
        (COMPLETE.text, MARK, False),
        (MARK.text, MARK, False),
        (MARK.text, COMPLETE, True),
        (COMPLETE.text, COMPLETE, False),
        (COMPLETE.text, replace(COMPLETE, namespace_uid="uid-2"), True),
        (COMPLETE.text, replace(MARK, name="other"), True),
        (None, MARK, True),
        (None, None, False),
    ],
    ids=[
        "namespace unknown",
        "UID unknown",
        "incomplete",
        "complete",
        "previous namespace",
        "other object",
        "no mark",
        "no owner",
    ],
)
def test_needs_mark_never_removes_uid(stored: str | None, mark: OwnershipMark | None, needed: bool) -> None:
    assert needs_mark(stored, mark) is needed
