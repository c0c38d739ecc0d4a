"""Who may refer to what, and what a guest may declare."""

from __future__ import annotations

from typing import Any

import pytest

from steersman.meta import ObjectMeta, decode_builtins
from steersman_databases.api import DatabaseUser
from steersman_databases.sql.tenancy import forbidden_field, is_cross_namespace, permits, permits_by_annotation


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
def test_allowed_namespaces_permit_listed(allowed: tuple[str, ...], home: str, guest: str, outcome: bool) -> None:
    assert permits(allowed, home, guest) is outcome
    annotations = {"databases.steersman.dev/allowed-namespaces": " , ".join(allowed)}
    metadata = {"namespace": home, "annotations": annotations}
    target = DatabaseUser(metadata=decode_builtins(metadata, ObjectMeta), spec=_user().spec)
    assert permits_by_annotation(target, guest) is outcome


def test_empty_namespace_permits_nobody() -> None:
    target = DatabaseUser(metadata=ObjectMeta(namespace="shop"), spec=_user().spec)
    assert not permits_by_annotation(target, "")


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
def test_cross_namespace_fields_are_forbidden(spec: dict[str, Any], says: str) -> None:
    assert forbidden_field(_user(**spec)).startswith(says) if says else forbidden_field(_user(**spec)) == ""


@pytest.mark.parametrize(("home", "guest"), [("stock", False), (None, False), ("shop", True)])
def test_cross_namespace_is_detected(home: str | None, guest: bool) -> None:
    assert is_cross_namespace(_user(), home) is guest


def _user(**spec: Any) -> DatabaseUser:
    wire = {"metadata": {"name": "clerk", "namespace": "stock"}, "spec": {"user": "clerk", **spec}}
    return decode_builtins(wire, DatabaseUser)
