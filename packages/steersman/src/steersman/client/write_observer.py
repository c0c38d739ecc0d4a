"""Who is told of every write's outcome: how a cache learns of our own writes before its watch does."""

from __future__ import annotations

from typing import Protocol

from steersman.meta import Object, ObjectKey


class WriteObserver(Protocol):
    """Told of each write of a ``Client``, on the event loop, before the writer sees the answer. Never of dry runs.

    Where the server generates the name, nothing is ``begun``: it begins with ``written``. Of the objects that a
    deletion of a collection names, each is ``begun`` and ``uncertain``, since the server does not say what holds it.
    """

    def on_write_started(self, kind: type[Object], key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent; exactly one of the four below follows."""
        ...

    def on_write_succeeded(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """The server answered with ``obj``, which exists.

        ``raw`` is its JSON, for informers that hold the kind in another form; it may lack apiVersion and kind, and
        is mere metadata where ``kind`` is.
        """
        ...

    def on_deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """``key`` is gone for good, as the object with ``uid`` (empty: the server did not say)."""
        ...

    def on_write_unknown(self, kind: type[Object], key: ObjectKey) -> None:
        """No answer came, or one that does not tell the new state: the write may or may not have been carried out."""
        ...

    def on_write_rejected(self, kind: type[Object], key: ObjectKey) -> None:
        """The server refused the write, or answered without storing anything; nothing has changed."""
        ...
