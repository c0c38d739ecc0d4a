"""Log of the writes that changed an object, without content."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable

from steersman.client.transport.interface import HttpRequest
from steersman.meta import Object, ObjectKey
from steersman.observability.logging import get_logger, log_context

VersionLookup = Callable[[type[Object], ObjectKey], str]
"""Returns the resourceVersion of a cached object, or an empty string."""

_MAX_VERSIONS = 4096
_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_APPLY = "application/apply-patch+yaml"
# Events repeat what a reconciler reports, and Leases are renewed every few seconds.
_UNLOGGED = frozenset((("", "events"), ("events.k8s.io", "events"), ("coordination.k8s.io", "leases")))


class WriteLog:
    """Logs each write that changed an object, at level info.

    A write changed nothing if the response has the resourceVersion from before. The reason is the trigger of the
    running reconcile.

    Args:
        cached_version: looks up cached objects.
    """

    def __init__(self, cached_version: VersionLookup) -> None:
        self._cached_version = cached_version
        self._versions: OrderedDict[tuple[tuple[str, str], ObjectKey], str] = OrderedDict()
        self._log = get_logger("writes")

    @property
    def is_enabled(self) -> bool:
        """True if lines of level info are logged."""
        return bool(self._log.is_enabled_for(logging.INFO))

    def version_before(self, kind: type[Object], key: ObjectKey) -> str:
        """Return the last known resourceVersion of ``key``. Call it before the request is sent."""
        return self._cached_version(kind, key) or self._versions.get((kind.api_resource.group_resource, key), "")

    def record(self, request: HttpRequest, kind: type[Object], key: ObjectKey, before: str, after: str = "") -> None:
        """Log a successful write, unless it changed nothing.

        Args:
            request: the request.
            kind: type of the object.
            key: the written object.
            before: result of ``version_before``.
            after: resourceVersion in the response, if it contains the object.
        """
        if after:
            self._remember((kind.api_resource.group_resource, key), after)
        resource = kind.api_resource
        if (after and after == before) or resource.group_resource in _UNLOGGED:
            return
        verb = "apply" if request.content_type == _APPLY else _VERBS[request.method]
        fields = {"verb": verb, "kind": resource.kind, "object": str(key)}
        if subresource := _subresource(request, kind, key):
            fields["subresource"] = subresource
        context = log_context.get()
        if context is not None and (reason := context.reason):
            fields["reason"] = reason
        self._log.info("object written", **fields)

    def _remember(self, identity: tuple[tuple[str, str], ObjectKey], version: str) -> None:
        self._versions[identity] = version
        self._versions.move_to_end(identity)
        if len(self._versions) > _MAX_VERSIONS:
            self._versions.popitem(last=False)


def _subresource(request: HttpRequest, kind: type[Object], key: ObjectKey) -> str:
    path = kind.api_resource.path(key) if key.name else ""
    return request.path[len(path) + 1 :] if path and request.path.startswith(f"{path}/") else ""
