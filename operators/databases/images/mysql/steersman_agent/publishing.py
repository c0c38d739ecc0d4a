"""What a member says of itself: on its pod, and to the kubelet's probes."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

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

    def publish(self, me: Member, because: str, *, majority: bool = False, more: Mapping[str, Any]) -> None:
        """`more` is for people and for the operator. Raises Unavailable where it could not be said."""
        # The transactions of one that takes part change with each write, and nobody decides by them.
        member = replace(me, gtids=GtidSet()) if me.state in ("Online", "Recovering") else me
        role = "primary" if me.state == "Online" and me.primary and majority else "replica"
        said = (store.member_words(member, because=because, majority=majority, **more), role)
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


def tell_probes(file: Path, *, ready: bool, because: str) -> None:
    """What `steersman-member` reads: when, in seconds since boot as /proc/uptime has them; whether clients; why."""
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    fresh = file.with_suffix(".new")
    fresh.write_text(f"{int(now)} {'ready' if ready else 'waiting'} {because}\n")
    fresh.replace(file)
