"""Has each primary have the cluster's own accounts, and the administrator's password as its Secret says it.

That takes a superuser's login. Whether somebody set another password is seen by the operator's own session, which is
open anyway, in what the server keeps of it; and so is whether the accounts are as they were made, and who was told to
commit without waiting for a replica. Where that session is refused, its account is what somebody has changed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from steersman.api.core_v1 import Secret
from steersman.meta import ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Cluster, Database, DatabaseUser
from steersman_databases.clusters.claims import places
from steersman_databases.clusters.desires import claim_of
from steersman_databases.clusters.observed import Observed
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.keys import Keys
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.servers import NotLocated, Servers
from steersman_databases.controllers.surveys import ServerBusy, Surveys
from steersman_databases.engines.cluster import ClusterEngine
from steersman_databases.engines.cluster_names import SUPERUSER
from steersman_databases.engines.desired import Claim
from steersman_databases.engines.errors import AdministratorRejected, EngineError, LimitReached, RoleMissing
from steersman_databases.engines.holder import Holder
from steersman_databases.engines.plan import Change
from steersman_databases.engines.server import Credentials, Endpoint, Login, Server
from steersman_databases.engines.survey import Scope
from steersman_databases.resources.names import opened_by

Furnish = Callable[[Server, Credentials, Holder], Awaitable[tuple[Change, ...]]]

_AGAIN_SECONDS = 300.0
_AFTER_FAILURE_SECONDS = 60.0
_LOOK_SECONDS = 15.0


@dataclass(slots=True)
class _Done:
    """Which primary was last furnished with which password, and when. Forgotten with the process: one login each.

    When it was last looked at, it kept ``kept`` of that password, and ``hasty`` committed without waiting.
    ``failed``: it could not be furnished, or is changed still.
    """

    about: tuple[str, int | None, Credentials]
    at: float
    looked: float | None = None
    kept: str | None = None
    hasty: frozenset[str] = frozenset()
    failed: bool = False


class Accounts:
    """Of all clusters. One for a controller.

    Args:
        engine: whose servers they are.
        furnish: does it, with a superuser's login.
        mark: tells this Kubernetes cluster from others.
        servers: finds the primary for the operator's own session.
        surveys: shared with the controllers of databases and users.
    """

    def __init__(
        self,
        engine: ClusterEngine,
        clock: Clock,
        furnish: Furnish,
        mark: ClusterMark,
        servers: Servers,
        surveys: Surveys,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._furnish = furnish
        self._mark = mark
        self._servers = servers
        self._surveys = surveys
        self._clusters: dict[ObjectKey, _Done] = {}

    async def ensure(self, charge: Charge, cluster: Cluster, observed: Observed, keys: Keys) -> None:
        """Looks at the primary where it is another than before, or what it has of this is, or from time to time."""
        primary = observed.primary
        if primary is None or primary.pod is None or not primary.pod_ready or not primary.pod.status.pod_ip:
            return
        timeline = None if primary.member is None else primary.member.timeline
        about = primary.pod.metadata.uid, timeline, keys.administrator
        former, now = self._clusters.get(charge.view.key), self._clock.monotonic()
        fresh = former is not None and former.about == about and now - former.at < _AGAIN_SECONDS
        if former is not None and fresh and (not await self._is_changed(charge, former) or former.failed):
            return
        server, holder = self._server(primary.pod.status.pod_ip, keys), await self._holder(charge, cluster)
        done = _Done(about, now, hasty=frozenset() if former is None else former.hasty)
        try:
            changes = await self._furnish(server, keys.administrator, holder)
        except EngineError as error:
            done.at, done.failed = now - _AGAIN_SECONDS + _AFTER_FAILURE_SECONDS, True
            self._clusters[charge.view.key] = done
            charge.events.warning(charge.cluster, "AccountsNotUpdated", str(error))
            return
        self._clusters[charge.view.key] = done
        for change in changes:
            charge.events.normal(charge.cluster, change.reason, change.message)
        changed = await self._is_changed(charge, done)
        # What could not be undone is not tried at each look.
        done.failed = changed and not changes

    async def _is_changed(self, charge: Charge, done: _Done) -> bool:
        """Whether the server has other accounts than were made, or another password than at the last look."""
        now, name = self._clock.monotonic(), done.about[2].username
        if done.looked is not None and now - done.looked < _LOOK_SECONDS:
            return False
        done.looked = now
        try:
            located = await self._servers.own(charge.view)
            scope = Scope(unfollowed=frozenset({name}), commits=True, accounts=True)
            survey = await self._surveys.look(located, charge.view.kind, charge.view.key, scope)
        except (AdministratorRejected, LimitReached, RoleMissing):
            return True
        except (NotLocated, ServerBusy, EngineError):
            # Whoever needs the server tells of it.
            return False
        done.hasty = survey.hasty
        former, state = done.kept, survey.users.get(name)
        done.kept = "" if state is None else state.verifier or ""
        changed = survey.accounts_altered or former not in (None, done.kept)
        done.failed = done.failed and changed
        return changed

    def judge(self, cluster: ObjectKey, findings: Findings) -> None:
        """Who waits for no replica, although others do; as it was when the server was last looked at."""
        done, synchronous = self._clusters.get(cluster), findings.found.get("Synchronous")
        if done is None or not done.hasty or synchronous is None or not synchronous.holds:
            return
        told = f"{synchronous.message}; but synchronous_commit is set so that these wait for no replica: "
        findings.tell("Synchronous", True, "NotForAll", told + ", ".join(sorted(done.hasty)))

    async def _holder(self, charge: Charge, cluster: Cluster) -> Holder:
        """The cluster, with the users that are declared on it; those on a ``serverRef`` may be on it, too."""
        (here,), mark = places(cluster), await self._mark.read()
        second = self._servers.contents(self._engine.name).second_username
        declared = [*await charge.client.list(DatabaseUser), *await charge.client.list(Database)]
        users = {
            claim_of(of, mark).text: {of.spec.user, second(of.spec.user)}
            if isinstance(of, DatabaseUser)
            else {of.username}
            for of in declared
            if of.spec.server_ref is not None or here in places(of)
        }
        opened = map(opened_by, await charge.client.list(Secret))
        kept = {Claim(mark, "Database", of.namespace, of.name).text for of in opened if of is not None}
        return Holder(f"{claim_of(cluster, mark).text} {cluster.metadata.uid}", mark, users, kept)

    def _server(self, address: str, keys: Keys) -> Server:
        login = Login(SUPERUSER, certificate=keys.ring.superuser(self._clock.now()).as_client)
        return keys.ring.member(self._engine.name, Endpoint(address, self._engine.port), login)

    def forget(self, cluster: ObjectKey) -> None:
        """The cluster is gone."""
        self._clusters.pop(cluster, None)
