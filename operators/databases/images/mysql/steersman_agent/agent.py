"""The loop: look, decide, say, do. What takes time is done beside it, one thing at a time."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from steersman_pod import leading

from . import group, store
from .apart import Apart
from .asking import Asking
from .certificates import Certificates
from .condition import Applying, Volumes
from .decision import Decision, Deed, Member, State, View, decide
from .deeds import Deeds
from .failures import CERTIFICATES, Failures
from .gtids import GtidSet
from .kubernetes import ApiServer, Unavailable, labelled, named
from .leader import Joined, Leader
from .log import Log
from .parameters import Parameters
from .publishing import Publisher, tell_probes
from .server import Server
from .starts import Starts

_EVERY = 1.0  # seconds between two looks
_SOON = 0.1
_CALM = 3.0  # seconds between two reads of the store where all is well
_POLITE = 60.0  # seconds for which somebody else with the same data may found the group
_REMEMBERED = 15.0  # seconds for which a server that does not answer is taken for what it was
_DESERTED = 10.0  # seconds in which nobody is online in a group that is joined
_PAUSE = 3.0  # seconds before something else is tried when it has failed
_STATES: dict[str, State] = {"ONLINE": "Online", "RECOVERING": "Recovering", "ERROR": "Failed"}
_MEANWHILE: dict[Deed, State] = {"Clone": "Cloning", "Found": "Joining", "Join": "Joining"}
"""What is said of who is doing this, unless more is known."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The pod and its cluster, by their names."""

    pod: leading.Pod
    name: str

    @property
    def pod_path(self) -> str:
        return named("pods", self.pod.namespace, self.pod.name)

    @property
    def pods_path(self) -> str:
        """The pods of the cluster, its own among them."""
        return labelled("pods", self.pod.namespace, f"{store.MEMBER_OF_LABEL}={self.name}")

    @property
    def group_path(self) -> str:
        """The ConfigMap in which the members agree."""
        return named("configmaps", self.pod.namespace, f"{self.name}-group")


@dataclass
class Lasting:
    """For how long something has been so without a break."""

    _since: float | None = None

    def seconds(self, holds: bool) -> float:
        """Until now; 0 where it has just begun, or is not so."""
        now = time.monotonic()
        self._since = None if not holds else now if self._since is None else self._since
        return 0.0 if self._since is None else now - self._since


class Agent:
    """One member's.

    Args:
        api: makes one for each of the two threads.
        thread: in which it does what takes time, one thing at a time.
    """

    def __init__(
        self, cluster: Cluster, server: Server, api: Callable[[], ApiServer], thread: Executor | None = None
    ) -> None:
        self._stopping = False
        self._cluster, self._server, self._api = cluster, server, api()
        place = server.place
        self._local = server.local
        self._publisher = Publisher(api(), cluster.pod_path, cluster.pod.uid)
        self._joined = Joined(place.volume / "epoch")
        self._deeds = Deeds(
            server=server,
            local=self._local,
            parameters=Parameters(self._local, server.image_parameters()),
            certificates=Certificates(place.tls, place.peer, place.trusted),
            api=api(),
            publisher=self._publisher,
            path=cluster.group_path,
            joined=self._joined,
        )
        self._log = Log()
        self._leader = Leader(
            cluster.pod, cluster.name, place, self._local, self._api, cluster.group_path, self._joined, self._log
        )
        self._applying, self._volumes = Applying(), Volumes({"data": place.volume})
        self._thread = thread or ThreadPoolExecutor(1)
        self._doing: Future[None] | None = None
        self._deed: Deed = "Wait"
        self._decision = Decision("Wait", "it has just begun")
        self._tried: frozenset[Deed] = frozenset()
        self._failures = Failures()
        self._not_before = 0.0
        self._agreed = store.Agreed()
        self._read: tuple[object, float] | None = None
        self._last: tuple[group.Look, float] | None = None
        self._asking = Asking(time.monotonic)
        self._starts = Starts()
        self._apart = Apart(place.volume / "apart")
        self._alone, self._deserted = Lasting(), Lasting()

    def run(self) -> None:
        """Until it was told to stop, and has."""
        while True:
            try:
                if self.tick():
                    return
            except Exception:
                # The server goes on without: to end here would be to end it.
                self._log.say("unexpected", traceback.format_exc())
            next_look = time.monotonic() + _EVERY
            while time.monotonic() < next_look and not self._stopping:
                time.sleep(_SOON)
            time.sleep(_SOON)

    def stop(self) -> None:
        """Have it leave and end. For a signal's handler: it may come at any point of the loop."""
        self._stopping = True

    def tick(self) -> bool:
        """One look and what follows; true once there is nothing left to stop."""
        self._see_done()
        look = self._look()
        me = self._me(look)
        view = self._with_patience(self._view(me, look))
        self._apart.learn(view)
        if self._doing is None:
            self._decision = decide(view)
        # While something is done, why it is done.
        decision = self._decision
        if decision.deed == "Wait" and me.state == "Online":
            self._failures.all_is_well()
            self._starts = Starts()
        because = self._because(decision)
        self._log.say("decision", f"{decision.deed}: {because}")
        self._publish(view, because, look)
        if self._doing is not None:
            if view.stopping and self._deed in ("Initialise", "Clone"):
                self._server.abandon()
            elif self._joins_nobody(view):
                # It would ask those who are gone for two minutes, and whoever may found a group waits for it.
                self._log.say("deserted", "nobody is left in the group that it joins: its server is started anew")
                self._server.stop(0)
        elif view.stopping and me.state in ("Empty", "Stopped"):
            return True
        elif view.stopping or time.monotonic() >= self._not_before:
            self._begin(decision, view)
            self._adjust(look)
        self._leader.lead(look, self._agreed.store)
        return False

    def _with_patience(self, view: View) -> View:
        """Who is to found the group before this one has some time for it."""
        return replace(view, patient=self._alone.seconds(view.outage) < _POLITE)

    def _joins_nobody(self, view: View) -> bool:
        """Whether nobody has been in the group for a while that this one is about to be in."""
        joins = self._deed == "Join" and view.me.state == "Joining"
        return self._deserted.seconds(joins and not view.blind and not view.online()) >= _DESERTED

    def _see_done(self) -> None:
        if self._doing is None or not self._doing.done():
            return
        if (failure := self._doing.exception()) is not None:
            self._log.say("deed", f"{self._deed} failed: {failure}")
            self._not_before = time.monotonic() + _PAUSE
            donor = self._decision.to if self._deed == "Clone" else None
            self._failures.failed(self._deed, self._in_full(failure), donor=donor)
            if self._deed == "Join":
                self._ask_why()
        else:
            self._failures.succeeded(self._deed)
            if self._deed == "Start":
                # Which has read them.
                self._failures.succeeded(CERTIFICATES)
                self._starts.begun()
                self._not_before = time.monotonic() + self._starts.pause
            elif self._deed == "Clone":
                self._apart.forget()
        if self._stopping:
            self._tried = frozenset({*self._tried, self._deed})
            self._not_before = 0.0
        self._doing, self._deed, self._read = None, "Wait", None

    def _in_full(self, failure: BaseException) -> str:
        """Who cannot join is referred to the log by the server: so with what its plugin wrote there last."""
        logged = self._server.last_words if self._deed in ("Found", "Join") else ""
        return f"{failure}; {logged}" if "group_replication reported" in logged else str(failure)

    def _look(self) -> group.Look | None:
        """A server that is too busy to answer is still in its group."""
        if not self._server.runs:
            self._local.forget()
            self._last = None
            if self._deed != "Start":
                self._starts.ended(self._server)
            return None
        try:
            look = self._local.look()
        except group.Unreachable:
            # One that was in no group may be by now, and nothing would be worse than to say that it is not.
            known, at = self._last or (None, 0.0)
            if known is not None and known.state in ("ONLINE", "RECOVERING") and time.monotonic() < at + _REMEMBERED:
                return known
            look = None
        if look is not None:
            self._starts.answers()
        elif self._starts.stands_still(self._server):
            self._server.stop(0)
        self._last = None if look is None else (look, time.monotonic())
        self._applying.see(look)
        if look is not None and look.state in ("ERROR", "RECOVERING"):
            self._ask_why(recovering=look.state == "RECOVERING")
        return look

    def _ask_why(self, *, recovering: bool = False) -> None:
        """To join may be no lasting success, or none: what is received cannot be applied, perhaps."""
        with contextlib.suppress(group.Unreachable):
            if errors := self._local.applier_errors():
                self._failures.not_applied(errors)
            elif recovering:
                self._failures.applies()

    def _me(self, look: group.Look | None) -> Member:
        state: State
        if look is not None:
            state = _STATES.get(look.state, "Offline")
        elif self._server.runs:
            state = "Starting"
        else:
            state = "Stopped" if self._server.has_data else "Empty"
        if state not in ("Recovering", "Online"):
            state = _MEANWHILE.get(self._deed, state)
        return Member(
            instance=self._server.place.instance,
            state=state,
            primary=look is not None and look.primary,
            uuid="" if look is None else look.uuid,
            address=self._server.place.address,
            gtids=GtidSet() if look is None else look.has,
            epoch=self._joined.epoch,
        )

    def _view(self, me: Member, look: group.Look | None) -> View:
        """The store is read first and then all pods at one moment, in this order."""
        majority = look is not None and look.majority
        failed = self._failures.donors
        view = View(me=me, majority=majority, stopping=self._stopping, tried=self._tried, failed_donors=failed)
        seen = (me.state, me.primary, majority, look.view if look is not None else "", view.stopping)
        calm = me.state == "Online" and majority and not view.stopping
        if calm and self._read is not None and self._read[0] == seen and time.monotonic() < self._read[1] + _CALM:
            return replace(view, store=replace(self._agreed.store, switchover=None))
        try:
            config_map, pods = self._api.get(self._cluster.group_path), None
            if config_map is not None and (agreed := store.agreed(config_map)).name:
                self._agreed = agreed
                if not calm or agreed.store.switchover is not None:
                    pods = self._api.get(self._cluster.pods_path)
            elif not calm:
                return replace(view, blind=f"{self._cluster.group_path} is not there yet")
        except Unavailable as error:
            return replace(view, blind=str(error))
        finally:
            self._read = (seen, time.monotonic())
        others = [m for m in store.members((pods or {}).get("items") or ()) if m.instance != me.instance]
        superseded = look is not None and self._joined.superseded(self._agreed.store, look.view)
        view = replace(view, store=self._agreed.store, members=others, superseded=superseded)
        if look is None or me.state != "Offline":
            return view
        if (told := self._asking.answers(self._ask_group(others), look)) is None:
            return view
        asked = replace(view, group=told.has, purged=told.purged, everybody=told.everybody, errant=told.errant)
        return replace(asked, blocked=not told.majority, listed=told.listed)

    def _ask_group(self, others: Sequence[Member]) -> Sequence[group.Look]:
        """What those say that are online, as far as they answer."""
        looks: list[group.Look] = []
        for member in (m for m in others if m.state == "Online"):
            try:
                looks.append(self._server.ask(member.address))
            except (group.Unreachable, ValueError, OSError) as error:
                self._log.say(f"instance {member.instance}", f"instance {member.instance} does not answer: {error}")
        return looks

    def _because(self, decision: Decision) -> str:
        behind = self._applying.behind if decision.deed == "Wait" else ""
        return "; ".join(words for words in (decision.because, behind, self._failures.words) if words)

    def _publish(self, view: View, because: str, look: group.Look | None) -> None:
        me, parameters = view.me, self._deeds.parameters
        self._deeds.more.update(self._more(view, look, parameters))
        ready = me.state == "Online" and view.majority and not view.stopping and not self._applying.behind
        tell_probes(self._server.place.probes, ready=ready, because=because)
        try:
            self._publisher.publish(me, because, majority=view.majority, more=self._deeds.more)
        except Unavailable as error:
            self._log.say("saying", f"it cannot be said: {error}")

    def _more(self, view: View, look: group.Look | None, parameters: Parameters) -> dict[str, Any]:
        more: dict[str, Any] = {
            "errant": self._apart.errant,
            "apart": self._apart.holds,
            # What nobody has reckoned is not nothing: a person would consent to it.
            "lacks": str(view.lacks) if view.outage else None,
            "unseen": view.unseen if view.outage else None,
            "unstarted": self._starts.words,
            "diverged": self._failures.diverged,
            "failing": self._failures.words,
            "queued": self._applying.queued,
            "pending": dict(parameters.pending),
            "refused": dict(parameters.refused),
            "restored": parameters.restored,
            "storage": dict(self._volumes.see()),
        }
        return more if look is None else {**more, "version": look.version}

    def _begin(self, decision: Decision, view: View) -> None:
        deed = self._deeds.deed(decision, view, self._agreed)
        if decision.deed == "Clone":
            # Whatever is wrong with its data, it takes others.
            self._failures.diverged, self._starts = False, Starts()
        if deed is not None:
            self._deed, self._deserted = decision.deed, Lasting()
            self._doing = self._thread.submit(deed)

    def _adjust(self, look: group.Look | None) -> None:
        """What changes in a server that runs: parameters, certificates."""
        if self._doing is not None or look is None:
            return
        try:
            parameters = self._deeds.parameters
            parameters.apply(self._agreed.parameters)
            if parameters.restore() and parameters.restored is not None:
                self._log.say("restored", f"somebody else had set what is declared again: {parameters.restored}")
            for name, words in parameters.stays.items():
                self._log.say(f"stays {name}", f"somebody else has set {name}, and it stays so: {words}")
        except group.Unreachable as error:
            self._log.say("adjusting", f"it cannot be adjusted: {error}")
            return
        certificates = self._deeds.certificates
        try:
            if certificates.changed():
                certificates.load()
                self._local.do("ALTER INSTANCE RELOAD TLS")
                self._failures.succeeded(CERTIFICATES)
                self._log.say("certificates", "the server shows and knows its new certificates")
        except (group.Unreachable, OSError, ValueError) as error:
            certificates.forget()
            self._log.say("certificates", f"the server cannot be given its certificates: {error}")
            # One that does not answer is no news.
            if not isinstance(error, group.Unreachable) or error.answered:
                self._failures.failed(CERTIFICATES, error)
