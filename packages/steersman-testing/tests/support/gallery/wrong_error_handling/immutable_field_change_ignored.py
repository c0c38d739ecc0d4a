"""The operator ignores a change of an immutable field without a report.

After intel/pmem-csi#580: the operator did not apply a change of a field that is fixed after the installation. No
condition and no Event reported that. The object looked healthy.

Shown by: a change of ``storageClass``.

The twin reports the ignored change and a solution in a condition, which stays until the user acts, and in an Event.
(If a rule of the schema can reject the change, that is even better.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply import core
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.controller import Request, RequestReconciler, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints


class ArchiveSpec(Spec):
    storage_class: str = "fast"
    """StorageClass of the PVC. Immutable."""


@resource(group="gallery.example.com", version="v1")
class Archive(Resource[ArchiveSpec, Status]): ...


class FaultyArchiveReconciler(RequestReconciler[Archive]):
    async def reconcile(self, request: Request) -> Result:
        archive = await self.client.get(Archive, request)
        present = await self.client.get_or_none(PersistentVolumeClaim, request)
        # The StorageClass of a PVC is immutable, so the existing one stays.
        chosen = archive.spec.storage_class if present is None else present.spec.storage_class_name or ""
        await self.client.apply(pvc_for(archive, chosen), owner=archive)
        await self.report(archive, chosen)
        return Result()

    async def report(self, archive: Archive, chosen: str) -> None:
        await self.update_ready_condition(archive, True, "Claimed", "there is room")

    async def update_ready_condition(self, archive: Archive, is_ready: bool, reason: str, message: str) -> None:
        status = Status(
            observed_generation=archive.metadata.generation,
            conditions=with_ready_condition(archive, is_ready, reason, message, self.runtime.clock.now()),
        )
        if status != archive.status:
            await self.client.apply_status(archive, status)
            if not is_ready:
                self.events.warning(archive, reason, message)


class ArchiveReconciler(FaultyArchiveReconciler):
    async def report(self, archive: Archive, chosen: str) -> None:
        if archive.spec.storage_class == chosen:
            await super().report(archive, chosen)
            return
        message = (
            f"spec.storageClass: the PVC has {chosen!r}, which is immutable. Create a new Archive and copy the data."
        )
        await self.update_ready_condition(archive, False, "StorageClassIsFixed", message)


def pvc_for(archive: Archive, storage_class: str) -> core.PersistentVolumeClaim:
    """Return the PVC of the archive."""
    return core.PersistentVolumeClaim(
        metadata=owned_metadata(archive),
        spec=core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            resources=core.VolumeResourceRequirements(requests={"storage": "1Gi"}),
            storage_class_name=storage_class,
        ),
    )


def setup(reconciler: type[RequestReconciler[Archive]]) -> Callable[[Manager, Any], None]:

    def configure(manager: Manager, _: object) -> None:
        owning = manager.controller(Archive).owns(PersistentVolumeClaim)
        owning.complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Change the StorageClass after the creation."""
    await world.client.create(Archive(metadata=object_meta("letters"), spec=ArchiveSpec()))
    # Wait until the first state is reached, because the result depends on it.
    await world.settle_after_faults()
    await set_spec(world, Archive, "letters", storageClass="cheap")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """Conditions and Events report the problem."""
    archive = world.read(Archive, key("letters"))
    assert archive is not None
    ready_condition = find_condition(archive.status.conditions, "Ready")
    assert ready_condition is not None and (ready_condition.status, ready_condition.reason) == (
        "False",
        "StorageClassIsFixed",
    )


BUG_CASE = BugCase(
    faulty=setup(FaultyArchiveReconciler),
    corrected=setup(ArchiveReconciler),
    kinds=(Archive,),
    scenario=scenario,
    check=check,
    outside=NoExternalSystem,
    detector="transitions",
    report_excerpts=(
        "convergence: the state differs from that of a new object",
        '2. set spec.storageClass="cheap"',
        'PersistentVolumeClaim default/trial spec.storageClassName: "fast" / "cheap"',
        "replay=",
    ),
    hints=Hints(examples={"spec.storageClass": ["fast", "cheap"]}, rejection_reasons=["StorageClassIsFixed"]),
)
