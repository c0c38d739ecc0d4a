"""The configuration that all members share: judged by the servers before it is written, and compared with them after.

Nothing of this is remembered but what was asked last, which a new process asks again. That a value was given back,
since a server did not start with it, stands beside the configuration itself, written with it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, cast

from steersman.api.core_v1 import Pod
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.clusters import parameters, recovery
from steersman_databases.clusters.keyring import Keyring
from steersman_databases.clusters.observed import Instance, Observed
from steersman_databases.controllers.cluster_status import Findings, judge_parameters
from steersman_databases.controllers.declaring import Charge
from steersman_databases.engines.cluster import ClusterEngine, ClusterView, SettingCatalog, Tried
from steersman_databases.engines.cluster_names import OPERATOR, SUPERUSER
from steersman_databases.engines.errors import EngineError
from steersman_databases.engines.server import Endpoint, Login, Server
from steersman_databases.engines.topology import Topology

AskSettings = Callable[[Server], Awaitable[SettingCatalog]]
TakeBack = Callable[[Server, Collection[str]], Awaitable[Sequence[str]]]
TryOut = Callable[[Server, Mapping[str, str]], Awaitable[Tried]]

# So long a member may take to read what was written; then what it shows is what it will show.
_SETTLES_SECONDS = 30.0
# So long it may take until each member has noticed that it has to restart: the primary may do so before a replica.
_NOTICED_SECONDS = 6.0
# Where somebody may set a parameter past what all share, servers are looked at this often: what differs must be
# healed within 30 s. It is a login and a query each time, so not with each reconcile.
_AGAIN_SECONDS = 15.0
# So long a server is given to start with what is written: what was declared since is told to it then. One that does
# not start may need just that.
_STARTS = timedelta(minutes=1)
# So many changed settings an Event names.
_NAMED = 10


@dataclass(slots=True)
class _Told:
    """What one server said about the parameters ``about`` when it was asked, and since when it is asked about them.

    ``altered`` are those that are not as they are kept since somebody set them at the server. Others that it waits
    for a restart for may be among ``suspected``, which are to be looked at with more rights. ``read``: it had had the
    time to read what was written.
    """

    about: tuple[Mapping[str, str], bool]
    asked: float
    since: float
    altered: frozenset[str] = frozenset()
    suspected: frozenset[str] = frozenset()
    alterable: bool = True
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    differs: Mapping[str, str] = field(default_factory=dict[str, str])
    tried: Tried = field(default_factory=Tried)
    read: bool = False

    @property
    def is_right(self) -> bool:
        """Whether it runs with what is declared and would start with it, as far as it can be told."""
        return not (self.differs or self.altered or self.tried.unread)

    def stands(self, now: float) -> bool:
        """Whether nothing new is to be heard about what it reads."""
        return self.read or now - self.since < _NOTICED_SECONDS


@dataclass(frozen=True, slots=True)
class _Answers:
    """What the servers say that run, by their pods' UIDs, and why one says nothing.

    ``misread`` is that of `Settled`.
    """

    told: Mapping[str, _Told]
    unreachable: str | None
    misread: bool | None


@dataclass(frozen=True, slots=True)
class Settled:
    """How far settings are.

    ``done``: nothing is to be waited for. ``misread``: a server that runs could not read all of what it would start
    with; None where nobody knows.
    """

    done: bool
    misread: bool | None


class Settings:
    """Writes the shared configuration of all clusters. One for a controller.

    Args:
        ask: asks a server for its parameters; None where nobody does, and everything is written as declared.
        take_back: has a server forget what somebody set there, with a superuser's login; None where nobody can.
        try_out: has a server try values, with a superuser's login; None where nobody can.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        topology: Topology,
        clock: Clock,
        ask: AskSettings | None,
        take_back: TakeBack | None = None,
        try_out: TryOut | None = None,
    ) -> None:
        self._engine = engine
        self._topology = topology
        self._clock = clock
        self._ask = ask
        self._take_back = take_back
        self._try_out = try_out
        # What each server said last, by the UID of its pod, for as long as that is there.
        self._clusters: dict[ObjectKey, dict[str, _Told]] = {}

    async def ensure(
        self, charge: Charge, observed: Observed, ring: Keyring, findings: Findings, *, served: bool = False
    ) -> Settled:
        """Writes what the servers take, and tells what they do not.

        Args:
            served: servers of this cluster ran before.
        """
        view, stored = charge.view, observed.members.settings or {}
        trials = parameters.trials(view, observed)
        view = parameters.without(view, trials.back)
        answers = await self._look(charge, view, observed, ring, served=served)
        told = list(answers.told.values())
        refused = {name: words for one in told for name, words in one.refused.items()}
        unread = {name: found for one in told for name, found in one.tried.unread.items()}
        trials = parameters.with_unread(view, trials, {n: found for n, found in unread.items() if n not in refused})
        view = parameters.without(view, trials.back)
        large = parameters.too_large(view, self._engine.held, observed)
        readable = _readable(stored, view, unread)
        wanted = _held(view, readable, refused)
        # Who runs with as much is left alone.
        wanted = _held(wanted, stored, large)
        at_odds = _at_odds(self._engine, wanted, stored)
        wanted = _held(wanted, readable, at_odds)
        refused |= {**large, **at_odds}
        unjudged = not told and answers.unreachable is not None
        if unjudged:
            wanted = _held(wanted, stored, wanted.parameters)
            wanted = parameters.loading(wanted, stored) if stored else wanted
        unread_rules = self._unread_rules(view)
        estranged = frozenset(i.number for i in observed.instances if i.estranged)
        wanted = replace(
            wanted,
            forgets_absent=_knows_who_is_gone(observed),
            estranged=estranged,
            present=frozenset(i.number for i in observed.instances),
            recovered=recovery.recovered(view, observed),
            alterable=any(one.altered for one in told),
        )
        settings = {**self._settings(wanted, stored, bool(unread_rules)), **parameters.record(trials)}
        written = await self._topology.configure(observed.members, settings)
        if written:
            charge.events.normal(charge.cluster, "Configured", _written(stored, settings))
        stubborn = await self._heal(charge, observed, ring, answers.told)
        judge_parameters(observed, findings)
        if unjudged and not parameters.are_same(wanted, view):
            message = f"no server could be asked whether it takes the parameters ({answers.unreachable})"
            findings.tell("ParametersApplied", False, "ServerUnreachable", message)
            return Settled(not written, answers.misread)
        now = self._clock.monotonic()
        settled = [one for one in told if now - one.since >= _SETTLES_SECONDS]
        differs = {name: words for one in settled for name, words in one.differs.items()}
        wrong = {
            **unread_rules,
            **_unwilling(view, observed),
            **stubborn,
            **differs,
            **refused,
            **{one.name: one.words for one in trials.back},
            **dict(_beside(charge.view, observed, unread)),
        }
        waits = written or any(
            not one.is_right or now - one.since < _NOTICED_SECONDS for one in told if one not in settled
        )
        if wrong:
            message = "; ".join(wrong[name] for name in sorted(wrong))
            findings.tell("ParametersApplied", False, "ParameterRefused", message)
        elif waits and self._ask is not None:
            findings.leave("ParametersApplied", unless="Applied")
        return Settled(not waits, answers.misread)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._clusters.pop(cluster, None)

    def _unread_rules(self, view: ClusterView) -> dict[str, str]:
        """The access rules that no server would read, and why."""
        problems = {f"pgHba[{n}]": self._engine.access_problem(rule) for n, rule in enumerate(view.access_rules)}
        return {where: f"spec.postgresql.{where}: {words}" for where, words in problems.items() if words}

    def _settings(self, view: ClusterView, stored: Mapping[str, Any], unread: bool) -> Mapping[str, Any]:
        """What is declared; where a rule could not be read, with the former rules: a gap could let somebody in."""
        if not unread:
            return self._engine.settings(view)
        settings = self._engine.settings(replace(view, access_rules=()))
        former = {k: v for k, v in stored.get(self._engine.name, {}).items() if k == "pg_hba"}
        return {**settings, self._engine.name: {**settings[self._engine.name], **former}}

    async def _look(
        self, charge: Charge, view: ClusterView, observed: Observed, ring: Keyring, *, served: bool
    ) -> _Answers:
        ask = self._ask
        if ask is None:
            return _Answers({}, None, misread=False)
        there = {i.pod.metadata.uid for i in observed.instances if i.pod is not None}
        former = {uid: one for uid, one in self._clusters.get(charge.view.key, {}).items() if uid in there}
        # It may be what all read that it does not start with, whatever they have said of that before.
        fails = any(i.member is not None and i.member.state == "StartFailed" for i in observed.instances)
        asked: dict[str, Awaitable[_Told]] = {}
        for instance in observed.instances:
            pod, member = instance.pod, instance.member
            serves = instance.pod_ready and not instance.fenced
            if pod is not None and pod.status.pod_ip and member is not None and serves:
                last = former.get(pod.metadata.uid)
                asked[pod.metadata.uid] = self._told(ask, view, instance, ring, last, fails=fails)
        answers = dict(zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True))
        for answer in answers.values():
            if isinstance(answer, BaseException) and not isinstance(answer, EngineError):
                raise answer
        told = {uid: answer for uid, answer in answers.items() if isinstance(answer, _Told)}
        known = self._clusters[charge.view.key] = {**former, **told}
        nobody = "none runs" if _none_has_started(observed, served=served) else None
        unreachable = next((str(a) for a in answers.values() if isinstance(a, EngineError)), nobody)
        if self._try_out is None:
            return _Answers(told, unreachable, misread=False)
        return _Answers(told, unreachable, _misread((known[uid] for uid in asked if uid in known), told.values()))

    async def _told(
        self,
        ask: AskSettings,
        view: ClusterView,
        instance: Instance,
        ring: Keyring,
        former: _Told | None,
        *,
        fails: bool,
    ) -> _Told:
        """What one server says; it is asked again for as long as it differs, or where it may by now.

        ``fails``: another does not start.
        """
        assert instance.pod is not None and instance.member is not None
        restarts, waiting = instance.member.pending_restart, {p.name for p in instance.member.pending}
        about = dict(view.parameters), restarts
        same, now = former is not None and former.about == about, self._clock.monotonic()
        stays = not fails and not self._engine.can_be_altered(view)
        recent = stays or (former is not None and now - former.asked < _AGAIN_SECONDS)
        if former is not None and same and former.is_right and recent and former.stands(now):
            return former
        catalog = await ask(self._server(instance.pod, Login(OPERATOR, certificate=ring.login.as_client), ring))
        told = _Told(about, now, now)
        kept = self._engine.keeps(view, catalog)
        told.altered = frozenset(name for name in kept if catalog[name].altered)
        told.suspected = told.altered.union(name for name in kept if catalog[name].pending_restart)
        told.alterable = "allow_alter_system" not in catalog or catalog["allow_alter_system"].value == "on"
        verdicts = {n: self._engine.judge(n, v, catalog) for n, v in view.parameters.items()}
        told.refused = {name: verdict.reason for name, verdict in verdicts.items() if verdict.kind == "Refused"}
        told.tried = await self._tried(view, instance.pod, ring, told, former if same and not fails else None)
        told.refused = {**told.tried.refused, **told.refused}
        differs: dict[str, str] = {}
        for name, value in view.parameters.items():
            if name in told.refused:
                continue
            shown = self._engine.shown_instead(name, value, catalog)
            # What waits for a restart is known by the member's own word.
            if shown is not None and not (restarts and (name in waiting or catalog[name].context == "postmaster")):
                where = view.names.instance(instance.number)
                differs[name] = f'parameter "{name}" is declared as {value}, and {where} runs with {shown}'
        told.differs = differs
        if former is not None and same and told.is_right >= former.is_right:
            told.since = former.since
        told.read = self._try_out is None or now - told.since >= _NOTICED_SECONDS
        return told

    async def _tried(self, view: ClusterView, pod: Pod, ring: Keyring, told: _Told, former: _Told | None) -> Tried:
        """What it says of values that nobody else can judge; ``former`` has told it about the same."""
        if self._try_out is None:
            return Tried()
        if former is not None and former.read and not former.tried.unread:
            return former.tried
        values = {name: value for name, value in view.parameters.items() if name not in told.refused}
        login = Login(SUPERUSER, certificate=ring.superuser(self._clock.now()).as_client)
        return await self._try_out(self._server(pod, login, ring), values)

    async def _heal(
        self, charge: Charge, observed: Observed, ring: Keyring, told: Mapping[str, _Told]
    ) -> Mapping[str, str]:
        """Takes back what somebody set at servers; gives what could not be, by their names."""
        suspected = {
            charge.view.names.instance(i.number): (i, one)
            for i in observed.instances
            if i.pod is not None and (one := told.get(i.pod.metadata.uid)) is not None
            if one.suspected and one.alterable
        }
        failures = await asyncio.gather(*(self._forget(charge, observed, ring, *each) for each in suspected.values()))
        return {
            where: f"{', '.join(sorted(one.altered))} at {where} is set by ALTER SYSTEM, and stays so: {words}"
            for (where, (_, one)), words in zip(suspected.items(), failures, strict=True)
            if words and one.altered
        }

    async def _forget(
        self, charge: Charge, observed: Observed, ring: Keyring, instance: Instance, told: _Told
    ) -> str:
        """Has one server forget it; why that could not be, if so."""
        if self._take_back is None or instance.pod is None or instance.member is None:
            return ""
        login = Login(SUPERUSER, certificate=ring.superuser(self._clock.now()).as_client)
        try:
            names = await self._take_back(self._server(instance.pod, login, ring), told.suspected)
            if names or told.altered:
                # By its Patroni, which so learns of what waits for a restart.
                await self._topology.reload(observed.members, instance.member)
        except EngineError as error:
            return str(error)
        told.suspected = frozenset()
        if names:
            what = f"{', '.join(names)} at {charge.view.names.instance(instance.number)}"
            charge.events.normal(charge.cluster, "DriftRepaired", f"took back what ALTER SYSTEM had set: {what}")
        return ""

    def _server(self, pod: Pod, login: Login, ring: Keyring) -> Server:
        return ring.member(self._engine.name, Endpoint(pod.status.pod_ip or "", self._engine.port), login)


def _knows_who_is_gone(observed: Observed) -> bool:
    """Whether the log is kept for an instance that was taken away, and nobody else is missing."""
    primary = observed.members.primary
    if primary is None or not observed.members.kept - {i.number for i in observed.instances}:
        return False
    return all(i.follows(primary) for i in observed.instances)


def _unwilling(view: ClusterView, observed: Observed) -> Mapping[str, str]:
    """The parameters that servers did not take as they ran, with their words."""
    refused = [one for member in observed.members.members for one in member.refused.items()]
    return {name: words for name, words in refused if name in view.parameters}


def _beside(
    declared: ClusterView, observed: Observed, unread: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """What is wrong and not of one parameter: of the file, and of the first start."""
    if others := [words for name, (_, words) in sorted(unread.items()) if name not in declared.parameters]:
        yield "file", f"no instance would start: {'; '.join(others)}"
    if words := parameters.prevented(declared, observed):
        yield "first start", words


def _misread(last: Iterable[_Told], present: Iterable[_Told]) -> bool | None:
    """Whether servers could not read what they would start with, by what those that run said last, and say now.

    Silence mends no file. But that it is read only those tell who answer: it may have been changed since.
    """
    if any(one.tried.unread for one in last):
        return True
    return False if any(one.read for one in present) else None


def _none_has_started(observed: Observed, *, served: bool) -> bool:
    """Whether there are data, and no server that starts with what is written, or has had the time to.

    After a major upgrade nobody has written down whose data they are before the new server runs, and it starts with
    what the upgrade has tried.
    """
    there = observed.members.initialized or (served and observed.members.settings is not None)
    return there and not any(_is_tried(i, observed.now) for i in observed.instances)


def _is_tried(instance: Instance, now: datetime) -> bool:
    if instance.pod is None or instance.pod_ends or instance.fenced:
        return False
    fails = instance.member is not None and instance.member.state == "StartFailed"
    had_time = instance.unready_for(now) > _STARTS and instance.has_run_for(_STARTS, now)
    return fails or instance.pod_ready or had_time


def _written(stored: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """What an Event says of a change, whoever made it necessary: values are not for everybody's eyes."""
    names = sorted(_changed(stored, settings)) if stored else []
    listed = ", ".join(names[:_NAMED]) + (f" and {len(names) - _NAMED} more" if len(names) > _NAMED else "")
    return "wrote the settings that all members share" + (f": {listed}" if listed else "")


def _changed(stored: Mapping[str, Any], settings: Mapping[str, Any], place: str = "") -> Iterator[str]:
    for name in {*stored, *settings}:
        former, wanted = stored.get(name), settings.get(name)
        if isinstance(former, dict) and isinstance(wanted, dict):
            inside = cast(Mapping[str, Any], former), cast(Mapping[str, Any], wanted)
            yield from _changed(*inside, f"{place}{name}.")
        elif former != wanted:
            yield f"{place}{name}"


def _readable(
    stored: Mapping[str, Any], view: ClusterView, unread: Mapping[str, tuple[str, str]]
) -> Mapping[str, Any]:
    """What is stored, without what no server reads, and without what is declared: that was written unjudged."""
    former = parameters.written(view, stored)
    bad = {(n, v) for n, (v, _) in unread.items()} | {(n, v.strip()) for n, v in view.parameters.items()}
    return {view.engine: {"parameters": {n: v for n, v in former.items() if not {(n, v), (n, v.strip())} & bad}}}


def _at_odds(engine: ClusterEngine, view: ClusterView, stored: Mapping[str, Any]) -> dict[str, str]:
    """Parameters that servers do not start with beside others, and why: of such, those that they do not have yet."""
    former = parameters.written(view, stored)
    found = dict[str, str]()
    for names, words in engine.at_odds(view.parameters):
        declared = [name for name in names if name in view.parameters]
        new = [name for name in declared if view.parameters[name] != former.get(name)]
        found.update(dict.fromkeys(new or declared[:1], words))
    return found


def _held(view: ClusterView, stored: Mapping[str, Any], names: Collection[str]) -> ClusterView:
    """With these parameters as they are stored, and without those that are not."""
    former = parameters.written(view, stored)
    kept = {name: former.get(name) if name in names else value for name, value in view.parameters.items()}
    return replace(view, parameters={name: value for name, value in kept.items() if value is not None})
