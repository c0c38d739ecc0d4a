"""Paths and identities in an object store."""

from __future__ import annotations

import json

import pytest

from steersman.meta import ObjectKey
from steersman_databases.features.backup_store.layout import (
    ArchiveIdentity,
    InvalidIdentity,
    archive_path,
    object_path,
    parse_identity,
)

IDENTITY = ArchiveIdentity(engine="mysql", cluster_uid="u-1", key_fingerprint="f", system_identifier="7")


def test_path_names_namespace_kind_and_uid() -> None:
    path = archive_path("PostgreSQLCluster", ObjectKey("shop", "orders"), "0123abcd-ef")
    assert path == "shop/postgresqlcluster.orders/0123abcd"
    assert object_path("team/a", path, "steersman.json") == f"team/a/{path}/steersman.json"
    assert object_path("", path) == path


@pytest.mark.parametrize("path", ["../other", "a/../b", "a//b", "/a", "a b", "a/.hidden", ""])
def test_path_outside_prefix_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="is not a path in an object store"):
        object_path(path)


def test_identity_survives_its_json() -> None:
    assert parse_identity(IDENTITY.to_json()) == IDENTITY
    later = {**json.loads(IDENTITY.to_json()), "added": "later"}
    assert parse_identity(json.dumps(later).encode()) == IDENTITY


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"{}",
        b"[" * 20000,
        b'{"format": 2, "engine": "mysql", "cluster_uid": "u"}',
        b'{"format": 1, "engine": "oracle", "cluster_uid": "u"}',
        b'{"format": 1, "engine": "mysql", "cluster_uid": ""}',
        b" " * 20000,
    ],
)
def test_unusable_identity_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidIdentity):
        parse_identity(content)
