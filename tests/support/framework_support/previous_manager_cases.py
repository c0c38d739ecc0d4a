"""An operator with the fields of a previous field manager."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from framework_support.widget import Widget, WidgetApply, WidgetSpecApply
from steersman.api.apply import core, meta
from steersman.api.core_v1 import ConfigMap
from steersman.cache import Cache, CachedClient
from steersman.client import Client, MergePatch, Transport
from steersman.controller.status import write_status
from steersman.errors import Conflict
from steersman.meta import FrozenDict, ObjectKey, ObjectMeta
from steersman.observability.runtime import Runtime

PREVIOUS, CURRENT = "old-operator", "new-operator"


class RenamedOperator:
    """Clients under the previous and the current name."""

    def __init__(
        self, transport: Transport, namespace: str, runtime: Runtime | None = None, *, previous: str = PREVIOUS
    ) -> None:
        self.namespace = namespace
        self.previous = Client(transport, field_manager=previous)
        live = Client(transport, field_manager=CURRENT, previous_field_managers=(previous,))
        self.cache = Cache(live, runtime=runtime or Runtime())
        observed = Client(transport, field_manager=CURRENT, observer=self.cache, previous_field_managers=(previous,))
        self.current = CachedClient(observed, self.cache)

    def key(self, name: str) -> ObjectKey:
        return ObjectKey(self.namespace, name)

    def config(self, name: str, **data: str) -> Any:
        return core.ConfigMap(metadata=meta.ObjectMeta(name=name, namespace=self.namespace), data=data)

    async def managers(self, kind: type[Any], name: str) -> list[tuple[str, str, str]]:
        """Manager, operation and subresource of each entry."""
        found = msgspec.json.decode(await self.previous.raw(kind.api_resource.path(self.key(name))))
        entries = found["metadata"].get("managedFields", [])
        return sorted((e["manager"], e["operation"], e.get("subresource", "")) for e in entries)

    @asynccontextmanager
    async def cached(self, *kinds: type[Any]) -> AsyncGenerator[None]:
        """Run the cache with these kinds."""
        for kind in kinds:
            self.cache.informer(kind)
        self.cache.start()
        await self.cache.wait_for_sync()
        try:
            yield
        finally:
            await self.cache.stop()


async def check_applied_fields(operator: RenamedOperator, *, is_cached: bool) -> None:
    """A field that the current name omits is removed."""
    await operator.previous.apply(operator.config("applied", kept="1", stale="2"))
    async with operator.cached(*([ConfigMap] if is_cached else [])):
        applied = await operator.current.apply(operator.config("applied", kept="1"))
    assert applied.data == {"kept": "1"}
    assert await operator.managers(ConfigMap, "applied") == [(CURRENT, "Apply", "")]


async def check_other_value(operator: RenamedOperator, *, is_cached: bool) -> None:
    """Another value of a previous name is not a conflict without force. That of another manager is."""
    await operator.previous.apply(operator.config("unforced", kept="1"))
    await Client(operator.previous.transport, field_manager="user").apply(operator.config("unforced", users="3"))
    async with operator.cached(*([ConfigMap] if is_cached else [])):
        applied = await operator.current.apply(operator.config("unforced", kept="2"), force=False)
        assert applied.data == {"kept": "2", "users": "3"}
        with pytest.raises(Conflict):
            await operator.current.apply(operator.config("unforced", kept="2", users="4"), force=False)


async def check_updated_fields(operator: RenamedOperator) -> None:
    """The same for fields of an update. A finalizer and fields of other managers stay."""
    metadata = ObjectMeta(
        name="updated", namespace=operator.namespace, finalizers=("example.com/hold",), labels=FrozenDict({"a": "b"})
    )
    await operator.previous.create(ConfigMap(metadata=metadata, data=FrozenDict({"kept": "1", "stale": "2"})))
    user = Client(operator.previous.transport, field_manager="user")
    await user.apply(operator.config("updated", users="3"))
    async with operator.cached(ConfigMap):
        applied = await operator.current.apply(operator.config("updated", kept="1"))
    assert applied.data == {"kept": "1", "users": "3"}
    assert applied.metadata.labels == {}
    assert applied.metadata.finalizers == ("example.com/hold",)
    assert await operator.managers(ConfigMap, "updated") == [(CURRENT, "Apply", ""), ("user", "Apply", "")]


async def check_status(operator: RenamedOperator) -> None:
    """A whole status drops stale fields. A partial one keeps what earlier calls have set."""
    config = WidgetApply(
        metadata=meta.ObjectMeta(name="status", namespace=operator.namespace), spec=WidgetSpecApply(depth=1)
    )
    widget = await Client(operator.previous.transport, field_manager="user").apply(config)
    stale = MergePatch({"status": {"depth": 7, "note": "disk full"}})
    await operator.previous.patch(Widget, widget.key, stale, subresource="status")
    async with operator.cached(Widget):
        now = datetime(2030, 1, 1, tzinfo=UTC)
        partial = await write_status(operator.current, widget, now, conditions=(), fields={"depth": 8})
        assert (partial.status.depth, partial.status.note) == (8, "disk full")
        without_note: Any = {"depth": 8}
        whole = await operator.current.apply_status(partial, without_note)
        assert (whole.status.depth, whole.status.note) == (8, "")
    managers = await operator.managers(Widget, "status")
    assert [m for m in managers if m[2]] == [(CURRENT, "Apply", "status")]
