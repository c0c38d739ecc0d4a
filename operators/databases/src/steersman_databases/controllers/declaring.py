"""Objects of a cluster as they are declared: what somebody changed or deleted comes back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

from steersman.api.core_v1 import Service
from steersman.client import Propagation
from steersman.controller import CachedClient, EventRecorder
from steersman.errors import NotFound
from steersman.meta import ApplyConfiguration, Object, ObjectKey
from steersman.observability.runtime import Clock
from steersman_databases.controllers.failures import Aside
from steersman_databases.controllers.lookup import find
from steersman_databases.controllers.outcome import Blocked
from steersman_databases.engines.cluster import ClusterView
from steersman_databases.resources.drift import content_of, repair_of
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
            Blocked: something of that name is not ours.
        """
        present = await find(self.client, kind, config.key)
        if present is not None:
            self.require_ours(present)
        if isinstance(present, Service) and (repair := repair_of(present, config)):
            await self.client.patch(Service, config.key, repair)
        applied = await self.client.apply(config, owner=self.cluster)
        if present is None:
            self.created(kind, config.key)
        elif applied is not present and content_of(applied) != content_of(present):
            self.events.normal(self.cluster, "Updated", f"updated {kind.api_resource.kind} {config.key.name}")
        return applied

    async def remove(self, kind: type[T], key: ObjectKey) -> None:
        """Deletes what is not declared any more, if it is ours."""
        present = await self.client.find(kind, key)
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

    def require_labels(self, obj: Object) -> None:
        """Returns if ``obj``, which nobody owns, bears the cluster's labels. Raises Blocked."""
        if not belongs_to(obj, self.view):
            raise name_taken(obj)

    def created(self, kind: type[Object], key: ObjectKey) -> None:
        """Tells so."""
        self.events.normal(self.cluster, "Created", f"created {kind.api_resource.kind} {key.name}")


def name_taken(obj: Object) -> Blocked:
    """Something of that name is a stranger's."""
    kind, name = type(obj).api_resource.kind, obj.metadata.name
    return Blocked("Failed", "NameTaken", f"{kind} {name} exists and does not belong to this cluster")
