"""Layout of archives and backups in an object store.

Each cluster has a path of its own, ``<namespace>/<kind>.<name>/<first 8 of the UID>``, below the prefix of the store.
The object ``steersman.json`` in it is created once and names the cluster. Two clusters never write one path.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from steersman.meta import ObjectKey
    from steersman_databases.api.group import EngineName

FORMAT = 1
IDENTITY_OBJECT = "steersman.json"
PROBE_OBJECT = "steersman-probe"
"""Object by which the operator verifies its write permission.

It is below the prefix of a store.
"""
MAX_IDENTITY_BYTES = 16 * 1024

_UID_CHARACTERS = 8
_PATH = re.compile(r"[A-Za-z0-9][-._A-Za-z0-9]*(/[A-Za-z0-9][-._A-Za-z0-9]*)*")


class InvalidIdentity(Exception):
    """``steersman.json`` cannot be used. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveIdentity:
    """Owner of a path in an object store: the content of ``steersman.json``.

    Attributes:
        cluster_uid: ``metadata.uid`` of the cluster.
        key_fingerprint: fingerprint of the encryption key; empty without encryption.
        system_identifier: PostgreSQL's system identifier; empty if it is not known.
    """

    engine: EngineName
    cluster_uid: str
    key_fingerprint: str = ""
    system_identifier: str = ""

    def to_json(self) -> bytes:
        """Return the content of ``steersman.json``."""
        document = {
            "format": FORMAT,
            "engine": self.engine,
            "cluster_uid": self.cluster_uid,
            "key_fingerprint": self.key_fingerprint,
            **({"system_identifier": self.system_identifier} if self.system_identifier else {}),
        }
        return json.dumps(document, sort_keys=True).encode() + b"\n"


def parse_identity(content: bytes) -> ArchiveIdentity:
    """Parse the content of ``steersman.json``. Unknown fields are ignored.

    Raises:
        InvalidIdentity: the content is not that of ``steersman.json``, or of a later format.
    """
    if len(content) > MAX_IDENTITY_BYTES:
        raise InvalidIdentity(f"{IDENTITY_OBJECT} has more than {MAX_IDENTITY_BYTES} bytes")
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError):
        raise InvalidIdentity(f"{IDENTITY_OBJECT} is not JSON") from None
    if not isinstance(document, dict):
        raise InvalidIdentity(f"{IDENTITY_OBJECT} is not a JSON object")
    fields = cast("dict[str, Any]", document)
    if fields.get("format") != FORMAT:
        raise InvalidIdentity(f"{IDENTITY_OBJECT} has a format other than {FORMAT}")
    engine, uid = fields.get("engine"), fields.get("cluster_uid")
    if engine not in ("postgresql", "mysql") or not isinstance(uid, str) or not uid:
        raise InvalidIdentity(f"{IDENTITY_OBJECT} lacks engine or cluster_uid")
    return ArchiveIdentity(
        engine=engine,
        cluster_uid=uid,
        key_fingerprint=_text(fields.get("key_fingerprint")),
        system_identifier=_text(fields.get("system_identifier")),
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def archive_path(kind: str, key: ObjectKey, uid: str) -> str:
    """Return the path of a cluster's archive below the prefix.

    Example: ``archive_path("PostgreSQLCluster", ObjectKey("shop", "orders"), "0123abcd-…")`` is
    ``shop/postgresqlcluster.orders/0123abcd``.

    Args:
        kind: kind of the cluster.
        key: namespace and name of the cluster.
        uid: ``metadata.uid`` of the cluster. A restored or recreated cluster has another one, hence another path.
    """
    return f"{key.namespace}/{kind.lower()}.{key.name}/{uid[:_UID_CHARACTERS]}"


def object_path(*parts: str) -> str:
    """Join a prefix, a path and a name. Empty parts are omitted.

    Raises:
        ValueError: the path has characters that object stores treat differently, or leaves its prefix.
    """
    path = "/".join(part for part in parts if part)
    if not _PATH.fullmatch(path):
        raise ValueError(f"{path!r} is not a path in an object store: use letters, digits, '.', '_', '-' and '/'")
    return path
