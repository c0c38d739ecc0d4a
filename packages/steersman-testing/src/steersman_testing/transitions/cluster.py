"""A system on a real cluster: the operator runs there as always, and is known by what changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from steersman.api.events_v1 import Event
from steersman.client import Client, Discovery, FieldValidation
from steersman.errors import Conflict, MethodNotAllowed, NotFound
from steersman.meta import ApiResource, Object, ObjectKey, Resource, Unstructured, unstructured
from steersman_testing.apiserver.values import JsonObject, list_at
from steersman_testing.envtest.namespaces import make_namespace, remove_namespace
from steersman_testing.generated_names import generated_prefixes
from steersman_testing.transitions.objects import TrialObject
from steersman_testing.transitions.states import LEFT_OUT, counts, name_of, normalised
from steersman_testing.transitions.subject import Subject
from steersman_testing.transitions.system import Observation, System, Systems
from steersman_testing.transitions.warnings import Warnings

_AT_ONCE = 8


class ClusterPatience(Struct, frozen=True, kw_only=True):
    """When a system on a cluster has come to rest.

    Attributes:
        quiet: seconds without any change but of Leases and Events; longer than the operator waits between two tries
            and than a pod takes to start, or what is still under way counts as the end. They are counted in looks:
            where a look takes long, so does everything, and it is waited for longer.
        look_every: seconds from one look to the next.
        limit: seconds until it counts as never coming to rest.
    """

    quiet: float = 10.0
    look_every: float = 1.0
    limit: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cluster:
    """What all systems on one cluster have in common."""

    client: Client
    subject: Subject
    resources: tuple[ApiResource, ...]
    restart: Callable[[], Awaitable[object]] | None
    controllers: bool
    patience: ClusterPatience


class _ClusterSystem:
    """A ``System`` in one namespace of a cluster."""

    def __init__(self, cluster: _Cluster, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._object = TrialObject(cluster.client, cluster.subject, namespace)
        self._warnings = Warnings(self._object.resource, self._object.key)
        self._known: dict[str, tuple[str, str]] = {}
        # Of what is gone as well, if it was ever seen: a status may still name it.
        self._generated: dict[str, str] = {}
        self._touched = 0

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        """See ``System``."""
        self._wrote(await self._object.write(dict(document), validation))

    async def delete(self) -> None:
        """See ``System``."""
        await self._object.delete()

    async def look_again(self) -> None:
        """Restarts the operator if it is known how, or else changes an annotation of the object."""
        if self._cluster.restart is not None:
            await self._cluster.restart()
            return
        self._touched += 1
        self._wrote(await self._object.touch(str(self._touched)))

    async def settle(self) -> Observation:
        """See ``System``."""
        settled, found = await self._quiet()
        own = [o for o in found if self._is_object(o)]
        self._generated.update(generated_prefixes(found))
        events = await self._list(Event.api_resource)
        return Observation(
            state=normalised(found, self._namespace, self._generated),
            object=own[0] if own else None,
            warnings=self._warnings.new(events),
            writes=self._new_writes(found),
            settled=settled,
        )

    async def leave(self) -> None:
        """Deletes the object, so that the operator can tidy up, and then the namespace."""
        clock, patience = asyncio.get_running_loop(), self._cluster.patience
        try:
            await self._object.delete()
            end = clock.time() + patience.limit
            while await self._object.read() is not None and clock.time() < end:  # noqa: ASYNC110 - a cluster's
                await asyncio.sleep(patience.look_every)
        except NotFound:
            pass
        finally:
            client = self._cluster.client
            discovery = None if self._cluster.controllers else Discovery(client)
            await remove_namespace(client, self._namespace, discovery)

    # What there is

    async def _quiet(self) -> tuple[bool, list[JsonObject]]:
        clock, patience = asyncio.get_running_loop(), self._cluster.patience
        looked = clock.time()
        end = looked + patience.limit
        found = await self._look()
        seen, alike = _versions(found), 0
        while alike < patience.quiet / patience.look_every:
            if clock.time() >= end:
                return False, found
            await asyncio.sleep(looked + patience.look_every - clock.time())
            looked = clock.time()
            found = await self._look()
            now = _versions(found)
            seen, alike = now, alike + 1 if now == seen else 0
        return True, found

    async def _look(self) -> list[JsonObject]:
        turns = asyncio.Semaphore(_AT_ONCE)

        async def one(resource: ApiResource) -> list[JsonObject]:
            async with turns:
                return await self._list(resource)

        lists = await asyncio.gather(*(one(r) for r in self._cluster.resources))
        found = [obj for each in lists for obj in each]
        if not self._cluster.controllers:
            await self._collect_garbage(found)
        return found

    async def _list(self, resource: ApiResource) -> list[JsonObject]:
        try:
            listed = await self._cluster.client.list(unstructured(resource), namespace=self._namespace)
        except (NotFound, MethodNotAllowed):
            # Its definition has just been deleted.
            return []
        return [obj.to_dict() for obj in listed.items]

    async def _collect_garbage(self, found: list[JsonObject]) -> None:
        """Deletes what has lost all its owners, as the controller manager would."""
        living = {o["metadata"]["uid"] for o in found}
        looked_at = {(r.api_version, r.kind) for r in self._cluster.resources}
        for obj in found:
            owners = list_at(obj["metadata"], "ownerReferences")
            lost = [o for o in owners if o["uid"] not in living and (o["apiVersion"], o["kind"]) in looked_at]
            if not owners or len(lost) < len(owners):
                continue
            resource = next(r for r in self._cluster.resources if _is_of(obj, r))
            key = ObjectKey(self._namespace, obj["metadata"]["name"])
            try:
                await self._cluster.client.delete(unstructured(resource), key, uid=obj["metadata"]["uid"])
            except (NotFound, Conflict):
                continue

    def _is_object(self, obj: JsonObject) -> bool:
        return _is_of(obj, self._object.resource) and obj["metadata"]["name"] == self._object.key.name

    # What was done

    def _wrote(self, obj: Unstructured) -> None:
        """The tester's own writes are none of the operator's."""
        self._known |= self._versions([obj.to_dict()])

    def _new_writes(self, found: list[JsonObject]) -> tuple[str, ...]:
        former, self._known = self._known, self._versions(found)
        changed = [
            f"{'changed' if uid in former else 'created'} {name}"
            for uid, (name, version) in self._known.items()
            if uid not in former or former[uid][1] != version
        ]
        return (*changed, *(f"deleted {name}" for uid, (name, _) in former.items() if uid not in self._known))

    def _versions(self, found: list[JsonObject]) -> dict[str, tuple[str, str]]:
        """Name and version of each object that counts, by UID."""
        return {
            o["metadata"]["uid"]: (
                name_of(o).replace(self._namespace, "(namespace)"),
                o["metadata"]["resourceVersion"],
            )
            for o in found
            if counts(o)
        }


def _versions(found: list[JsonObject]) -> dict[str, str]:
    return {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in found}


def _is_of(obj: JsonObject, resource: ApiResource) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (resource.api_version, resource.kind)


def on_cluster(
    client: Client,
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    *,
    observed: Collection[ApiResource | type[Object]] = (),
    restart: Callable[[], Awaitable[object]] | None = None,
    controllers: bool = True,
    patience: ClusterPatience | None = None,
) -> Systems:
    """Systems on a cluster that serves the kind and runs its operator: each is a namespace of its own.

    What goes on inside of the operator cannot be seen there: neither that its process ended, nor an error that it
    tries again and again in silence.

    Args:
        client: may make namespaces, and do everything in them.
        kind: the explored kind, or the manifest of its definition.
        observed: the kinds of objects that are compared; empty for all that can be in a namespace.
        restart: starts the operator anew. Without it an annotation of the object changes, which says less: an
            operator need not look again for that.
        controllers: whether the cluster runs a controller manager. Where it does not, as with envtest, objects
            without owners are deleted from here, and so is what is in the namespaces.
        patience: when all is quiet.

    Raises:
        ValueError: the kind is cluster-scoped: its objects cannot be told from those of others.
    """
    subject = Subject.of(kind)
    if not subject.resource.namespaced:
        raise ValueError(f"{subject.resource.kind} is cluster-scoped: explore it in memory instead")

    @asynccontextmanager
    async def system() -> AsyncGenerator[System]:
        cluster = _Cluster(
            client=client,
            subject=subject,
            resources=await _resources(client, subject, observed),
            restart=restart,
            controllers=controllers,
            patience=patience or ClusterPatience(),
        )
        made = _ClusterSystem(cluster, await make_namespace(client, "transitions"))
        try:
            yield made
        finally:
            await made.leave()

    return system


async def _resources(
    client: Client, subject: Subject, observed: Collection[ApiResource | type[Object]]
) -> tuple[ApiResource, ...]:
    """What is listed: each resource in one version, the explored one in its own."""
    found = {(subject.resource.group, subject.resource.plural): subject.resource}
    served = () if observed else await Discovery(client).resources()
    # What can be listed and not created, such as a pod's metrics, is a view of something else.
    for kind in observed or [s.resource for s in served if {"list", "create"} <= {*s.verbs}]:
        resource = kind if isinstance(kind, ApiResource) else kind.api_resource
        if resource.namespaced and (resource.group, resource.kind) not in LEFT_OUT:
            found.setdefault((resource.group, resource.plural), resource)
    return tuple(found.values())
