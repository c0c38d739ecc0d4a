"""The volume claims of instances: made, grown, and deleted when nobody uses them any more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from steersman.api.apps_v1 import StatefulSet
from steersman.api.core_v1 import PersistentVolumeClaim, Secret
from steersman.client import MergePatch
from steersman.errors import AlreadyExists, Forbidden, Invalid, NotFound
from steersman.meta import ObjectKey, Quantity, is_true
from steersman_databases.clusters.observed import (
    MAJOR_LABEL,
    RETIRED,
    Instance,
    Observed,
    is_lost,
    is_retired,
    number_of,
)
from steersman_databases.controllers.declaring import Charge, is_owned
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines.cluster_names import VERSION_LABEL
from steersman_databases.engines.versions import ordered
from steersman_databases.resources.claims import ENGINE_LABEL, data_claim, wal_claim
from steersman_databases.resources.labels import instance_labels


@dataclass(frozen=True, slots=True)
class StorageFinding:
    """What the condition ``StorageAsDeclared`` says."""

    reason: Literal["Sized", "Resizing", "FileSystemResizePending", "NotExpandable", "OtherClass", "VolumeLost"]
    message: str


class Volumes:
    """The claims of one cluster."""

    def __init__(self, charge: Charge) -> None:
        self._charge = charge
        self._view = charge.view

    async def create(self, number: int) -> bool:
        """Makes the claims of an instance where they are missing; says whether any was.

        Raises:
            Blocked: there is one of that name which is not ours, or on its way out.
        """
        configs = [data_claim(self._view, number)]
        if self._view.wal_size is not None:
            configs.append(wal_claim(self._view, number))
        made = False
        for config in configs:
            present = await self._charge.client.get_or_none(PersistentVolumeClaim, config.key)
            if present is not None:
                self._charge.require_labels(present)
                continue
            try:
                # Not applied: what has just been deleted elsewhere must not come back by an old read.
                await self._charge.client.create(config)
            except AlreadyExists:
                await self._require_usable(config.key, number)
            else:
                self._charge.created(PersistentVolumeClaim, config.key)
            made = True
        return made

    async def _require_usable(self, key: ObjectKey, number: int) -> None:
        found = await find_live(self._charge.client, PersistentVolumeClaim, key)
        if found is None:
            return
        labels = self._labels(number)
        if not labels.items() <= found.metadata.labels.items():
            # It was not seen: a former instance's. What it bore beside these labels nobody knows.
            labels = {**labels, RETIRED: "true"}
        if await self._labelled(found, labels) is None:
            self._charge.require_labels(found)

    async def regain(self, observed: Observed) -> Sequence[PersistentVolumeClaim]:
        """The claims of instances that are there and were not seen, as only what bears our labels is.

        Those that somebody has taken away are put back.
        """
        names, found = self._view.names, list[PersistentVolumeClaim]()
        for instance in observed.instances:
            number = instance.number
            for key, seen in ((names.data_claim(number), instance.data), (names.wal_claim(number), instance.wal)):
                if seen is None and key.name in instance.mounted:
                    claim = await self._regained(instance, key)
                    found += [] if claim is None else [claim]
        return found

    async def _regained(self, instance: Instance, key: ObjectKey) -> PersistentVolumeClaim | None:
        claim = await find_live(self._charge.client, PersistentVolumeClaim, key)
        if claim is None or instance.statefulset is None:
            return None
        labels = dict(self._labels(instance.number))
        ran = instance.statefulset.metadata.labels.get(VERSION_LABEL)
        if ran is not None and MAJOR_LABEL not in claim.metadata.labels:
            # Not the version that is declared: an upgrade to it may be waited for.
            labels[MAJOR_LABEL] = ran
        return await self._labelled(claim, labels)

    def _labels(self, number: int) -> Mapping[str, str]:
        """What the claims of an instance bear for as long as they are there."""
        return {**instance_labels(self._view, number), ENGINE_LABEL: self._view.engine}

    async def _labelled(
        self, claim: PersistentVolumeClaim, labels: Mapping[str, str]
    ) -> PersistentVolumeClaim | None:
        """A claim with these labels, which it may have lost; None where it goes, or is not the cluster's."""
        if claim.metadata.deletion_timestamp is not None:
            return None
        if labels.items() <= claim.metadata.labels.items():
            return claim
        if not await self._owns_authorities(claim):
            return None
        try:
            return await self._charge.label_again(PersistentVolumeClaim, claim, labels)
        except NotFound:
            return None

    async def _owns_authorities(self, claim: PersistentVolumeClaim) -> bool:
        """Whether it is the cluster's, whatever its labels: and no other that somebody has made under its name."""
        secret = await find(self._charge.client, Secret, self._view.names.authorities)
        return secret is not None and is_owned(secret, [claim])

    def check_adopted(self, claims: Sequence[PersistentVolumeClaim], *, served: bool) -> None:
        """Refuses data that another server made, or that a server would have only half of. Raises Blocked.

        Args:
            served: this cluster's own servers ran, so that the data are no others than theirs.
        """
        newest = ""
        for claim in claims:
            labels = claim.metadata.labels
            engine, major = labels.get(ENGINE_LABEL, self._view.engine), labels.get(MAJOR_LABEL, self._view.version)
            if engine != self._view.engine:
                raise self._mismatch(claim, engine, major)
            newest = max(newest, major, key=ordered)
        # Beside the newest there may be those that an upgrade left behind.
        for claim in claims if newest not in ("", self._view.version) else ():
            if served:
                why = f"the data are upgraded to {newest}, and nothing leads back: declare version {newest} again"
                raise Blocked("Failed", "UnsupportedVersion", why)
            raise self._mismatch(claim, self._view.engine, newest)
        self._check_complete(claims)
        if not served:
            self._check_without_log(claims)

    def _check_without_log(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        """No server moves its log to a volume that is added: a running cluster may not declare one either."""
        if self._view.wal_size is None or any(c.metadata.name.startswith("wal-") for c in claims):
            return
        since = self._charge.cluster.metadata.creation_timestamp
        # What is no older is our own: whoever made it may have been cut off before the second claim.
        dated = [(c.metadata.name, c.metadata.creation_timestamp) for c in claims]
        if names := [name for name, made in dated if since is not None and made is not None and made < since]:
            raise Blocked(
                "Failed",
                "RetainedDataMismatch",
                f"PersistentVolumeClaim {', '.join(sorted(names))} holds retained data with their log, which nobody "
                "moves: declare a new cluster of this name without spec.walStorage, or delete the claims to give up "
                "the data",
            )

    def _check_complete(self, claims: Sequence[PersistentVolumeClaim]) -> None:
        names = [claim.metadata.name for claim in claims]
        logs = [name for name in names if name.startswith("wal-")] if self._view.wal_size is None else []
        if logs:
            raise Blocked(
                "Failed",
                "RetainedDataMismatch",
                f"PersistentVolumeClaim {', '.join(sorted(logs))} holds the log of retained data, of no use without "
                "it: declare a new cluster of this name with spec.walStorage, or delete the claims of "
                f"{', '.join(sorted(names))} to give up the data",
            )

    def _mismatch(self, claim: PersistentVolumeClaim, engine: str, major: str) -> Blocked:
        return Blocked(
            "Failed",
            "RetainedDataMismatch",
            f"PersistentVolumeClaim {claim.metadata.name} holds retained data of {engine} {major}: declare a "
            "new cluster of this name and that version, or delete the claim to give up the data",
        )

    async def renew_version(self, instance: Instance, version: str) -> None:
        """Writes down that the data of an instance are of ``version``: first at the claim that everybody looks at."""
        for claim in (instance.data, instance.wal):
            if claim is not None:
                metadata = {"labels": {MAJOR_LABEL: version}, "resourceVersion": claim.metadata.resource_version}
                await self._charge.client.patch(PersistentVolumeClaim, claim.key, MergePatch({"metadata": metadata}))

    async def grow(self, instances: Sequence[Instance]) -> StorageFinding:
        """Asks for the declared sizes, and says how far that is."""
        findings = [await self._grow(claim, config) for i in instances for claim, config in self._sized(i)]
        lost = sorted(self._view.names.instance(i.number) for i in instances if is_lost(i))
        if lost:
            return StorageFinding("VolumeLost", f"the volume of {', '.join(lost)} is gone, or being deleted")
        order = ("NotExpandable", "OtherClass", "FileSystemResizePending", "Resizing")
        found = [*(f for f in findings if f is not None), *self._of_other_classes(instances)]
        return min(found, key=lambda f: order.index(f.reason), default=StorageFinding("Sized", "all as declared"))

    def _sized(self, instance: Instance) -> Iterable[tuple[PersistentVolumeClaim, Quantity]]:
        if instance.data is not None:
            yield instance.data, self._view.storage_size
        if instance.wal is not None and self._view.wal_size is not None:
            yield instance.wal, self._view.wal_size

    def _of_other_classes(self, instances: Sequence[Instance]) -> Iterable[StorageFinding]:
        """What was adopted is of the class that somebody declared then, and nothing changes that of a claim."""
        declared = ((i.data, self._view.storage_class) for i in instances)
        logs = ((i.wal, self._view.wal_class) for i in instances)
        for claim, wanted in (*declared, *logs):
            if claim is None or wanted is None or claim.spec.storage_class_name in (None, wanted):
                continue
            present = claim.spec.storage_class_name or "none"
            told = f"volume {claim.metadata.name} is of the storage class {present}, and {wanted} is declared"
            yield StorageFinding("OtherClass", told)

    async def _grow(self, claim: PersistentVolumeClaim, wanted: Quantity) -> StorageFinding | None:
        if claim.metadata.deletion_timestamp is not None:
            return None
        name = claim.metadata.name
        requested = Quantity(claim.spec.resources.requests.get("storage", "0"))
        if wanted > requested:
            body = {
                "metadata": {"resourceVersion": claim.metadata.resource_version},
                "spec": {"resources": {"requests": {"storage": str(wanted)}}},
            }
            try:
                await self._charge.client.patch(PersistentVolumeClaim, claim.key, MergePatch(body))
            except NotFound:
                return None
            except (Forbidden, Invalid) as error:
                # The servers run on with what they have; only the wish cannot be met.
                return StorageFinding("NotExpandable", f"volume {name} stays at {requested}: {error}")
            self._charge.events.normal(self._charge.cluster, "VolumeResized", f"requested {wanted} for {name}")
            return StorageFinding("Resizing", f"volume {name} grows to {wanted}")
        if is_true(claim.status.conditions, "FileSystemResizePending"):
            return StorageFinding("FileSystemResizePending", f"the file system on {name} grows when its pod starts")
        capacity = claim.status.capacity.get("storage")
        if capacity is not None and Quantity(capacity) < wanted:
            return StorageFinding("Resizing", f"volume {name} has {capacity} of {wanted}")
        return None

    async def retire(self, instance: Instance) -> None:
        """Marks the claims of an instance, so that none uses them again."""
        await self._mark(instance, "true")

    async def keep(self, instance: Instance) -> None:
        """Takes back that an instance is taken away. Where its StatefulSet has gone since, it goes."""
        assert instance.statefulset is not None
        found = await find_live(self._charge.client, StatefulSet, instance.statefulset.key)
        if found is None or found.metadata.deletion_timestamp is not None or not self._charge.controls(found):
            return
        await self._mark(instance, None)

    async def _mark(self, instance: Instance, mark: str | None) -> None:
        for claim in (instance.data, instance.wal):
            if claim is None or is_retired(claim) is (mark is not None):
                continue
            metadata = {"labels": {RETIRED: mark}, "resourceVersion": claim.metadata.resource_version}
            with suppress(NotFound):
                await self._charge.client.patch(PersistentVolumeClaim, claim.key, MergePatch({"metadata": metadata}))

    async def clean_up(self, claims: Sequence[PersistentVolumeClaim], observed: Observed) -> None:
        """Deletes retired claims once their instance is gone, where the data are not to be kept.

        Not while no other is there: they alone keep the Secrets, which the next ones need.
        """
        if not self._view.deletes_data or all(map(is_retired, claims)):
            return
        present = {i.number for i in observed.instances}
        for claim in claims:
            if is_retired(claim) and number_of(claim) not in present and claim.metadata.deletion_timestamp is None:
                await self._charge.delete(PersistentVolumeClaim, claim)
