"""A crash before a disk's ID is stored creates another disk.

After crossplane/crossplane-runtime#277 (fixed by #279 and #283): some clouds choose the ID of a new resource and
return it in the response. A provider that crashed before it stored the ID created the resource again. The first one
was billed without an owner.

Shown by: a crash after the creation, or a lost response or status write.

The twin sends an idempotency token that it derives from the UID of the object. The cloud returns the same disk for
the same token. (Without such tokens, tag each resource with the UID and search for the tag first.)
"""

from __future__ import annotations

from collections.abc import Callable

from gallery.bug_case import BugCase
from gallery.helpers import key, object_meta
from steersman.controller import (
    ReconcilerContext,
    Request,
    RequestReconciler,
    Result,
    add_finalizer,
    remove_finalizer,
)
from steersman.manager import Manager
from steersman.meta import Resource, Spec, Status, resource
from steersman_testing.simulation import World, fault_point

FINALIZER = "gallery.example.com/disk"


class Cloud:
    """A cloud that sells disks and chooses their IDs.

    Attributes:
        disks: the token of each disk, by ID.
    """

    def __init__(self) -> None:
        self.disks: dict[str, str] = {}
        self._made = 0

    async def create_disk(self, token: str = "") -> str:
        """Return the ID of a new disk, or that with the token."""
        async with fault_point("cloud: create a disk", ConnectionError("the cloud is unreachable")):
            known = [name for name, former in self.disks.items() if token and former == token]
            if known:
                return known[0]
            self._made += 1
            name = f"disk-{self._made}"
            self.disks[name] = token
        return name

    async def delete_disk(self, name: str) -> None:
        """Delete a disk if it exists."""
        async with fault_point(f"cloud: delete {name}", ConnectionError("the cloud is unreachable")):
            self.disks.pop(name, None)


class VolumeSpec(Spec):
    """Empty, because no field matters here."""


class VolumeStatus(Status):
    disk: str | None = None
    """ID of the disk in the cloud."""


@resource(group="gallery.example.com", version="v1")
class Volume(Resource[VolumeSpec, VolumeStatus]):
    """A disk in the cloud."""


class FaultyVolumeReconciler(RequestReconciler[Volume]):
    def __init__(self, context: ReconcilerContext, cloud: Cloud) -> None:
        super().__init__(context)
        self.cloud = cloud

    async def reconcile(self, request: Request) -> Result:
        volume = await self.client.get(Volume, request)
        disk = volume.status.disk
        if volume.metadata.deletion_timestamp is not None:
            await self.delete_disk(volume, disk)
            return Result()
        volume = await add_finalizer(self.client, volume, FINALIZER)
        if disk is None:
            disk = await self.create_disk(volume)
            await self.client.apply_status(volume, VolumeStatus(disk=disk))
        return Result()

    async def create_disk(self, volume: Volume) -> str:
        return await self.cloud.create_disk()

    async def delete_disk(self, volume: Volume, disk: str | None) -> None:
        if disk is not None:
            await self.cloud.delete_disk(disk)
        await remove_finalizer(self.client, volume, FINALIZER)


class VolumeReconciler(FaultyVolumeReconciler):
    async def create_disk(self, volume: Volume) -> str:
        return await self.cloud.create_disk(token=volume.metadata.uid)

    async def delete_disk(self, volume: Volume, disk: str | None) -> None:
        if disk is None and FINALIZER in volume.metadata.finalizers:
            # The disk may already exist. The token finds it.
            disk = await self.create_disk(volume)
        await super().delete_disk(volume, disk)


def setup(reconciler: type[FaultyVolumeReconciler]) -> Callable[[Manager, Cloud], None]:

    def configure(manager: Manager, cloud: Cloud) -> None:
        manager.controller(Volume).complete(lambda context: reconciler(context, cloud))

    return configure


async def scenario(world: World[Cloud]) -> None:
    """Create a volume, and delete it later."""
    await world.client.create(Volume(metadata=object_meta("data"), spec=VolumeSpec()))
    await world.settle()
    await world.client.delete(Volume, key("data"))
    await world.settle()


def check(world: World[Cloud]) -> None:
    """No disk is left."""
    assert not world.outside.disks


def every_disk_has_an_owner(world: World[Cloud]) -> None:
    """There are never more disks than volumes."""
    assert len(world.outside.disks) <= len(world.read_all(Volume)), f"paid for: {', '.join(world.outside.disks)}"


BUG_CASE = BugCase(
    faulty=setup(FaultyVolumeReconciler),
    corrected=setup(VolumeReconciler),
    kinds=(Volume,),
    scenario=scenario,
    check=check,
    outside=Cloud,
    detector="simulation",
    report_excerpts=(
        "the process is killed after call 2",
        "cloud: create a disk  done, then killed",
        "the operator is restarted",
        "cloud: create a disk  done",
        "wrong      every_disk_has_an_owner does not hold: paid for: disk-1, disk-2",
        "replay='crash-after:2'",
    ),
    invariants=(every_disk_has_an_owner,),
)
