"""The server: StatefulSet and Services as declared, and what its pod says of itself."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import ContainerStatus, Pod, PodCondition, Service
from steersman.controller import CachedClient, EventRecorder
from steersman.meta import ApplyConfiguration, Object
from steersman_databases.api import Database
from steersman_databases.clusters.trouble import is_stuck
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.resources import Names, ServerImage, headless_service, primary_service, statefulset
from steersman_databases.resources.drift import content_of, repair_of

T = TypeVar("T", bound=Object)

_IMAGE_REASONS = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"})
_CONFIG_REASONS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})


class Server:
    """Ensures StatefulSet and Services of one ``Database``."""

    def __init__(self, client: CachedClient, events: EventRecorder, database: Database, image: ServerImage) -> None:
        self._client = client
        self._events = events
        self._database = database
        self._image = image
        self._names = Names(database.key)

    async def ensure(self) -> None:
        """Declares Services and StatefulSet; what somebody changed or deleted comes back.

        Raises:
            Blocked: something of that name is not ours.
        """
        for config in (
            headless_service(self._database, self._image.port),
            primary_service(self._database, self._image.port),
        ):
            await self._declare(Service, config)
        await self._declare(StatefulSet, statefulset(self._database, self._image))

    async def require_ready(self) -> Pod:
        """The pod, when it is ready.

        Raises:
            Blocked: it is not; says why, and what to do where time alone will not help.
        """
        pod = await self._client.find(Pod, self._names.pod)
        if pod is None:
            raise Blocked("Provisioning", "ServerStarting", f"waiting for pod {self._names.pod.name} to be created")
        if pod.metadata.deletion_timestamp is not None:
            raise Blocked("Provisioning", "ServerRestarting", f"pod {pod.metadata.name} is being replaced")
        if pod.spec.containers[0].image != self._image.reference and is_stuck(pod):
            # The StatefulSet leaves it as it is, and with the image of now it may start.
            await self._client.delete(Pod, pod.key, uid=pod.metadata.uid)
            raise Blocked("Provisioning", "ServerRestarting", f"pod {pod.metadata.name} is being replaced")
        conditions = {c.type: c for c in pod.status.conditions}
        scheduled = conditions.get("PodScheduled")
        if scheduled is not None and scheduled.status == "False":
            raise _unschedulable(pod, scheduled)
        for container in pod.status.container_statuses:
            _require_running(pod, container)
        ready = conditions.get("Ready")
        if ready is None or ready.status != "True":
            raise Blocked("Provisioning", "ServerStarting", f"waiting for the server in pod {pod.metadata.name}")
        return pod

    async def _declare(self, kind: type[T], config: ApplyConfiguration[T]) -> None:
        present = await find(self._client, kind, config.key)
        if present is not None:
            self._require_ours(present)
        if isinstance(present, Service) and (repair := repair_of(present, config)):
            await self._client.patch(Service, config.key, repair)
        applied = await self._client.apply(config, owner=self._database)
        if present is None:
            self._events.normal(self._database, "Created", f"created {kind.api_resource.kind} {config.key.name}")
        elif applied is not present and content_of(applied) != content_of(present):
            self._events.normal(self._database, "Updated", f"updated {kind.api_resource.kind} {config.key.name}")

    def _require_ours(self, obj: Object) -> None:
        reference, resource = obj.controller_reference, type(obj).api_resource
        if reference is not None and reference.uid == self._database.metadata.uid:
            return
        if reference is not None and (reference.kind, reference.name) == (
            Database.api_resource.kind,
            self._database.metadata.name,
        ):
            raise Blocked(
                "Pending",
                "ServerTerminating",
                f"{resource.kind} {obj.metadata.name} belongs to a former Database of this name; waiting until the "
                "garbage collector removed it",
            )
        raise Blocked(
            "Failed",
            "NameTaken",
            f"{resource.kind} {obj.metadata.name} exists and does not belong to this Database: rename one of them",
        )


def _unschedulable(pod: Pod, condition: PodCondition) -> Blocked:
    return Blocked(
        "Pending",
        "Unschedulable",
        f"no node takes pod {pod.metadata.name}: {condition.message or condition.reason}. "
        "Add a node, free resources, or check the storage class",
    )


def _require_running(pod: Pod, container: ContainerStatus) -> None:
    waiting = container.state.waiting if container.state else None
    if waiting is None or not waiting.reason:
        return
    if waiting.reason in _IMAGE_REASONS:
        raise Blocked(
            "Pending",
            "ImageUnavailable",
            f"image {container.image} cannot be pulled: {waiting.message or waiting.reason}. Push it where the nodes "
            "can pull it, or set the operator's STEERSMAN_IMAGE_ variable to one that they can",
        )
    if waiting.reason in _CONFIG_REASONS:
        raise Blocked("Provisioning", waiting.reason, f"pod {pod.metadata.name}: {waiting.message or waiting.reason}")
    if waiting.reason == "CrashLoopBackOff":
        raise Blocked(
            "Failed",
            "ServerCrashing",
            f"the server ended {container.restart_count} times{_last_words([container])}: "
            f"see `kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} --previous`",
        )


def _last_words(containers: Iterable[ContainerStatus]) -> str:
    for container in containers:
        ended = container.last_state.terminated if container.last_state else None
        if ended is not None:
            return f" (last: {ended.reason or 'exit'}, code {ended.exit_code})"
    return ""
