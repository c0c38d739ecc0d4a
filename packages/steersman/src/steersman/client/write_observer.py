"""Interface that receives the outcomes of writes.

The cache implements it, so that reads contain our own writes before the watch reports them.
"""

from __future__ import annotations

from typing import Protocol

from steersman.meta import Object, ObjectKey


class WriteObserver(Protocol):
    """Receives the outcome of each write of a ``Client`` except dry runs.

    The methods run on the event loop, before the caller of the write receives the response.

    If the server generates the name, ``on_write_started`` is not called, and a failed write is not reported.

    After a successful ``delete_collection``, ``on_write_started`` and ``on_write_unknown`` are called for each
    object, since the response does not show which objects still exist.
    """

    def on_write_started(self, kind: type[Object], key: ObjectKey) -> None:
        """Handle the start of a write of ``key``.

        A call of exactly one of the other four methods follows.
        """
        ...

    def on_write_succeeded(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """Handle a response with ``obj``, which exists.

        Args:
            kind: type of the write.
            obj: object as stored.
            raw: JSON of ``obj``, for informers that cache the kind in another form. It may lack apiVersion and kind.
                It contains only metadata if ``kind`` does.
        """
        ...

    def on_deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """Handle the completed deletion of ``key``.

        ``uid`` is empty if the response does not contain it.
        """
        ...

    def on_write_unknown(self, kind: type[Object], key: ObjectKey) -> None:
        """Handle a write whose result is unknown.

        No response arrived, or the response does not contain the new state. The write may have been applied.
        """
        ...

    def on_write_rejected(self, kind: type[Object], key: ObjectKey) -> None:
        """Handle a write that changed nothing.

        The server refused the write, or responded without storing an object.
        """
        ...

    def on_collection_delete_failed(self, kind: type[Object], namespace: str) -> None:
        """Handle a failed ``delete_collection``, which may have deleted some objects or all.

        Args:
            kind: type of the objects.
            namespace: namespace of the objects. Empty for cluster-scoped kinds.
        """
        ...
