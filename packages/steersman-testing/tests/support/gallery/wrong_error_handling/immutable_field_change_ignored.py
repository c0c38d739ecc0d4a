"""A field cannot be changed any more, and nobody tells the user who changes it.

After intel/pmem-csi#580: what a user changed in a field that is fixed after the installation was not carried out, and
no condition and no Event said so. The object looked as if all was well.

Shown by: ``storageClass`` is changed.

The twin says what it does not do, and what the user can do instead: in a condition, which stays as long as it is so,
and in an Event. (Where a rule of the schema can refuse the change, that is better still.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gallery.bug_case import BugCase, NoExternalSystem
from gallery.helpers import key, object_meta, owned_metadata, set_spec, with_ready_condition
from steersman.api.apply.core_v1 import (
    PersistentVolumeClaimApply,
    PersistentVolumeClaimSpecApply,
    VolumeResourceRequirementsApply,
)
from steersman.api.core_v1 import PersistentVolumeClaim
from steersman.controller import Reconciler, Request, Result
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, find_condition, resource
from steersman_testing.simulation import World
from steersman_testing.transitions import Hints


class ArchiveSpec(Spec):
    storage_class: str = "fast"
    """Of the claim; it cannot be changed later."""


@resource(group="gallery.example.com", version="v1")
class Archive(Resource[ArchiveSpec, Status]):
    """A claim."""


class FaultyArchiveReconciler(Reconciler[Archive]):
    async def reconcile(self, request: Request) -> Result:
        archive = await self.client.get(Archive, request)
        present = await self.client.get_or_none(PersistentVolumeClaim, request)
        # A claim's class cannot be changed: what is there stays.
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
        message = f"spec.storageClass: the claim has {chosen!r}, which cannot be changed; make a new Archive and copy"
        await self.update_ready_condition(archive, False, "StorageClassIsFixed", message)


def pvc_for(archive: Archive, storage_class: str) -> PersistentVolumeClaimApply:
    """Room for the archive."""
    return PersistentVolumeClaimApply(
        metadata=owned_metadata(archive),
        spec=PersistentVolumeClaimSpecApply(
            access_modes=["ReadWriteOnce"],
            resources=VolumeResourceRequirementsApply(requests={"storage": "1Gi"}),
            storage_class_name=storage_class,
        ),
    )


def setup(reconciler: type[Reconciler[Archive]]) -> Callable[[Manager, Any], None]:
    """Gives a manager the operator."""

    def configure(manager: Manager, _: object) -> None:
        owning = manager.controller(Archive).owns(PersistentVolumeClaim)
        owning.rbac(PersistentVolumeClaim, "create", "patch").complete(reconciler)

    return configure


async def scenario(world: World[NoExternalSystem]) -> None:
    """Another class is asked for when it is too late."""
    await world.client.create(Archive(metadata=object_meta("letters"), spec=ArchiveSpec()))
    # What follows depends on what was there: nobody goes on before it is.
    await world.settle_after_faults()
    await set_spec(world, Archive, "letters", storageClass="cheap")
    await world.settle()


def check(world: World[NoExternalSystem]) -> None:
    """The user is told."""
    archive = world.read(Archive, key("letters"))
    assert archive is not None and archive.status is not None
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
