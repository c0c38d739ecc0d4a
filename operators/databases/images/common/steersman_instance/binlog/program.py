"""Entry point of the agent's programs for an archiving MySQL instance."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ..archive.store_file import InvalidStoreFile, Store, load_store
from ..paths import PATHS


def run_with_store(name: str, arguments: Sequence[str], run: Callable[[Store], None]) -> int:
    """Run a program with the store of this pod. Without a store there is nothing to do.

    Args:
        name: sub-program of ``steersman-instance``.
        arguments: of the command line; there must be none.
        run: runs until the process ends.

    Returns:
        Exit code: 2 for arguments, 1 for a malformed store file, else 0.
    """
    if arguments:
        sys.stderr.write(f"usage: steersman-instance {name}\n")
        return 2
    try:
        store = load_store(PATHS.store_file)
    except InvalidStoreFile as error:
        sys.stderr.write(f"steersman-{name}: {error}\n")
        return 1
    if store is None:
        return 0
    run(store)
    return 0
