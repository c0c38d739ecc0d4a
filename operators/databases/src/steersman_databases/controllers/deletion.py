"""What happens to data when its ``Database`` is deleted."""

from __future__ import annotations

from datetime import timedelta

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Pod, Secret
from steersman.controller import CachedClient, EventRecorder, remove_finalizer
from steersman.errors import NotFound
from steersman.meta import Object, ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.api import Database
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.outcome import Outcome
from steersman_databases.resources import Names, is_ours

FINALIZER = "databases.steersman.dev/data"

# A pod on a lost node never ends; the deletion must.
_PATIENCE = timedelta(seconds=90)


class Deletion:
    """Stops the server, then keeps or deletes its data as ``spec.deletionPolicy`` says at this moment.

    Everything is derived from what is there, so it can be cut anywhere and begun again. Nothing is asked of the
    server itself: it may be gone, or never have started.
    """

    def __init__(self, client: CachedClient, events: EventRecorder, database: Database, clock: Clock) -> None:
        self._client = client
        self._events = events
        self._database = database
        self._names = Names(database.key)
        self._clock = clock

    async def advance(self) -> Outcome | None:
        """One step. None when nothing is left to do and the object has been let go."""
        if FINALIZER not in self._database.metadata.finalizers:
            return None
        if await self._server_runs():
            message = f"waiting for pod {self._names.pod.name} to stop"
            return Outcome(phase="Deleting", reason="Deleting", message=message, retry_after=2.0)
        if self._database.spec.deletion_policy == "Delete":
            await self._delete_data()
        elif await self._is_ours(PersistentVolumeClaim, self._names.volume_claim):
            self._events.normal(
                self._database,
                "DataRetained",
                f"kept PersistentVolumeClaim {self._names.volume_claim.name} and its Secrets; a new Database named "
                f"{self._database.metadata.name} adopts them, and deleting the claim deletes them all",
            )
        await remove_finalizer(self._client, self._database, FINALIZER)
        return None

    async def _server_runs(self) -> bool:
        """Whether the pod is still there, having asked for its end."""
        stateful = await find(self._client, StatefulSet, self._names.statefulset)
        if stateful is not None and self._controls(stateful) and stateful.metadata.deletion_timestamp is None:
            await self._ignore_missing(StatefulSet, self._names.statefulset, stateful.metadata.uid)
        if not await self._is_ours(Pod, self._names.pod):
            return False
        started = self._database.metadata.deletion_timestamp
        return started is None or self._clock.now() - started < _PATIENCE

    async def _delete_data(self) -> None:
        kinds: tuple[tuple[type[Object], ObjectKey], ...] = (
            (PersistentVolumeClaim, self._names.volume_claim),
            (Secret, self._names.administrator_secret),
            (Secret, self._names.application_secret),
        )
        deleted: list[str] = []
        for kind, key in kinds:
            # Whatever is overlooked now is forgotten for good.
            obj = await find_live(self._client, kind, key)
            if obj is not None and is_ours(obj, self._database):
                await self._ignore_missing(kind, key, obj.metadata.uid)
                deleted.append(f"{kind.api_resource.kind} {key.name}")
        if deleted:
            self._events.normal(self._database, "DataDeleted", f"deleted {', '.join(deleted)}")

    async def _is_ours(self, kind: type[Object], key: ObjectKey) -> bool:
        obj = await find(self._client, kind, key)
        return obj is not None and is_ours(obj, self._database)

    def _controls(self, obj: Object) -> bool:
        reference = obj.controller_reference
        return reference is not None and reference.uid == self._database.metadata.uid

    async def _ignore_missing(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        try:
            await self._client.delete(kind, key, uid=uid)
        except NotFound:
            # A conflict is none of that: what is there now, perhaps a namesake, is looked at again.
            return
