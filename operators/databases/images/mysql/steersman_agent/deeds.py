"""What is decided, done: each takes its time and may fail, and then the next look tells what became of it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from . import group, store
from .certificates import Certificates
from .decision import Decision, Deed, Member, View
from .kubernetes import ApiServer
from .leader import Joined
from .parameters import Parameters
from .publishing import Publisher
from .server import Server, options
from .store import Agreed


def founded_as(view: View, name: str) -> str:
    """The name of the group that is about to be founded, where the last one had this.

    MySQL numbers transactions by it. What is given up by consent bears the numbers that would come next, and who
    comes back with that must be told from who has what the new group wrote.
    """
    return str(uuid.uuid4()) if view.by_consent else name


@dataclass(frozen=True, kw_only=True)
class Deeds:
    """The hands of one member, which work in a thread of their own. `path` is that of the group's ConfigMap.

    `joined` is kept for who leads, `more` is what it says beside its state, kept by whoever looks.
    """

    server: Server
    local: group.LocalServer
    parameters: Parameters
    certificates: Certificates
    api: ApiServer
    publisher: Publisher
    path: str
    joined: Joined
    more: dict[str, Any] = field(default_factory=dict[str, Any])

    def deed(self, decision: Decision, view: View, agreed: Agreed) -> Callable[[], None] | None:
        """How to do what was decided on seeing this; None where there is nothing to do."""
        deeds: Mapping[Deed, Callable[[], None]] = {
            "Initialise": self.server.initialise,
            "Clone": lambda: self._clone(view, agreed, decision.to),
            "Start": lambda: self._start(agreed),
            "Found": lambda: self._found(view, agreed, decision),
            "Join": lambda: self._join(view, agreed, decision),
            "Leave": self.local.leave_group,
            "HandOver": lambda: self._hand_over(view, decision.to),
            "Stop": self.server.stop,
        }
        return deeds.get(decision.deed)

    def _start(self, agreed: Agreed) -> None:
        """Without those parameters with which it would not start: one that is wrong must not be an outage."""
        own = options(self.server.place, agreed.name)
        refused = self.server.refused(own, agreed.parameters)
        self.certificates.load()
        taken = {name: value for name, value in agreed.parameters.items() if name not in refused}
        self.parameters.started(agreed.parameters, refused)
        self.server.start(own, taken)

    def _found(self, view: View, agreed: Agreed, decision: Decision) -> None:
        """First everybody hears of it, then the store is written, which only one can; then the group is founded.

        The write that names the group uses the consent up: who is cut off after it finds that name, and no consent.
        """
        me, name = self._joining(view, decision), founded_as(view, agreed.name)
        to = replace(
            view.store.with_member(me.instance),
            epoch=view.epoch + 1,
            leader=me.instance,
            leader_uuid=me.uuid,
            leader_view="",
            consent=None,
        )
        self.api.patch(self.path, store.written(to, agreed.version, name))
        self.joined.enter(to.epoch)
        self._start_group(name, founding=True)

    def _join(self, view: View, agreed: Agreed, decision: Decision) -> None:
        """Who is in the group for the first time is a member in everybody's eyes before he is one."""
        self._joining(view, decision)
        to = view.store.with_member(view.me.instance)
        if to != view.store:
            self.api.patch(self.path, store.written(to, agreed.version))
        self.joined.enter(to.epoch)
        seeds = ",".join(m.address for m in view.online())
        self.local.set_global("group_replication_group_seeds", seeds)
        self._start_group(agreed.name, founding=False)

    def _joining(self, view: View, decision: Decision) -> Member:
        me = replace(view.me, state="Joining")
        self.publisher.publish(me, decision.because, more=self.more)
        return me

    def _start_group(self, name: str, *, founding: bool) -> None:
        """Afterwards it is in the group, or surely is not: what is still under way must not be called offline."""
        # The server may have been started with another: that of a group that was given up since, or the one that a
        # new store had before the primary corrected it.
        self.local.set_global("group_replication_group_name", name)
        try:
            self.local.start_group(founding=founding)
        except group.Unreachable:
            try:
                self.local.leave_group()
            except group.Unreachable:
                self.server.stop()
            raise

    def _clone(self, view: View, agreed: Agreed, donor: int | None) -> None:
        [found] = [m for m in view.members if m.instance == donor]
        host, _, port = found.address.rpartition(":")
        # The server takes no donor by an address of IPv6 (Reference Manual, clone_valid_donor_list), but by a name.
        host = found.name if host.startswith("[") else host
        # What is there is kept until there is the copy.
        self.server.stop()
        self.server.copy(options(self.server.place, agreed.name), host, int(port))

    def _hand_over(self, view: View, to: int | None) -> None:
        asked = view.store.switchover is not None and not view.stopping
        try:
            for heir in (m for m in view.members if m.instance == to and m.state == "Online"):
                self.local.hand_over(heir.uuid)
        finally:
            if asked:
                # Whether it came to pass is seen by who is primary now; what was refused is not tried for ever.
                self.api.patch(self.path, {"metadata": {"annotations": {store.SWITCHOVER: None}}})
