"""What Kubernetes does with the objects of clusters in memory: claims are bound, pods run, garbage goes."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from database_support.unit.fake_patroni import FakeHosts, FakePatroni, FakeVolume, is_fenced
from database_support.unit.fake_programs import SOURCE_SYSTEM
from database_support.unit.job_runner import JobRunner
from steersman.api.apps_v1 import Deployment, StatefulSet
from steersman.api.batch_v1 import Job
from steersman.api.core_v1 import Event, ObjectReference, PersistentVolumeClaim, Pod, PodSpec, Secret
from steersman.client import Client, MergePatch
from steersman.errors import AlreadyExists, Conflict, NotFound
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta, OwnerReference, to_builtins
from steersman.observability.runtime import Clock
from steersman_databases.cluster.state import AWAITING_RECOVERY, RESTORING
from steersman_databases.engines.naming import INSTANCE_LABEL
from steersman_databases.features.major_upgrade.specs import JOB_LABEL
from steersman_testing import InMemoryApiServer

_SYNC_INTERVAL_SECONDS = 0.5


class PodProcesses(Protocol):
    """What runs in the pods, played in one."""

    async def sync(self) -> None:
        """One round."""
        ...

    def state(self) -> object:
        """Another each time that there is something to look at beside what stands in Kubernetes."""
        ...

    def restore(self, pvc_uid: str) -> None:
        """Fill a volume with earlier data of the cluster."""
        ...

    def is_stopped(self, pod: Pod) -> bool:
        """Whether nothing runs any more in a pod that is to end; it is told to."""
        ...


class ClusterKubelet:
    """Stands in for the StatefulSet controller (``OnDelete``), the volume binder, the kubelet, and what pods run.

    Args:
        members: what runs in the pods; Patroni unless given.
    """

    def __init__(
        self, server: InMemoryApiServer, client: Client, hosts: FakeHosts, members: PodProcesses | None = None
    ) -> None:
        self._server = server
        self._client = client
        self._hosts = hosts
        self._members = members or FakePatroni(server, client, hosts)
        self._rolled_out: dict[str, dict[str, Any]] = {}
        self._jobs = JobRunner(server, client, hosts.sql, hosts.applied)

    async def run(self, clock: Clock) -> None:
        """Never returns."""
        self._jobs.clock = clock
        seen = None
        while True:
            news = (
                self._hosts.upgrade_hangs,
                repr(self._hosts.stuck_jobs),
                len(self._hosts.hanging),
                repr(self._hosts.programs),
                repr(self._hosts.not_rolled_out),
                self._hosts.pod_rejection,
                repr(self._hosts.resizes),
                self._members.state(),
            )
            changes = self._server.change_count(), *news
            if changes != seen:
                await self.sync()
            # What this look itself changed is looked at, too.
            seen = changes
            await clock.sleep(_SYNC_INTERVAL_SECONDS)

    async def sync(self) -> None:
        """One round."""
        wanted = {
            s.key: s for s in self._server.read_all(StatefulSet) if INSTANCE_LABEL in s.spec.template.metadata.labels
        }
        for pod in self._server.read_all(Pod):
            owner = wanted.get(ObjectKey(pod.key.namespace, pod.key.name.removesuffix("-0")))
            ends = pod.metadata.deletion_timestamp is not None or owner is None or owner.spec.replicas == 0
            if INSTANCE_LABEL in pod.metadata.labels and ends:
                await self._stop(pod)
        await self._hosts.resizes.sync(self._server, self._client)
        await self._release_pvcs()
        # First those that are there: who is gone has lost the lock before its pod is back.
        await self._members.sync()
        for stateful in wanted.values():
            if stateful.spec.replicas != 0:
                await self._start(stateful)
        await self._jobs.sync(self._hosts.stuck_jobs)
        await self._release_pods()
        for job in self._server.read_all(Job):
            names = {c.name for c in job.spec.template.spec.containers}
            # Of the programs of backups only those on the volume of an instance: the tests end the others.
            played = "upgrade" in names or ("backup" in names and INSTANCE_LABEL in job.metadata.labels)
            played = played or job.metadata.name in self._hosts.stuck_jobs
            if played and not job.spec.suspend and not job.status.conditions:
                await self._run(job)
        for deployment in self._server.read_all(Deployment):
            await self._roll_out(deployment)
        self._server.collect_garbage()

    async def _emit_rejected(self, maker: StatefulSet | Job, said: str) -> None:
        """As their controllers do: by an Event, and the same one when it happens again."""
        name, namespace = maker.metadata.name, maker.metadata.namespace
        key = ObjectKey(namespace, f"{name}.refused")
        if self._server.read(Event, key) is not None:
            return
        about = ObjectReference(namespace=namespace, name=name, uid=maker.metadata.uid)
        metadata = ObjectMeta(name=key.name, namespace=namespace)
        at = maker.status.start_time if isinstance(maker, Job) else maker.metadata.creation_timestamp
        event = Event(metadata=metadata, involved_object=about, reason="FailedCreate", type="Warning", message=said)
        await self._client.create(msgspec.structs.replace(event, first_timestamp=at, last_timestamp=at, count=1))

    async def _roll_out(self, deployment: Deployment) -> None:
        """Says that its pods are there and ready, of which there are none."""
        unrolled = self._hosts.not_rolled_out
        replicas = 0 if unrolled else deployment.spec.replicas or 0
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), replicas)
        generation = {"observedGeneration": deployment.metadata.generation}
        status: dict[str, Any] = {**generation, **counts, "conditions": list[Any](), **unrolled}
        if self._rolled_out.get(deployment.metadata.uid) == status:
            return
        self._rolled_out[deployment.metadata.uid] = status
        await self._client.patch(Deployment, deployment.key, MergePatch({"status": status}), subresource="status")

    async def _start(self, stateful: StatefulSet) -> None:
        name, namespace = stateful.metadata.name, stateful.metadata.namespace
        key = ObjectKey(namespace, f"{name}-0")
        claim = self._server.read(PersistentVolumeClaim, ObjectKey(namespace, f"data-{name}"))
        if self._server.read(Pod, key) is not None or claim is None:
            return
        if claim.metadata.deletion_timestamp is not None or not self._mounted(stateful):
            return
        claimed = {
            v.persistent_volume_claim.claim_name
            for p in self._writing()
            for v in p.spec.volumes
            if v.persistent_volume_claim
        }
        assert AWAITING_RECOVERY not in claim.metadata.labels, f"{key} is started before {claim.key} is recovered"
        assert RESTORING not in claim.metadata.annotations, f"{key} is started before {claim.key} is restored"
        assert claim.metadata.name not in claimed, f"{key} is started while an upgrade writes to {claim.key}"
        if self._hosts.pod_rejection:
            name = stateful.metadata.name
            said = f"create Pod {name}-0 in StatefulSet {name} failed error: {self._hosts.pod_rejection}"
            await self._emit_rejected(stateful, said)
            return
        bound = MergePatch({"status": {"phase": "Bound"}})
        await self._client.patch(PersistentVolumeClaim, claim.key, bound, subresource="status")
        template = stateful.spec.template
        owner = OwnerReference(
            api_version="apps/v1", kind="StatefulSet", name=name, uid=stateful.metadata.uid, controller=True
        )
        metadata = ObjectMeta(
            name=key.name,
            namespace=namespace,
            labels=template.metadata.labels,
            annotations=FrozenDict[str, str]({**template.metadata.annotations, "volume": claim.metadata.uid}),
            owner_references=(owner,),
            # It takes its time to end, whoever deletes it.
            finalizers=("kubelet.test/ends",),
        )
        try:
            pod = await self._client.create(Pod(metadata=metadata, spec=self._admitted(template.spec)))
        except AlreadyExists:
            return
        if self._hosts.unschedulable & set(pod.spec.node_selector.values()):
            nowhere = [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}]
            body = {"status": {"phase": "Pending", "conditions": nowhere}}
            await self._client.patch(Pod, key, MergePatch(body), subresource="status")
            return
        image = template.spec.containers[0].image or ""
        if image in self._hosts.crashing:
            container = {"name": "server", "image": image, "imageID": "", **self._hosts.crashing[image]}
            body = {"status": {"phase": "Running", "containerStatuses": [container]}}
            await self._client.patch(Pod, key, MergePatch(body), subresource="status")
            return
        self._hosts.addresses += 1
        address = f"10.0.{self._hosts.addresses // 256}.{self._hosts.addresses % 256}"
        ready = [{"type": "Ready", "status": "True" if is_fenced(pod) else "False"}]
        began = {"name": "server", "state": {"running": {"startedAt": to_builtins(pod.metadata.creation_timestamp)}}}
        addresses = {"podIP": address, "podIPs": [{"ip": address}]}
        said = {"phase": "Running", **addresses, "conditions": ready, "containerStatuses": [began]}
        await self._client.patch(Pod, key, MergePatch({"status": said}), subresource="status")

    def _admitted(self, spec: PodSpec) -> PodSpec:
        """Rewrite the images, as the webhook of a mirror registry does."""
        prefix = self._hosts.registry_prefix
        containers = tuple(msgspec.structs.replace(c, image=f"{prefix}{c.image}") for c in spec.containers)
        return msgspec.structs.replace(spec, containers=containers)

    async def _run(self, job: Job) -> None:
        """A Job's pod, from its start to its end: the upgrade's gives the volume other data, or leaves it alone."""
        await self._jobs.record_start(job)
        if job.metadata.name in self._hosts.stuck_jobs:
            status = self._hosts.stuck_jobs[job.metadata.name]
            if isinstance(status, str) and job.status.start_time is not None:
                await self._emit_rejected(job, f"Error creating: {status}")
            await self._jobs.block_pod(job, {} if isinstance(status, str) else status)
            return
        number, said = job.metadata.labels.get(INSTANCE_LABEL), self._hosts.upgrade_fails
        if number is not None and not job.metadata.name.endswith("-upgrade"):
            await self._run_program(job, number)
            return
        if number is None:
            said = self._hosts.missing_programs
        else:
            name = job.metadata.name.removesuffix("-upgrade")
            claim = self._server.read(PersistentVolumeClaim, ObjectKey(job.key.namespace, f"data-{name}-{number}"))
            assert claim is not None, f"the volume of {job.key} is gone"
            using = [p.key for p in self._server.read_all(Pod) if INSTANCE_LABEL in p.metadata.labels]
            assert not using, f"{using} run while {job.key} does"
            if self._hosts.upgrade_hangs:
                await self._jobs.start_pod(job)
                return
            volume = self._hosts.volumes[claim.metadata.uid]
            if not said and volume.major != "17":
                self._hosts.volumes[claim.metadata.uid] = FakeVolume(f"{volume.system}-upgraded", 1, major="17")
        await self._jobs.finish_pod(job, said or "5 indexes rebuilt", 1 if said else 0)

    async def _run_program(self, job: Job, number: str) -> None:
        """Recover a volume, or take the final backup of one, while no server uses it."""
        cluster, program = _program_of(job)
        pvc = self._server.read(PersistentVolumeClaim, ObjectKey(job.key.namespace, f"data-{cluster}-{number}"))
        if pvc is None:
            return
        running = {p.metadata.labels.get(INSTANCE_LABEL) for p in self._server.read_all(Pod)}
        assert number not in running, f"a server runs on {pvc.key} beside {job.key}"
        programs, volume = self._hosts.programs, self._hosts.volumes.get(pvc.metadata.uid, FakeVolume())
        if program == "restore":
            report, exit_code = programs.recover(pvc.metadata.name)
            if exit_code == 0:
                self._members.restore(pvc.metadata.uid)
        elif program == "recovery":
            report, exit_code = programs.recover(pvc.metadata.name)
            if exit_code == 0:
                self._hosts.volumes[pvc.metadata.uid] = FakeVolume(SOURCE_SYSTEM, 3, major="17")
        else:
            report, exit_code = programs.final_backup(volume.system)
        await self._jobs.finish_pod(job, report, exit_code)
        if programs.lost_reports:
            programs.lost_reports -= 1
            for pod in self._server.read_all(Pod):
                if any(reference.uid == job.metadata.uid for reference in pod.metadata.owner_references):
                    await self._client.delete(Pod, pod.key)

    def _writing(self) -> list[Pod]:
        """The pods of upgrades that may still write."""
        pods = [p for p in self._server.read_all(Pod) if p.metadata.labels.get(JOB_LABEL, "").endswith("-upgrade")]
        return [p for p in pods if p.status.phase not in ("Succeeded", "Failed")]

    async def _release_pods(self) -> None:
        """Pods that did not end as they were deleted do, once they do not hang any more."""
        for pod in [] if self._hosts.upgrade_hangs else self._writing():
            if pod.metadata.deletion_timestamp is not None:
                await self._client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))

    async def _release_pvcs(self) -> None:
        """A claim that is deleted goes when no pod uses it any more."""
        used = {
            ObjectKey(pod.key.namespace, v.persistent_volume_claim.claim_name)
            for pod in self._server.read_all(Pod)
            for v in pod.spec.volumes
            if v.persistent_volume_claim is not None
        }
        for claim in self._server.read_all(PersistentVolumeClaim):
            if claim.metadata.deletion_timestamp is not None and claim.key not in used and claim.metadata.finalizers:
                body = {"metadata": {"finalizers": None}}
                await self._client.patch(PersistentVolumeClaim, claim.key, MergePatch(body))

    def _mounted(self, stateful: StatefulSet) -> bool:
        """Return True if every Secret that the pod mounts exists, except optional ones."""
        volumes = stateful.spec.template.spec.volumes
        names = [v.secret.secret_name for v in volumes if v.secret is not None and not v.secret.optional]
        namespace = stateful.metadata.namespace
        return all(self._server.read(Secret, ObjectKey(namespace, name or "")) is not None for name in names)

    async def _stop(self, pod: Pod) -> None:
        try:
            if pod.metadata.deletion_timestamp is None:
                await self._client.delete(Pod, pod.key, uid=pod.metadata.uid)
            if not self._members.is_stopped(pod):
                return
            await self._client.patch(Pod, pod.key, MergePatch({"metadata": {"finalizers": None}}))
        except (NotFound, Conflict):
            return


def _program_of(job: Job) -> tuple[str, str]:
    """The cluster and the program of a Job on the volume of an instance."""
    name = job.metadata.name
    for program in ("recovery", "final-backup"):
        if name.endswith(f"-{program}"):
            return name.removesuffix(f"-{program}"), program
    cluster, program, _ = name.rsplit("-", 2)
    return cluster, program
