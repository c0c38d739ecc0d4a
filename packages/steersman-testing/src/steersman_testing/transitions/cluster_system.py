"""System under test on a real cluster."""

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
from steersman_testing.apiserver.values import JsonObject, get_array
from steersman_testing.envtest.namespaces import create_namespace, delete_namespace
from steersman_testing.generated_names import generated_prefixes
from steersman_testing.transitions.kind_under_test import KindUnderTest
from steersman_testing.transitions.object_under_test import ObjectUnderTest
from steersman_testing.transitions.observed_state import IGNORED_KINDS, display_name, is_relevant, normalize_state
from steersman_testing.transitions.system_under_test import Observation, SystemFactory, SystemUnderTest
from steersman_testing.transitions.warning_events import WarningEventTracker

_MAX_CONCURRENT = 8


class ClusterSettleOptions(Struct, frozen=True, kw_only=True):
    """Conditions under which a system on a cluster is settled.

    Attributes:
        quiet: seconds without changes other than Leases and Events. Must exceed the operator's retry interval and the
            start of a pod. Counted in polls, so that a slow API server extends it.
        poll_interval: seconds between two polls.
        timeout: seconds after which the system counts as never settling.
    """

    quiet: float = 10.0
    poll_interval: float = 1.0
    timeout: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _ClusterContext:
    """Settings shared by all systems on one cluster."""

    client: Client
    target: KindUnderTest
    resources: tuple[ApiResource, ...]
    restart: Callable[[], Awaitable[object]] | None
    controller_manager: bool
    settle_options: ClusterSettleOptions


class _ClusterSystem:
    """A ``SystemUnderTest`` in one namespace of a cluster."""

    def __init__(self, cluster: _ClusterContext, namespace: str) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._object = ObjectUnderTest(cluster.client, cluster.target, namespace)
        self._warnings = WarningEventTracker(self._object.resource, self._object.key)
        self._known_versions: dict[str, tuple[str, str]] = {}
        # Includes names of deleted objects, which a status may still contain.
        self._generated_prefixes: dict[str, str] = {}
        self._annotation_count = 0

    async def apply(self, document: Mapping[str, object], validation: FieldValidation = "Strict") -> None:
        self._record_own_write(await self._object.write(dict(document), validation))

    async def delete(self) -> None:
        await self._object.delete()

    async def resync(self) -> None:
        """Restart the operator, or else change an annotation."""
        if self._cluster.restart is not None:
            await self._cluster.restart()
            return
        self._annotation_count += 1
        self._record_own_write(await self._object.annotate(str(self._annotation_count)))

    async def settle(self) -> Observation:
        settled, found = await self._wait_until_quiet()
        explored = [o for o in found if self._is_explored(o)]
        self._generated_prefixes.update(generated_prefixes(found))
        events = await self._list(Event.api_resource)
        return Observation(
            state=normalize_state(found, self._namespace, self._generated_prefixes),
            object=explored[0] if explored else None,
            warnings=self._warnings.take_new(events),
            writes=self._new_writes(found),
            settled=settled,
        )

    async def close(self) -> None:
        """Delete the object, so that the operator cleans up, then the namespace."""
        clock, patience = asyncio.get_running_loop(), self._cluster.settle_options
        try:
            await self._object.delete()
            end = clock.time() + patience.timeout
            while await self._object.read() is not None and clock.time() < end:  # noqa: ASYNC110 - a cluster's
                await asyncio.sleep(patience.poll_interval)
        except NotFound:
            pass
        finally:
            client = self._cluster.client
            discovery = None if self._cluster.controller_manager else Discovery(client)
            await delete_namespace(client, self._namespace, discovery)

    # Objects

    async def _wait_until_quiet(self) -> tuple[bool, list[JsonObject]]:
        clock, patience = asyncio.get_running_loop(), self._cluster.settle_options
        polled_at = clock.time()
        end = polled_at + patience.timeout
        found = await self._list_all()
        seen, unchanged_polls = _versions_by_uid(found), 0
        while unchanged_polls < patience.quiet / patience.poll_interval:
            if clock.time() >= end:
                return False, found
            await asyncio.sleep(polled_at + patience.poll_interval - clock.time())
            polled_at = clock.time()
            found = await self._list_all()
            now = _versions_by_uid(found)
            seen, unchanged_polls = now, unchanged_polls + 1 if now == seen else 0
        return True, found

    async def _list_all(self) -> list[JsonObject]:
        semaphore = asyncio.Semaphore(_MAX_CONCURRENT)

        async def one(resource: ApiResource) -> list[JsonObject]:
            async with semaphore:
                return await self._list(resource)

        lists = await asyncio.gather(*(one(r) for r in self._cluster.resources))
        found = [obj for each in lists for obj in each]
        if not self._cluster.controller_manager:
            await self._collect_garbage(found)
        return found

    async def _list(self, resource: ApiResource) -> list[JsonObject]:
        try:
            listed = await self._cluster.client.list(unstructured(resource), namespace=self._namespace)
        except (NotFound, MethodNotAllowed):
            # The CustomResourceDefinition was deleted after discovery.
            return []
        return [obj.to_dict() for obj in listed.items]

    async def _collect_garbage(self, found: list[JsonObject]) -> None:
        """Delete objects whose owners are gone, as the controller manager would."""
        live_uids = {o["metadata"]["uid"] for o in found}
        listed_kinds = {(r.api_version, r.kind) for r in self._cluster.resources}
        for obj in found:
            owners = get_array(obj["metadata"], "ownerReferences")
            missing_owners = [
                o for o in owners if o["uid"] not in live_uids and (o["apiVersion"], o["kind"]) in listed_kinds
            ]
            if not owners or len(missing_owners) < len(owners):
                continue
            resource = next(r for r in self._cluster.resources if _is_of_resource(obj, r))
            key = ObjectKey(self._namespace, obj["metadata"]["name"])
            try:
                await self._cluster.client.delete(unstructured(resource), key, uid=obj["metadata"]["uid"])
            except (NotFound, Conflict):
                continue

    def _is_explored(self, obj: JsonObject) -> bool:
        return _is_of_resource(obj, self._object.resource) and obj["metadata"]["name"] == self._object.key.name

    # Writes

    def _record_own_write(self, obj: Unstructured) -> None:
        """Exclude a write of the tester from the operator's writes."""
        self._known_versions |= self._relevant_versions([obj.to_dict()])

    def _new_writes(self, found: list[JsonObject]) -> tuple[str, ...]:
        previous, self._known_versions = self._known_versions, self._relevant_versions(found)
        changed = [
            f"{'changed' if uid in previous else 'created'} {name}"
            for uid, (name, version) in self._known_versions.items()
            if uid not in previous or previous[uid][1] != version
        ]
        return (
            *changed,
            *(f"deleted {name}" for uid, (name, _) in previous.items() if uid not in self._known_versions),
        )

    def _relevant_versions(self, found: list[JsonObject]) -> dict[str, tuple[str, str]]:
        """Name and resourceVersion of each relevant object by UID."""
        return {
            o["metadata"]["uid"]: (
                display_name(o).replace(self._namespace, "(namespace)"),
                o["metadata"]["resourceVersion"],
            )
            for o in found
            if is_relevant(o)
        }


def _versions_by_uid(found: list[JsonObject]) -> dict[str, str]:
    return {o["metadata"]["uid"]: o["metadata"]["resourceVersion"] for o in found}


def _is_of_resource(obj: JsonObject, resource: ApiResource) -> bool:
    return (obj["apiVersion"], obj["kind"]) == (resource.api_version, resource.kind)


def on_cluster(
    client: Client,
    kind: type[Resource[Any, Any]] | Mapping[str, Any],
    *,
    observed: Collection[ApiResource | type[Object]] = (),
    restart: Callable[[], Awaitable[object]] | None = None,
    controller_manager: bool = True,
    settle_options: ClusterSettleOptions | None = None,
) -> SystemFactory:
    """Create systems on a cluster, each in its own namespace.

    The cluster serves the kind and runs its operator. The state of the operator process is not observable: neither a
    crash, nor an error that is only retried.

    Args:
        client: client that may create namespaces and all objects in them.
        kind: kind under test, or the manifest of its definition.
        observed: kinds of objects to compare. Empty: all namespaced kinds.
        restart: restarts the operator. Without it, an annotation of the object is changed, which operators may
            ignore.
        controller_manager: whether the cluster runs a controller manager. Without one, as with envtest, this system
            collects garbage and empties namespaces.
        settle_options: conditions under which the system is settled.

    Raises:
        ValueError: if the kind is cluster-scoped, since its objects cannot be isolated by a namespace.
    """
    target = KindUnderTest.from_kind(kind)
    if not target.resource.namespaced:
        raise ValueError(f"{target.resource.kind} is cluster-scoped: explore it in memory instead")

    @asynccontextmanager
    async def system() -> AsyncGenerator[SystemUnderTest]:
        cluster = _ClusterContext(
            client=client,
            target=target,
            resources=await _listed_resources(client, target, observed),
            restart=restart,
            controller_manager=controller_manager,
            settle_options=settle_options or ClusterSettleOptions(),
        )
        cluster_system = _ClusterSystem(cluster, await create_namespace(client, "transitions"))
        try:
            yield cluster_system
        finally:
            await cluster_system.close()

    return system


async def _listed_resources(
    client: Client, target: KindUnderTest, observed: Collection[ApiResource | type[Object]]
) -> tuple[ApiResource, ...]:
    """Resources to list, each in one version."""
    found = {(target.resource.group, target.resource.plural): target.resource}
    served = () if observed else await Discovery(client).resources()
    # Resources without create, such as pod metrics, are views of other resources.
    for kind in observed or [s.resource for s in served if {"list", "create"} <= {*s.verbs}]:
        resource = kind if isinstance(kind, ApiResource) else kind.api_resource
        if resource.namespaced and (resource.group, resource.kind) not in IGNORED_KINDS:
            found.setdefault((resource.group, resource.plural), resource)
    return tuple(found.values())
