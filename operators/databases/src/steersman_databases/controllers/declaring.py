"""Objects of a cluster as they are declared: what somebody changed or deleted comes back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from steersman.cache import CachedClient
from steersman.client import MergePatch, Propagation
from steersman.controller import EventRecorder
from steersman.errors import NotFound
from steersman.meta import ApplyConfiguration, Object, ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.controllers.failures import Aside
from steersman_databases.controllers.lookup import find, find_live
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.resources.drift import content_of, is_unchangeable, repair_of
from steersman_databases.resources.labels import belongs_to

T = TypeVar("T", bound=Object)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """The cluster that a reconcile is about: the object, how it is declared, and what to act with.

    ``aside``: what is declared within it may be refused, and the rest goes on.
    """

    cluster: Object
    view: ClusterView
    client: CachedClient
    events: EventRecorder
    clock: Clock
    aside: Aside = field(default_factory=Aside)

    async def declare(self, kind: type[T], config: ApplyConfiguration[T]) -> T:
        """Applies ``config``, controlled by the cluster.

        Raises:
            Blocked: something of that name is not ours, or is immutable and does not go.
        """
        present = await find(self.client, kind, config.key)
        if present is not None:
            self.require_ours(present)
            if is_unchangeable(present, config):
                await self.make_room(kind, present)
                present = None
            elif repair := repair_of(present, config):
                await self.client.patch(kind, config.key, repair)
        applied = await self.client.apply(config, owner=self.cluster, adopt=True)
        if present is None:
            self.created(kind, config.key)
        elif applied is not present and content_of(applied) != content_of(present):
            self.updated(kind, config.key)
        return applied

    async def make_room(self, kind: type[T], obj: T) -> None:
        """Deletes ``obj``, which cannot be changed, for another in its place. Raises Blocked while it stays."""
        if obj.metadata.deletion_timestamp is None:
            await self.delete(kind, obj)
        left = await find_live(self.client, kind, obj.key)
        if left is None:
            return
        finalizers = ", ".join(left.metadata.finalizers)
        which = f", which its finalizers keep it from: {finalizers}" if finalizers else ""
        raise Blocked(
            "Pending",
            "Creating",
            f"{kind.api_resource.kind} {obj.metadata.name} is immutable, and not as it should be: waiting until it "
            f"is deleted{which}",
        )

    async def remove(self, kind: type[T], key: ObjectKey) -> None:
        """Deletes what is not declared any more, if it is ours."""
        present = await self.client.get_or_none(kind, key)
        if present is None or not self.controls(present) or present.metadata.deletion_timestamp is not None:
            return
        await self.delete(kind, present)

    async def delete(self, kind: type[T], obj: T, *, propagation: Propagation = "Background") -> None:
        """Deletes exactly this object, if it is still there."""
        try:
            await self.client.delete(kind, obj.key, uid=obj.metadata.uid, propagation=propagation)
        except NotFound:
            # A conflict is none of that: what is there now, perhaps a namesake, is looked at again.
            return

    def controls(self, obj: Object) -> bool:
        """Whether the cluster controls ``obj``: this one, not a former one of its name."""
        reference = obj.controller_reference
        return reference is not None and reference.uid == self.cluster.metadata.uid

    def require_ours(self, obj: Object) -> None:
        """Returns if the cluster controls ``obj``. Raises Blocked."""
        if self.controls(obj):
            return
        kind, name = type(obj).api_resource.kind, obj.metadata.name
        reference = obj.controller_reference
        if reference is not None and (reference.kind, reference.name) == (self.view.kind, self.view.key.name):
            raise Blocked(
                "Pending",
                "Creating",
                f"{kind} {name} belongs to a former cluster of this name; waiting until the garbage collector "
                "removed it",
            )
        raise name_taken(obj)

    def require_labels(self, obj: Object, claims: Iterable[Object] = ()) -> None:
        """Returns if ``obj``, which the cluster does not control, bears its labels, or has lost them. Raises Blocked.

        Args:
            claims: of the cluster: what one of them owns is the cluster's. Nobody gets further by that than by the
                labels, which anybody may write who may write ``obj``.
        """
        if not belongs_to(obj, self.view) and not is_owned(obj, claims):
            raise name_taken(obj)

    async def label_again(self, kind: type[T], obj: T, labels: Mapping[str, str]) -> T:
        """``obj``, which is the cluster's, with ``labels``, and an Event of those that it had lost."""
        lost = dict(sorted(labels.items() - obj.metadata.labels.items()))
        if not lost:
            return obj
        metadata = {"labels": lost, "resourceVersion": obj.metadata.resource_version}
        labelled = await self.client.patch(kind, obj.key, MergePatch({"metadata": metadata}))
        # An admission policy may keep some of them from coming back.
        if back := lost.items() & labelled.metadata.labels.items():
            told = ", ".join(f"{name}={value}" for name, value in sorted(back))
            note = f"put back the labels {told} of {kind.api_resource.kind} {obj.metadata.name}, which had lost them"
            self.events.normal(self.cluster, "Updated", note)
        return labelled

    def created(self, kind: type[Object], key: ObjectKey) -> None:
        """Tells so."""
        self.events.normal(self.cluster, "Created", f"created {kind.api_resource.kind} {key.name}")

    def updated(self, kind: type[Object], key: ObjectKey) -> None:
        """Tells so."""
        self.events.normal(self.cluster, "Updated", f"updated {kind.api_resource.kind} {key.name}")


def is_owned(obj: Object, owners: Iterable[Object]) -> bool:
    """Whether ``obj`` goes with one of ``owners``."""
    return not {o.uid for o in obj.metadata.owner_references}.isdisjoint(o.metadata.uid for o in owners)


def name_taken(obj: Object) -> Blocked:
    """Something of that name is a stranger's."""
    kind, name = type(obj).api_resource.kind, obj.metadata.name
    return Blocked("Failed", "NameTaken", f"{kind} {name} exists and does not belong to this cluster")
