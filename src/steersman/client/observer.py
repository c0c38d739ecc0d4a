"""Who is told of every write's outcome: how a cache learns of our own writes before its watch does."""

from __future__ import annotations

from typing import Protocol

from steersman.meta import Object, ObjectKey


class WriteObserver(Protocol):
    """Told of each write of a ``Client``, on the event loop, before the writer sees the answer. Never of dry runs."""

    def begun(self, kind: type[Object], key: ObjectKey) -> None:
        """A write of ``key`` is about to be sent; one of the three below follows, or ``refused``."""
        ...

    def written(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        """The server answered with ``obj``; ``raw`` is its JSON, for informers that hold the kind in another form."""
        ...

    def deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        """``key`` is gone for good, as the object with ``uid`` (empty: the server did not say)."""
        ...

    def uncertain(self, kind: type[Object], key: ObjectKey) -> None:
        """No answer came: the write may or may not have been carried out."""
        ...

    def refused(self, kind: type[Object], key: ObjectKey) -> None:
        """The server refused the write; nothing has changed."""
        ...
