"""What a member says of itself, on its pod."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace

from . import store
from .decision import Member
from .gtids import GtidSet
from .kubernetes import ApiServer, Conflict, Unavailable

_AGAIN = 60.0  # seconds after which it is said again: somebody may have taken it away


@dataclass
class Publisher:
    """Of the pod at `path` with this `uid`: what a former pod of the name is to say, it says no more.

    For both threads: what was said last is what was meant last.
    """

    api: ApiServer
    path: str
    uid: str
    _said: tuple[str, str] | None = field(default=None, init=False)
    _at: float = field(default=0.0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def publish(self, me: Member, because: str, *, majority: bool = False) -> None:
        """Raises Unavailable where it could not be said."""
        serves = me.state == "Online" and majority
        # The transactions of one that is online change with each write, and nobody decides by them.
        member = replace(me, gtids=GtidSet()) if me.state == "Online" else me
        said = (store.member_words(member, because=because), "primary" if serves and me.primary else "replica")
        with self._lock:
            if said == self._said and time.monotonic() < self._at + _AGAIN:
                return
            words, role = said
            metadata = {"uid": self.uid, "annotations": {store.MEMBER: words}, "labels": {store.ROLE_LABEL: role}}
            self._said = None
            try:
                self.api.patch(self.path, {"metadata": metadata})
            except Conflict as error:
                raise Unavailable(f"this pod is another's by now: {error}") from error
            self._said, self._at = said, time.monotonic()
