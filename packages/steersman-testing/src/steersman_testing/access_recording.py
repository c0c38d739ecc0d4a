"""Recording of the accesses of a test's operator, for ``steersman rbac check``."""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from steersman_manifests.rbac import ResourceAccess
from steersman_testing.apiserver.access.authorization import AuthorizationAttributes, Authorizer, RequestUser

_HTTP_CREATED = 201
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


@contextmanager
def record_accesses(users: Collection[str]) -> Generator[set[ResourceAccess]]:
    """Record the resource requests of ``users`` to all in-memory servers.

    Includes forbidden requests.
    """
    seen: set[ResourceAccess] = set()

    def observe(asking: RequestUser, wanted: AuthorizationAttributes) -> None:
        if asking.name in users and wanted.resource:
            seen.add(ResourceAccess(wanted.group, wanted.resource_with_subresource, wanted.verb, wanted.name))

    Authorizer.observers.append(observe)
    try:
        yield seen
    finally:
        Authorizer.observers.remove(observe)


class AuditLog:
    """Audit log of a kube-apiserver.

    Source: "Auditing" in the Kubernetes documentation.

    Args:
        directory: directory of the policy and the log.
    """

    def __init__(self, directory: Path) -> None:
        self._log = directory / "audit.log"
        self._policy = directory / "audit-policy.json"
        self._policy.write_bytes(msgspec.json.encode(_POLICY))

    @property
    def apiserver_arguments(self) -> dict[str, str]:
        """Arguments of kube-apiserver that enable the log."""
        return {"audit-policy-file": str(self._policy), "audit-log-path": str(self._log)}

    def accesses(self, users: Collection[str]) -> set[ResourceAccess]:
        """Resource requests of ``users`` so far, including forbidden ones."""
        if not self._log.exists():
            return set()
        events: list[dict[str, Any]] = [msgspec.json.decode(line) for line in self._log.read_bytes().splitlines()]
        return {
            access for e in events if _username(e) in users and "objectRef" in e for access in _accesses_of_event(e)
        }


def _username(event: dict[str, Any]) -> str:
    return (event.get("impersonatedUser") or event["user"]).get("username", "")


def _accesses_of_event(event: dict[str, Any]) -> Iterator[ResourceAccess]:
    object_ref, verb = event["objectRef"], event["verb"]
    group = object_ref.get("apiGroup", "")
    resource = "/".join(object_ref[part] for part in ("resource", "subresource") if part in object_ref)
    if verb != "create" or "subresource" in object_ref:
        yield ResourceAccess(group, resource, verb, object_ref.get("name", ""))
    # Create permissions cannot be restricted by name, but some create events contain a name.
    if (verb == "create" and "subresource" not in object_ref) or event.get("responseStatus", {}).get(
        "code"
    ) == _HTTP_CREATED:
        yield ResourceAccess(group, resource, "create")


def write_accesses(file: Path, seen: set[ResourceAccess]) -> None:
    """Merge ``seen`` into ``file``, which several runs may share."""
    existing = set(read_accesses(file)) if file.exists() else set[ResourceAccess]()
    file.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(sorted(existing | seen)))
    temporary = file.with_suffix(".new")
    temporary.write_bytes(encoded + b"\n")
    temporary.replace(file)


def read_accesses(file: Path) -> list[ResourceAccess]:
    """Read recorded accesses. Raises ``msgspec.MsgspecError`` if the file is invalid."""
    return msgspec.json.decode(file.read_bytes(), type=list[ResourceAccess])
