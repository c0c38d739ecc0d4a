"""An operator whose new release writes the status in another API version."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Annotated, Any

from steersman.api.apiextensions_v1 import CustomResourceDefinition
from steersman.cache import Cache, CachedClient
from steersman.client import Client, Transport
from steersman.controller.status import write_status
from steersman.errors import ApiError
from steersman.meta import (
    Condition,
    Field,
    Object,
    ObjectKey,
    ObjectMeta,
    Resource,
    Spec,
    Status,
    decode_builtins,
    resource,
)
from steersman.observability.runtime import Runtime
from steersman_manifests.crd import definition

GROUP = "status-versions.example.com"
READY = Condition(type="Ready", status="True", reason="Done")
_RENAMED = {"v1": "readyReplicas", "v2": "ready"}


class AppSpec(Spec):
    image: str = ""


class OldAppStatus(Status):
    ready_replicas: int | None = None
    phase: str | None = None
    note: str | None = None
    addresses: Annotated[tuple[str, ...], Field(list_type="set")] = ()


class AppStatus(Status):
    ready: int | None = None
    phase: str | None = None
    note: str | None = None
    addresses: Annotated[tuple[str, ...], Field(list_type="set")] = ()


@resource(group=GROUP, version="v1", kind="App")
class OldApp(Resource[AppSpec, OldAppStatus]):
    """An app in the previous version."""


@resource(group=GROUP, version="v2", kind="App", storage=False)
class App(Resource[AppSpec, AppStatus]):
    """An app."""


async def convert(review: dict[str, Any]) -> dict[str, Any]:
    """Respond as a conversion webhook that renames a status field."""
    request = review["request"]
    objects = [_convert(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}
    return {"kind": review["kind"], "apiVersion": review["apiVersion"], "response": response}


def _convert(obj: dict[str, Any], api_version: str) -> dict[str, Any]:
    # The API server also converts parts of an object.
    status = dict(obj.get("status") or {})
    version = api_version.rpartition("/")[2]
    for other, name in _RENAMED.items():
        if other != version and name in status:
            status[_RENAMED[version]] = status.pop(name)
    return {**obj, "apiVersion": api_version, **({"status": status} if "status" in obj else {})}


def crd(client_config: dict[str, Any]) -> CustomResourceDefinition:
    """Return the definition of both versions with a conversion webhook."""
    manifest = definition(OldApp, App)
    webhook = {"clientConfig": client_config, "conversionReviewVersions": ["v1"]}
    manifest["spec"]["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return decode_builtins(manifest, CustomResourceDefinition)


async def wait_until_served(transport: Transport) -> None:
    """Wait until both versions are served."""
    async with asyncio.timeout(30):
        for kind in (OldApp, App):
            while not await _is_served(Client(transport), kind):
                await asyncio.sleep(0.1)


async def _is_served(client: Client, kind: type[Object]) -> bool:
    try:
        await client.list(kind)
    except ApiError:
        return False
    return True


class Release:
    """A release of the operator that uses ``kind``."""

    def __init__(self, transport: Transport, kind: type[Object], name: str) -> None:
        cache = Cache(Client(transport, field_manager="operator"), runtime=Runtime())
        self.client = CachedClient(Client(transport, field_manager="operator", observer=cache), cache)
        self._kind, self._key = kind, ObjectKey("default", name)

    async def status(self, *conditions: Condition, **fields: Any) -> Any:
        """Update the status as ``Reconciler.status`` does, and return it."""
        app = await self.client.live.get(self._kind, self._key)
        now = datetime.now(UTC)
        written: Any = await write_status(self.client, app, now, conditions=conditions, fields=fields)
        return written.status


async def check_renamed_field_survives(transport: Transport) -> None:
    """Check that the first update in a new version removes nothing."""
    await _create(transport, "renamed")
    await Release(transport, OldApp, "renamed").status(
        READY, ready_replicas=3, phase="Ready", addresses=("10.0.0.1",)
    )
    new = Release(transport, App, "renamed")
    status = await new.status(phase="Rolling")
    assert (status.ready, status.phase, status.addresses) == (3, "Rolling", ("10.0.0.1",))
    assert [condition.type for condition in status.conditions] == ["Ready"]
    status = await new.status(ready=None)
    assert (status.ready, status.phase) == (None, "Rolling")
    back = await Release(transport, OldApp, "renamed").status(ready_replicas=4)
    assert (back.ready_replicas, back.phase) == (4, "Rolling")


async def check_other_managers_keep_their_fields(transport: Transport) -> None:
    """Check that the first update takes over no foreign fields."""
    app = await _create(transport, "shared")
    other = Client(transport, field_manager="other")
    healthy = Condition(type="Healthy", status="True", reason="Done", last_transition_time=datetime.now(UTC))
    await other.apply_status(app, OldAppStatus(conditions=(healthy,), note="theirs"))
    await Release(transport, OldApp, "shared").status(READY, phase="Ready")
    status = await Release(transport, App, "shared").status(ready=3)
    assert [condition.type for condition in status.conditions] == ["Healthy", "Ready"]
    assert (status.note, status.phase) == ("theirs", "Ready")
    left = await other.apply_status(app, OldAppStatus())
    assert [condition.type for condition in left.status.conditions] == ["Ready"]
    assert (left.status.note, left.status.phase, left.status.ready_replicas) == (None, "Ready", 3)


async def _create(transport: Transport, name: str) -> OldApp:
    metadata = ObjectMeta(name=name, namespace="default")
    return await Client(transport).create(OldApp(metadata=metadata, spec=AppSpec()))
