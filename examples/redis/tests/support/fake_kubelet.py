"""Replacement for StatefulSet controller and kubelet, with models or real processes."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from steersman import Client, FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import (
    ConfigMap,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    Pod,
    PodSpec,
    Secret,
    VolumeResourceRequirements,
)
from steersman.errors import AlreadyExists, Conflict, NotFound
from steersman.meta import OwnerReference, decode_builtins, to_builtins

Read = Callable[[type[Any]], Awaitable[Sequence[Any]]]


class PodRuntime(Protocol):
    """Runs the servers of pods."""

    async def start(self, pod: Pod, volume: str, configuration: str, password: str) -> str | None:
        """Start the server of a pod and return its IP. Return None while it is not ready or crashes."""
        ...

    async def stop(self, pod: str) -> None:
        """Stop the server of the pod with that UID, if it runs."""
        ...

    async def delete_volume(self, volume: str) -> None: ...


class FakeKubelet:
    """Creates and updates the pods of StatefulSets, one reconcile after another.

    Args:
        client: the client for writes.
        read: returns all objects of a kind.
        machines: runs the servers.
    """

    def __init__(self, client: Client, read: Read, pod_runtime: PodRuntime) -> None:
        self._client = client
        self._read = read
        self._pod_runtime = pod_runtime
        self._running: set[str] = set()
        self._revisions: dict[tuple[str, int], str] = {}

    async def reconcile_pods(self) -> None:
        """Reconcile all StatefulSets and pods once."""
        pods: dict[ObjectKey, Pod] = {pod.key: pod for pod in await self._read(Pod)}
        pvcs: dict[ObjectKey, PersistentVolumeClaim] = {c.key: c for c in await self._read(PersistentVolumeClaim)}
        for removed_uid in self._running - {pod.metadata.uid for pod in pods.values()}:
            await self._pod_runtime.stop(removed_uid)
            self._running.discard(removed_uid)
        for pod in pods.values():
            if pod.metadata.deletion_timestamp is not None:
                await self._terminate(pod)
        for owner in await self._read(StatefulSet):
            await self._sync_stateful_set(owner, pods, pvcs)

    async def _sync_stateful_set(
        self, owner: StatefulSet, pods: dict[ObjectKey, Pod], pvcs: dict[ObjectKey, PersistentVolumeClaim]
    ) -> None:
        revision = self._revision(owner)
        name, namespace = owner.metadata.name, owner.metadata.namespace
        for number in range(owner.spec.replicas or 0):
            key = ObjectKey(namespace, f"{name}-{number}")
            pvc = pvcs.get(ObjectKey(namespace, f"data-{name}-{number}"))
            if pvc is None:
                pvc = await self._client.create(_pvc(ObjectKey(namespace, f"data-{name}-{number}")))
            pod = pods.get(key) or await self._create(owner, key, number, revision)
            if pod.metadata.deletion_timestamp is None and pod.metadata.uid not in self._running:
                await self._start(pod, pvc)
        for key, pod in pods.items():
            number = key.name.removeprefix(f"{name}-")
            if number.isdigit() and int(number) >= (owner.spec.replicas or 0):
                await self._scale_in(pod, pvcs.get(ObjectKey(namespace, f"data-{key.name}")))
        status = {
            "observedGeneration": owner.metadata.generation,
            "updateRevision": f"{name}-{revision}",
            "replicas": owner.spec.replicas or 0,
        }
        if (owner.status.observed_generation, owner.status.update_revision) != (
            owner.metadata.generation,
            status["updateRevision"],
        ):
            await self._client.patch(StatefulSet, owner.key, MergePatch({"status": status}), subresource="status")

    def _revision(self, owner: StatefulSet) -> str:
        """Return the revision of the template. Only the template changes the generation here."""
        key = owner.metadata.uid, owner.metadata.generation
        if key not in self._revisions:
            template = repr(to_builtins(owner.spec.template))
            self._revisions[key] = hashlib.sha256(template.encode()).hexdigest()[:8]
        return self._revisions[key]

    async def _create(self, owner: StatefulSet, key: ObjectKey, number: int, revision: str) -> Pod:
        template = owner.spec.template
        reference = OwnerReference(
            api_version="apps/v1",
            kind="StatefulSet",
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            controller=True,
        )
        labels = FrozenDict(
            {**template.metadata.labels, "controller-revision-hash": f"{owner.metadata.name}-{revision}"}
        )
        spec = to_builtins(template.spec) | {"nodeName": f"node-{number % 2 + 1}"}
        spec["volumes"] = [*spec.get("volumes", ()), _volume(f"data-{key.name}")]
        metadata = ObjectMeta(name=key.name, namespace=key.namespace, labels=labels, owner_references=(reference,))
        return await self._client.create(Pod(metadata=metadata, spec=decode_builtins(spec, PodSpec)))

    async def _start(self, pod: Pod, pvc: PersistentVolumeClaim) -> None:
        namespace = pod.metadata.namespace
        names = {v.name: v for v in pod.spec.volumes}
        config, auth = names["config"].config_map, names["auth"].secret
        assert config is not None
        assert auth is not None
        assert config.name is not None
        assert auth.secret_name is not None
        try:
            configuration = await self._client.get(ConfigMap, ObjectKey(namespace, config.name))
            secret = await self._client.get(Secret, ObjectKey(namespace, auth.secret_name))
        except NotFound:
            return
        password = secret.data["password"].decode()
        ip = await self._pod_runtime.start(pod, pvc.metadata.uid, configuration.data["redis.conf"], password)
        if ip is None:
            return
        self._running.add(pod.metadata.uid)
        status = {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]}
        await self._ignore_conflicts(
            self._client.patch(Pod, pod.key, MergePatch({"status": status}), subresource="status")
        )

    async def _terminate(self, pod: Pod) -> None:
        await self._pod_runtime.stop(pod.metadata.uid)
        self._running.discard(pod.metadata.uid)
        await self._ignore_conflicts(self._client.delete(Pod, pod.key, uid=pod.metadata.uid, grace_period_seconds=0))

    async def _scale_in(self, pod: Pod, pvc: PersistentVolumeClaim | None) -> None:
        await self._terminate(pod)
        if pvc is not None:
            await self._pod_runtime.delete_volume(pvc.metadata.uid)
            await self._ignore_conflicts(self._client.delete(PersistentVolumeClaim, pvc.key, uid=pvc.metadata.uid))

    async def _ignore_conflicts(self, call: Awaitable[object]) -> None:
        """Ignore conflicts and missing objects. The next reconcile observes the change."""
        try:
            await call
        except (NotFound, Conflict, AlreadyExists):
            return


def _volume(pvc_name: str) -> dict[str, Any]:
    return {"name": "data", "persistentVolumeClaim": {"claimName": pvc_name}}


def _pvc(key: ObjectKey) -> PersistentVolumeClaim:
    resources = VolumeResourceRequirements(requests=FrozenDict({"storage": "1Gi"}))
    spec = PersistentVolumeClaimSpec(access_modes=("ReadWriteOnce",), resources=resources)
    return PersistentVolumeClaim(metadata=ObjectMeta(name=key.name, namespace=key.namespace), spec=spec)
