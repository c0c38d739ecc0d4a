"""The first database of a cluster: database and owner, kept like those of others, and what configures it once.

Whether it was configured is told by a marker in the database itself, written in the transaction of the SQL. Job,
condition and everything else may be lost at any time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import TypeVar

from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import ConfigMap, Namespace, Pod, Secret
from steersman.cache import CachedClient
from steersman.controller import Builder
from steersman.errors import AlreadyExists
from steersman.meta import Object, ObjectKey
from steersman_databases.api import Cluster
from steersman_databases.api.conditions import CLUSTER
from steersman_databases.clusters.configuration import Progress, progress_of
from steersman_databases.clusters.desires import claim_of, initial_of
from steersman_databases.clusters.trouble import Trouble
from steersman_databases.clusters.upgrade import has_ended
from steersman_databases.controllers.cluster_status import Findings
from steersman_databases.controllers.declaring import Charge
from steersman_databases.controllers.instances import CLUSTER_INDEX
from steersman_databases.controllers.lookup import find_live
from steersman_databases.controllers.marks import ClusterMark
from steersman_databases.controllers.outcome import reason_of
from steersman_databases.controllers.refused import refusal_of
from steersman_databases.controllers.rivals import Rivals
from steersman_databases.controllers.servers import NotLocated, Servers
from steersman_databases.controllers.surveys import ServerBusy, Surveys
from steersman_databases.engines import Credentials, EngineError
from steersman_databases.engines.cluster import ClusterEngine, Configurer
from steersman_databases.engines.plan import Change
from steersman_databases.engines.survey import Scope
from steersman_databases.resources.jobs import SOURCES, configuration_job, configuration_labels
from steersman_databases.resources.made_for import is_made_otherwise

T = TypeVar("T", bound=Object)


class Initial:
    """Keeps the first databases of all clusters. One for a controller.

    Args:
        client: of the controller.
        kind: of the clusters.
        engine: what the Job runs.
        servers: finds theirs.
        surveys: shared with the controllers of databases and users.
    """

    def __init__(
        self,
        client: CachedClient,
        kind: type[Cluster],
        engine: ClusterEngine,
        servers: Servers,
        surveys: Surveys,
    ) -> None:
        self._kind = kind.api_resource.kind
        self._engine = engine
        self._servers = servers
        self._surveys = surveys
        self._mark = ClusterMark(client)
        self._rivals = Rivals(client, servers, surveys, self._mark)

    async def ensure(self, charge: Charge, cluster: Cluster, owner: Credentials, findings: Findings) -> None:
        """Database and owner as declared, then the configuration. Only with a primary that takes writes."""
        # Before the server is looked at: whatever this Job has done is seen there.
        job = await charge.client.get_or_none(Job, charge.view.names.initial_job)
        try:
            applied = await self._settle(charge, cluster, owner)
        except NotLocated as reason:
            findings.tell("InitialDatabase", False, reason.reason, str(reason))
        except ServerBusy:
            findings.tell("InitialDatabase", None, "ServerUnreachable", "the server has not answered yet")
        except EngineError as error:
            self._tell(charge, error.changes)
            reason = reason_of(error, CLUSTER["InitialDatabase"])
            findings.tell("InitialDatabase", False, reason, str(error))
        else:
            initial = charge.view.initial
            told = f"database {initial.database} and its owner {initial.owner} are as declared"
            findings.tell("InitialDatabase", True, "DatabaseReady", told)
            if initial.sql:
                await self._configure(charge, job, findings, applied=applied)

    def forget(self, cluster: ObjectKey) -> None:
        """Nothing is kept for the cluster any more."""
        self._surveys.forget(self._kind, cluster)

    async def _settle(self, charge: Charge, cluster: Cluster, owner: Credentials) -> bool:
        """Whether the configuration was applied to the database, which is as declared now."""
        view = charge.view
        located = await self._servers.own(view)
        await self._rivals.require_first(cluster, located)
        desired = initial_of(view.initial, owner.password, claim_of(cluster, await self._mark.read()))
        for each in desired:
            located.contents.check(each, located.server.login.username)
        self._tell(charge, await self._surveys.settle(located, self._kind, view.key, desired))
        if not view.initial.sql:
            return True
        database, marker = view.initial.database, self._engine.configurer(view).marker
        inside = {database: frozenset({marker.schema or ""})}
        scope = Scope(databases=frozenset(inside), inside=inside)
        survey = await self._surveys.look(located, self._kind, view.key, scope)
        return database in survey.inside and marker in survey.inside[database].objects

    async def _configure(self, charge: Charge, job: Job | None, findings: Findings, *, applied: bool) -> None:
        view, key = charge.view, charge.view.names.initial_job
        if applied:
            # What it was for is done; what it said stands in the condition.
            await charge.remove(Job, key)
            told = f"the SQL was applied to database {view.initial.database}"
            findings.tell("InitialConfiguration", True, "Applied", told)
            return
        sources, missing = await self._sources(charge)
        if missing:
            findings.tell("InitialConfiguration", None, "Waiting", f"there is no {', no '.join(missing)}")
            return
        configurer = self._engine.configurer(view)
        if job is None:
            await self._create(charge, configurer, sources)
            findings.tell("InitialConfiguration", None, "Running", f"Job {key.name} runs the SQL")
            return
        pods = await self._pods(charge, job)
        progress = progress_of(job, pods)
        is_former = job.metadata.annotations.get(SOURCES) != sources
        if (trouble := await self._trouble(charge, job, progress)) is not None:
            otherwise = is_former or is_made_otherwise(job, configuration_job(view, configurer, sources))
            if otherwise and await self._has_not_begun(charge, job, pods):
                # What is declared now may be what its pod needs.
                await self._remake(charge, job)
            reason = "JobRefused" if trouble.reason == "InstanceRefused" else trouble.reason
            findings.tell("InitialConfiguration", False, reason, trouble.message)
            return
        told = f"Job {key.name} runs the SQL" + (f": {progress.words}" if progress.words else "")
        if is_former and (progress.ended or configurer.one_transaction):
            await self._remake(charge, job)
        elif progress.ended:
            findings.tell("InitialConfiguration", False, "Failed", progress.words)
            return
        elif is_former:
            # Of what is cut off in the middle nobody knows how far it came.
            told += "; what its ConfigMaps and Secrets have now is run only if it fails"
        findings.tell("InitialConfiguration", None, "Running", told)

    async def _trouble(self, charge: Charge, job: Job, progress: Progress) -> Trouble | None:
        """Why no pod of it runs, where somebody has to mend that."""
        if progress.ended or not progress.idle:
            return progress.trouble
        refusal = await refusal_of(charge.client.live, job)
        return None if refusal is None else refusal.trouble

    async def _has_not_begun(self, charge: Charge, job: Job, known: Sequence[Pod]) -> bool:
        """Whether no pod has started the SQL of which the cache, with those that are ``known``, has not heard yet."""
        ended = {pod.metadata.uid for pod in known if has_ended(pod)}
        labels = ",".join(f"{k}={v}" for k, v in configuration_labels(charge.view).items())
        found = await charge.client.live.list(Pod, namespace=job.metadata.namespace, label_selector=labels)
        since = [pod for pod in _pods_of(job, found.items) if pod.metadata.uid not in ended]
        if any(has_ended(pod) for pod in since):
            return False
        return not since or progress_of(job, since).trouble is not None

    async def _remake(self, charge: Charge, job: Job) -> None:
        """Of a Job nothing may be changed: once it is gone, there is another."""
        if job.metadata.deletion_timestamp is None:
            await charge.delete(Job, job)

    async def _create(self, charge: Charge, configurer: Configurer, sources: str) -> None:
        job = configuration_job(charge.view, configurer, sources)
        try:
            # Not applied: of a Job nothing may be changed.
            await charge.client.create(job, owner=charge.cluster)
        except AlreadyExists:
            # A stranger's, or so new that the cache does not have it.
            charge.require_ours(await charge.client.live.get(Job, job.key))
        else:
            charge.created(Job, job.key)

    async def _sources(self, charge: Charge) -> tuple[str, Sequence[str]]:
        """What tells this state of the SQL from others, and nothing of what is in it; and what of it is missing."""
        told: list[str] = []
        missing: list[str] = []
        for source in charge.view.initial.sql:
            key = ObjectKey(charge.view.key.namespace, source.name)
            found = await find_live(charge.client, Secret if source.kind == "Secret" else ConfigMap, key)
            if found is None:
                missing.append(f"{source.kind} {source.name}")
            elif source.key not in found.data:
                missing.append(f"key {source.key} in {source.kind} {source.name}")
            else:
                told.append(f"{source} {_state(found, source.key)}")
        return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16], list(dict.fromkeys(missing))

    async def _pods(self, charge: Charge, job: Job) -> Sequence[Pod]:
        found = await charge.client.list(Pod, index=(CLUSTER_INDEX, str(charge.view.key)))
        return _pods_of(job, found)

    def _tell(self, charge: Charge, changes: Sequence[Change]) -> None:
        for change in changes:
            charge.events.normal(charge.cluster, change.reason, change.message)


def _pods_of(job: Job, pods: Iterable[Pod]) -> Sequence[Pod]:
    return [p for p in pods if (o := p.controller_reference) is not None and o.uid == job.metadata.uid]


def _state(source: ConfigMap | Secret, key: str) -> str:
    # Of a Secret nothing that tells who guesses what is in it that he is right.
    if isinstance(source, Secret):
        return f"{source.metadata.uid} {source.metadata.resource_version}"
    return source.data[key]


def permit(builder: Builder[T]) -> Builder[T]:
    """Declares what `Initial` does at the API server."""
    return builder.needs(Job, "delete").needs(ConfigMap, "get").needs(Secret, "get").needs(Namespace, "get")
