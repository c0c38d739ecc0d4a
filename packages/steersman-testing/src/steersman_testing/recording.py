"""What the tests' operator really asked of an API server, for ``steersman rbac check``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from steersman.rbac import Access
from steersman_testing.apiserver.access.authorization import Attributes, Authorizer, User

_CREATED = 201
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@contextmanager
def recorded_accesses(users: Collection[str]) -> Generator[set[Access]]:
    """Collects what ``users`` ask of every server in memory meanwhile, refused or not; of resources only."""
    seen: set[Access] = set()

    def note(asking: User, wanted: Attributes) -> None:
        if asking.name in users and wanted.resource:
            seen.add(Access(wanted.group, wanted.combined, wanted.verb, wanted.name))

    Authorizer.observers.append(note)
    try:
        yield seen
    finally:
        Authorizer.observers.remove(note)


class AuditLog:
    """The audit log of a kube-apiserver, as what it says of accesses. Source: "Auditing".

    Args:
        directory: where its policy is written, and the log by the API server.
    """

    def __init__(self, directory: Path) -> None:
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.json"
        self._policy.write_bytes(msgspec.json.encode(_POLICY))

    @property
    def arguments(self) -> dict[str, str]:
        """Those of kube-apiserver for it."""
        return {"audit-policy-file": str(self._policy), "audit-log-path": str(self._log)}

    def accesses(self, users: Collection[str]) -> set[Access]:
        """What ``users`` asked so far, refused or not; of resources only."""
        if not self._log.exists():
            return set()
        events: list[dict[str, Any]] = [msgspec.json.decode(line) for line in self._log.read_bytes().splitlines()]
        return {access for e in events if _asking(e) in users and "objectRef" in e for access in _accesses(e)}


def _asking(event: dict[str, Any]) -> str:
    return (event.get("impersonatedUser") or event["user"]).get("username", "")


def _accesses(event: dict[str, Any]) -> Iterator[Access]:
    about, verb = event["objectRef"], event["verb"]
    group = about.get("apiGroup", "")
    resource = "/".join(about[part] for part in ("resource", "subresource") if part in about)
    if verb != "create" or "subresource" in about:
        yield Access(group, resource, verb, about.get("name", ""))
    # What makes an object needs the right to create, whatever its name: the log has the name for some of them.
    if (verb == "create" and "subresource" not in about) or event.get("responseStatus", {}).get("code") == _CREATED:
        yield Access(group, resource, "create")


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
