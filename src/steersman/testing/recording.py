"""What the tests' operator really asked of the API server in memory, for ``steersman rbac check``."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from steersman.rbac import Access
from steersman.testing.apiserver.access.authorization import Attributes, Authorizer, User


@contextmanager
def recorded_accesses(user: str) -> Generator[set[Access]]:
    """Collects what ``user`` asks of every server in memory meanwhile, refused or not; of resources only."""
    seen: set[Access] = set()

    def note(asking: User, wanted: Attributes) -> None:
        if asking.name == user and wanted.resource:
            seen.add(Access(wanted.group, wanted.combined, wanted.verb, wanted.name))

    Authorizer.observers.append(note)
    try:
        yield seen
    finally:
        Authorizer.observers.remove(note)


def write_accesses(file: Path, seen: set[Access]) -> None:
    """Adds ``seen`` to what is in ``file`` already, so that several runs and workers make one record."""
    former = set(read_accesses(file)) if file.exists() else set[Access]()
    file.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(sorted(former | seen)))
    unfinished = file.with_suffix(".new")
    unfinished.write_bytes(encoded + b"\n")
    unfinished.replace(file)


def read_accesses(file: Path) -> list[Access]:
    """What was recorded. Raises ``msgspec.MsgspecError`` where the file is no record."""
    return msgspec.json.decode(file.read_bytes(), type=list[Access])
