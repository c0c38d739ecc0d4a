"""Replacement for StatefulSet controller and kubelet, with models or real processes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from steersman import Client, FrozenDict, MergePatch, ObjectKey, ObjectMeta
from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import Pod, PodSpec, Secret, ServiceAccount
from steersman.errors import AlreadyExists, Conflict, NotFound
from steersman.meta import OwnerReference, decode_builtins, to_builtins

Read = Callable[[type[Any]], Awaitable[Sequence[Any]]]


class PodRuntime(Protocol):
    """Runs the servers of pods."""

    async def start(self, pod: Pod, files: Mapping[str, bytes]) -> str:
        """Start the server with the files of a Secret. Return its IP."""
        ...

    async def sync(self, pod: Pod, files: Mapping[str, bytes]) -> None:
        """Replace the files of the Secret."""
        ...

    async def stop(self, uid: str) -> None:
        """Stop the server of the pod with that UID, if it runs."""
        ...


class FakeKubelet:
    """Creates and updates the pods of StatefulSets, one reconcile after another.

    Args:
        client: the client for writes.
        read: returns all objects of a kind.
        pod_runtime: runs the servers.
    """

    def __init__(self, client: Client, read: Read, pod_runtime: PodRuntime) -> None:
        self._client = client
        self._read = read
        self._pod_runtime = pod_runtime
        self._running: set[str] = set()

    async def reconcile_pods(self) -> None:
        """Reconcile all StatefulSets and pods once."""
        pods: dict[ObjectKey, Pod] = {pod.key: pod for pod in await self._read(Pod)}
        for removed_uid in self._running - {pod.metadata.uid for pod in pods.values()}:
            await self._pod_runtime.stop(removed_uid)
            self._running.discard(removed_uid)
        for pod in pods.values():
            if pod.metadata.deletion_timestamp is not None:
                await self._delete(pod)
        secrets: dict[ObjectKey, Secret] = {secret.key: secret for secret in await self._read(Secret)}
        accounts = {account.key for account in await self._read(ServiceAccount)}
        for owner in await self._read(StatefulSet):
            await self._sync_stateful_set(owner, pods, secrets, accounts)

    async def _sync_stateful_set(
        self,
        owner: StatefulSet,
        pods: dict[ObjectKey, Pod],
        secrets: dict[ObjectKey, Secret],
        accounts: set[ObjectKey],
    ) -> None:
        namespace, template = owner.metadata.namespace, to_builtins(owner.spec.template.spec)
        if ObjectKey(namespace, template["serviceAccountName"]) not in accounts:
            return
        wanted = [ObjectKey(namespace, f"{owner.metadata.name}-{n}") for n in range(owner.spec.replicas or 0)]
        ready = 0
        for key in wanted:
            pod = pods.get(key)
            if pod is None:
                pod = await self._create(owner, key)
            elif str(owner.metadata.generation) != pod.metadata.labels["generation"]:
                await self._delete(pod)
                continue
            ready += await self._sync_pod(pod, secrets)
        for key, pod in pods.items():
            if key not in wanted and owner.metadata.uid in {r.uid for r in pod.metadata.owner_references}:
                await self._delete(pod)
        status = {
            "observedGeneration": owner.metadata.generation,
            **dict.fromkeys(("replicas", "updatedReplicas"), len(wanted)),
            **dict.fromkeys(("readyReplicas", "availableReplicas"), ready),
        }
        if status.items() - to_builtins(owner.status).items():
            await self._patch_status(StatefulSet, owner.key, status)

    async def _create(self, owner: StatefulSet, key: ObjectKey) -> Pod:
        reference = OwnerReference(
            api_version="apps/v1",
            kind="StatefulSet",
            name=owner.metadata.name,
            uid=owner.metadata.uid,
            controller=True,
        )
        labels = {**owner.spec.template.metadata.labels, "generation": str(owner.metadata.generation)}
        metadata = ObjectMeta(
            name=key.name, namespace=key.namespace, labels=FrozenDict(labels), owner_references=(reference,)
        )
        spec = to_builtins(owner.spec.template.spec) | {"nodeName": "node-1"}
        for template in owner.spec.volume_claim_templates:
            claim = {"claimName": f"{template.metadata.name}-{key.name}"}
            spec["volumes"] = [*spec["volumes"], {"name": template.metadata.name, "persistentVolumeClaim": claim}]
        return await self._client.create(Pod(metadata=metadata, spec=decode_builtins(spec, PodSpec)))

    async def _sync_pod(self, pod: Pod, secrets: dict[ObjectKey, Secret]) -> bool:
        """Start or update a pod. Return True if it is ready."""
        names = [volume.secret.secret_name for volume in pod.spec.volumes if volume.secret is not None]
        secret = secrets.get(ObjectKey(pod.metadata.namespace, names[0] or ""))
        if secret is None:
            return False
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        if pod.metadata.uid not in self._running:
            ip = await self._pod_runtime.start(pod, secret.data)
            self._running.add(pod.metadata.uid)
            await self._patch_status(Pod, pod.key, ready | {"podIP": ip, "podIPs": [{"ip": ip}]})
            return True
        await self._pod_runtime.sync(pod, secret.data)
        return True

    async def _delete(self, pod: Pod) -> None:
        await self._pod_runtime.stop(pod.metadata.uid)
        self._running.discard(pod.metadata.uid)
        await self._ignore_conflicts(self._client.delete(Pod, pod.key, uid=pod.metadata.uid, grace_period_seconds=0))

    async def _patch_status(self, kind: type[Any], key: ObjectKey, status: dict[str, Any]) -> None:
        patch = MergePatch({"status": status})
        await self._ignore_conflicts(self._client.patch(kind, key, patch, subresource="status"))

    async def _ignore_conflicts(self, call: Awaitable[object]) -> None:
        """Ignore conflicts and missing objects. The next reconcile observes the change."""
        try:
            await call
        except (NotFound, Conflict, AlreadyExists):
            return
