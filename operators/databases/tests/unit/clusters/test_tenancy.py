"""Who may refer to what, and what a guest may declare."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import DatabaseUser
from steersman_databases.clusters.tenancy import is_guest, lets_in, lets_in_by_annotation, overreach


@pytest.mark.parametrize(
    ("allowed", "home", "guest", "outcome"),
    [
        ((), "shop", "shop", True),
        ((), "shop", "stock", False),
        (("stock",), "shop", "stock", True),
        (("*",), "shop", "stock", True),
        (("stoc", "stocks"), "shop", "stock", False),
    ],
)
def test_who_is_let_in(allowed: tuple[str, ...], home: str, guest: str, outcome: bool) -> None:
    assert lets_in(allowed, home, guest) is outcome
    annotations = {"databases.steersman.dev/allowed-namespaces": " , ".join(allowed)}
    metadata = {"namespace": home, "annotations": annotations}
    target = DatabaseUser(metadata=decode_builtins(metadata, ObjectMeta), spec=_user().spec)
    assert lets_in_by_annotation(target, guest) is outcome


def test_an_empty_name_lets_nobody_in() -> None:
    target = DatabaseUser(metadata=ObjectMeta(namespace="shop"), spec=_user().spec)
    assert not lets_in_by_annotation(target, "")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({}, ""),
        ({"grants": [{"database": "theirs", "privileges": ["CONNECT"]}], "roles": [{"name": "boss"}]}, ""),
        ({"adopt": True}, "adopt"),
        ({"createDatabase": True}, "createDatabase"),
        ({"replication": True}, "replication"),
        ({"bypassRowLevelSecurity": True}, "bypassRowLevelSecurity"),
    ],
)
def test_what_guests_cannot_declare(spec: dict[str, Any], says: str) -> None:
    assert overreach(_user(**spec)).startswith(says) if says else overreach(_user(**spec)) == ""


@pytest.mark.parametrize(("home", "guest"), [("stock", False), (None, False), ("shop", True)])
def test_who_is_a_guest(home: str | None, guest: bool) -> None:
    assert is_guest(_user(), home) is guest


def _user(**spec: Any) -> DatabaseUser:
    wire = {"metadata": {"name": "clerk", "namespace": "stock"}, "spec": {"user": "clerk", **spec}}
    return decode_builtins(wire, DatabaseUser)
