"""Owner of a cluster's path in the object store.

``steersman.json`` is created once: by the operator, or by the pods if the operator has no access to the store.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, cast

from ..paths import PATHS, InstancePaths
from .errors import ArchiveError, describe
from .pod_identity import require_gcp_account
from .store_file import Store

OWNERSHIP_FILE = "steersman.json"
_MAX_BYTES = 64 * 1024


def require_owner(store: Store, content: str) -> None:
    """Reject a path with another cluster's UID.

    The source of a clone has one, for example.

    Args:
        content: of ``steersman.json``; empty where it does not exist yet.

    Raises:
        ArchiveError: the path belongs to another cluster.
    """
    owner = _owner(content)
    if owner and store.cluster_uid and owner != store.cluster_uid:
        reason = "PathBelongsToAnotherCluster"
        raise ArchiveError(reason, describe(store, reason))


def claims_path(store: Store) -> bool:
    """Return True if the pods of this store create ``steersman.json``."""
    return store.workload_identity and bool(store.cluster_uid)


def ownership_content(store: Store) -> bytes:
    """Return the content of ``steersman.json`` for the cluster of this store. The operator writes the same."""
    document = {
        "format": 1,
        "engine": store.engine,
        "cluster_uid": store.cluster_uid,
        "key_fingerprint": store.key_fingerprint,
    }
    return json.dumps(document, sort_keys=True).encode() + b"\n"


def check_owner(store: Store, paths: InstancePaths = PATHS) -> None:
    """Read ``steersman.json`` with the client of MySQL's archive. Raises ArchiveError as `require_owner` does."""
    # The library is large, and PostgreSQL's archive command starts for each file.
    from .objects import ObjectExists, ObjectNotFound, open_objects

    require_gcp_account(store)
    objects = open_objects(store, "", paths)
    try:
        content = objects.read(OWNERSHIP_FILE)
    except ObjectNotFound:  # not created yet, or it was deleted
        if not claims_path(store):
            return
        with contextlib.suppress(ObjectExists):
            objects.create(OWNERSHIP_FILE, ownership_content(store))
        content = objects.read(OWNERSHIP_FILE)
    require_owner(store, content.decode(errors="replace"))


def _owner(content: str) -> str:
    try:
        found: Any = json.loads(content[:_MAX_BYTES] or "{}")
    except (ValueError, RecursionError):
        return ""
    owner: Any = cast("dict[str, Any]", found).get("cluster_uid") if isinstance(found, dict) else None
    return owner if isinstance(owner, str) else ""
