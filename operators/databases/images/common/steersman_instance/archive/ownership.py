"""Owner of a cluster's path in the object store.

The operator creates ``steersman.json`` once.
"""

from __future__ import annotations

import json
from typing import Any, cast

from ..paths import PATHS, InstancePaths
from .errors import ArchiveError, describe
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


def check_owner(store: Store, paths: InstancePaths = PATHS) -> None:
    """Read ``steersman.json`` with the client of MySQL's archive. Raises ArchiveError as `require_owner` does."""
    # The library is large, and PostgreSQL's archive command starts for each file.
    from .objects import ObjectNotFound, open_objects

    try:
        content = open_objects(store, "", paths).read(OWNERSHIP_FILE)
    except ObjectNotFound:  # the operator has not created it yet, or it was deleted
        return
    require_owner(store, content.decode(errors="replace"))


def _owner(content: str) -> str:
    try:
        found: Any = json.loads(content[:_MAX_BYTES] or "{}")
    except (ValueError, RecursionError):
        return ""
    owner: Any = cast("dict[str, Any]", found).get("cluster_uid") if isinstance(found, dict) else None
    return owner if isinstance(owner, str) else ""
