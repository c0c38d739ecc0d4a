"""The loop: look, decide, say, do. What takes time is done beside it, one thing at a time."""

from __future__ import annotations

import ssl
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from . import group, store
from .decision import Decision, Member, State, View, decide
from .deeds import Deeds
from .gtids import GtidSet
from .kubernetes import ApiServer, Conflict, Unavailable, labelled, named
from .publishing import Publisher
from .server import Server

_EVERY = 1.0  # seconds between two looks
_STATES: Mapping[str, State] = {"ONLINE": "Online", "RECOVERING": "Recovering", "ERROR": "Failed"}
_MEANWHILE: Mapping[str, State] = {"Clone": "Cloning", "Found": "Joining", "Join": "Joining"}
"""What is said of who is doing this, unless more is known."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """This pod and its cluster, by their names."""

    name: str
    namespace: str
    uid: str
    cluster: str

    @property
    def path(self) -> str:
        return named("pods", self.namespace, self.name)

    @property
    def siblings(self) -> str:
        """The pods of the cluster, its own among them."""
        return labelled("pods", self.namespace, f"{store.MEMBER_OF_LABEL}={self.cluster}")

    @property
    def group(self) -> str:
        """The ConfigMap in which the members agree."""
        return named("configmaps", self.namespace, f"{self.cluster}-group")


def say(words: str) -> None:
    """Into the container's log."""
    sys.stderr.write(f"steersman-agent: {words}\n")


class Agent:
    """One member's.

    Args:
        api: makes one for each of the two threads.
        lead: what a primary does for clients to find it, once in each view of the group; told the view's name.
    """

    def __init__(self, pod: Pod, server: Server, api: Callable[[], ApiServer], lead: Callable[[str], None]) -> None:
        self.stopping = threading.Event()
        self._pod, self._server, self._api, self._lead = pod, server, api(), lead
        self._local = group.LocalServer(str(server.place.socket))
        self._publisher = Publisher(api(), pod.path, pod.uid)
        self._deeds = Deeds(server=server, local=self._local, api=api(), publisher=self._publisher, path=pod.group)
        self._thread = ThreadPoolExecutor(1)
        self._doing: Future[None] | None = None
        self._meanwhile: State | None = None
        self._agreed = store.Agreed()
        self._decided: Decision | None = None
        self._led = ""

    def run(self) -> None:
        """Until it was told to stop, and has."""
        while not self.tick():
            time.sleep(_EVERY / 4) if self.stopping.is_set() else self.stopping.wait(_EVERY)

    def tick(self) -> bool:
        """One look and what follows; true once there is nothing left to stop."""
        self._see_done()
        look = self._look()
        me = self._me(look)
        view = self._view(me, look)
        decision = decide(view)
        self._tell(decision)
        self._publish(me, decision, look)
        if self._doing is None:
            if self.stopping.is_set() and me.state in ("Empty", "Stopped"):
                return True
            self._begin(decision, view)
        if look is not None and look.majority and look.primary:
            self._serve_as_primary(look)
        return False

    def _see_done(self) -> None:
        if self._doing is None or not self._doing.done():
            return
        if (failure := self._doing.exception()) is not None:
            say(f"it failed: {failure}")
        self._doing, self._meanwhile = None, None

    def _look(self) -> group.Look | None:
        if not self._server.runs:
            return None
        try:
            return self._local.look()
        except group.Unreachable:
            return None

    def _me(self, look: group.Look | None) -> Member:
        state: State
        if look is not None:
            state = _STATES.get(look.state, "Offline")
        elif self._server.runs:
            state = "Starting"
        else:
            state = "Stopped" if self._server.has_data else "Empty"
        if self._meanwhile is not None and state not in ("Recovering", "Online"):
            state = self._meanwhile
        return Member(
            instance=self._server.place.instance,
            state=state,
            primary=look is not None and look.primary,
            uuid="" if look is None else look.uuid,
            address=self._server.place.address,
            gtids=GtidSet() if look is None else look.has,
        )

    def _view(self, me: Member, look: group.Look | None) -> View:
        """The store is read first and then all pods at one moment, in this order."""
        view = View(me=me, majority=look is not None and look.majority, stopping=self.stopping.is_set())
        try:
            config_map, pods = self._api.get(self._pod.group), self._api.get(self._pod.siblings)
        except Unavailable as error:
            return replace(view, blind=str(error))
        if config_map is None or pods is None:
            return replace(view, blind=f"{self._pod.group} is not there yet")
        self._agreed = store.agreed(config_map)
        others = [m for m in store.members(pods.get("items") or ()) if m.instance != me.instance]
        asked = self._ask_group(others) if me.state == "Offline" else None
        return replace(view, store=self._agreed.store, members=others, group=asked)

    def _ask_group(self, others: Sequence[Member]) -> GtidSet | None:
        """What those have that are online; None where none of them answers."""
        known: GtidSet | None = None
        for member in (m for m in others if m.state == "Online"):
            host, _, port = member.address.rpartition(":")
            try:
                has = group.has(host.strip("[]"), int(port), self._trust())
            except (group.Unreachable, ValueError, OSError) as error:
                say(f"instance {member.instance} does not say what it has: {error}")
                continue
            known = has if known is None else known | has
        return known

    def _trust(self) -> ssl.SSLContext:
        """Members know each other by authority and not by name: they are found by address."""
        place = self._server.place
        trust = ssl.create_default_context(cafile=str(place.tls / "ca.crt"))
        trust.check_hostname = False
        trust.load_cert_chain(place.peer / "tls.crt", place.peer / "tls.key")
        return trust

    def _tell(self, decision: Decision) -> None:
        if decision != self._decided:
            self._decided = decision
            say(f"{decision.deed}: {decision.because}")

    def _publish(self, me: Member, decision: Decision, look: group.Look | None) -> None:
        try:
            self._publisher.publish(me, decision.because, majority=look is not None and look.majority)
        except Unavailable as error:
            say(f"it cannot be said: {error}")

    def _begin(self, decision: Decision, view: View) -> None:
        deed = self._deeds.deed(decision, view, self._agreed)
        if deed is not None:
            self._meanwhile = _MEANWHILE.get(decision.deed)
            self._doing = self._thread.submit(deed)

    def _serve_as_primary(self, look: group.Look) -> None:
        """Writes down who leads, and has clients find it: again until it has come through in this view."""
        if self._led == look.view or not self._agreed.version:
            return
        me, known = self._server.place.instance, self._agreed.store
        try:
            if (known.leader, known.leader_uuid) != (me, look.uuid):
                to = replace(known, leader=me, leader_uuid=look.uuid)
                self._api.patch(self._pod.group, store.written(to, self._agreed.version))
            self._lead(look.view)
        except (Unavailable, Conflict) as error:
            say(f"as primary: {error}")
        else:
            self._led = look.view
