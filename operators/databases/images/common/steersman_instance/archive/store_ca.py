"""CA of the object store as a file.

Programs without the client of MySQL's archive need it, too.
"""

from __future__ import annotations

from pathlib import Path

from ..files import replace_file
from ..paths import PATHS, InstancePaths
from .store_file import Store


def write_ca(store: Store, paths: InstancePaths = PATHS) -> Path:
    """Write the CA of the store to a file. Return its path."""
    path = paths.backup_run / "store-ca.crt"
    replace_file(path, store.ca)
    return path
