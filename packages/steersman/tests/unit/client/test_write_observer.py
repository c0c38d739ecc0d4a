"""Notifications of write observers."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from framework_support.transports import ScriptedTransport, error_response, json_response, list_response
from framework_support.widget import Widget, WidgetApply, WidgetSpecApply, WidgetStatus, widget, widget_document
from steersman.api.apply import meta
from steersman.api.authentication_v1 import TokenReview, TokenReviewSpec
from steersman.api.core_v1 import Namespace, Service
from steersman.client import Client, HttpResponse, MergePatch
from steersman.errors import ApiError, ConnectionFailed
from steersman.meta import Object, ObjectKey, ObjectMeta
from steersman_testing import virtual_time

KEY = ObjectKey("orders", "a")
CONFIG = WidgetApply(metadata=meta.ObjectMeta(name="a", namespace="orders"), spec=WidgetSpecApply(depth=1))


@dataclass
class RecordingObserver:
    """Observer that records its calls."""

    events: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def on_write_started(self, kind: type[Object], key: ObjectKey) -> None:
        self.events.append(("begun", str(key)))

    def on_write_succeeded(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        assert raw
        self.events.append(("written", str(obj.key), obj.metadata.resource_version))

    def on_deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        self.events.append(("deleted", str(key), uid))

    def on_write_unknown(self, kind: type[Object], key: ObjectKey) -> None:
        self.events.append(("uncertain", str(key)))

    def on_write_rejected(self, kind: type[Object], key: ObjectKey) -> None:
        self.events.append(("refused", str(key)))

    def on_collection_delete_failed(self, kind: type[Object], namespace: str) -> None:
        self.events.append(("collection uncertain", namespace))


def recording_client(*responses: HttpResponse | Exception) -> tuple[Client, list[tuple[Any, ...]]]:
    observer = RecordingObserver()
    return Client(ScriptedTransport(responses), field_manager="tester", observer=observer), observer.events


def deleting_object(*, finalizers: tuple[str, ...] = (), grace: int | None = 0, version: int = 5) -> dict[str, Any]:
    """Return an object that is being deleted."""
    obj = widget_document("a", version)
    obj["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    if finalizers:
        obj["metadata"]["finalizers"] = list(finalizers)
    return obj


@virtual_time
async def test_observer_receives_every_write_verb() -> None:
    client, events = recording_client(
        json_response(widget_document("a", 1), 201), *(json_response(widget_document("a", v)) for v in (2, 3, 4))
    )
    await client.create(CONFIG)
    await client.apply(CONFIG)
    await client.apply_status(widget(), WidgetStatus(depth=1))
    await client.patch(Widget, KEY, MergePatch({}))
    assert events == [e for v in "1234" for e in (("begun", "orders/a"), ("written", "orders/a", v))]


@virtual_time
@pytest.mark.parametrize(
    "failure",
    [
        ConnectionFailed("lost"),
        error_response(504, "Timeout"),
        error_response(500, "InternalError"),
        json_response({"spec": 1}),
    ],
)
async def test_observer_write_without_response_is_uncertain(failure: HttpResponse | Exception) -> None:
    client, events = recording_client(failure, failure)
    with pytest.raises(Exception):  # noqa: B017 - whichever it is
        await client.apply(CONFIG)
    if not isinstance(failure, HttpResponse) or failure.status != 200:
        with pytest.raises((ApiError, ConnectionFailed)):
            await client.delete(Widget, KEY)
    assert set(events) == {("begun", "orders/a"), ("uncertain", "orders/a")}


@virtual_time
@pytest.mark.parametrize("code", [400, 403, 404, 409, 422, 429])
async def test_observer_rejected_write_is_reported(code: int) -> None:
    client, events = recording_client(error_response(code, ""), error_response(code, ""))
    with pytest.raises(ApiError):
        await client.patch(Widget, KEY, MergePatch({}))
    with pytest.raises(ApiError):
        await client.delete(Widget, KEY)
    assert events == [("begun", "orders/a"), ("refused", "orders/a")] * 2


@virtual_time
async def test_observer_cancelled_write_is_uncertain() -> None:
    client, events = recording_client()
    for write in (client.apply(CONFIG), client.delete(Widget, KEY)):
        task = asyncio.create_task(write)
        await asyncio.sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert events == [("begun", "orders/a"), ("uncertain", "orders/a")] * 2


@virtual_time
async def test_observer_immediate_deletion() -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": "a", "uid": "uid-a"}}
    # For some kinds, such as Service, the response is the last state without deletionTimestamp.
    client, events = recording_client(
        json_response(status),
        json_response({**widget_document("a", 3), "kind": "Service", "spec": {}}),
        json_response(deleting_object()),
    )
    assert await client.delete(Widget, KEY) is None
    assert await client.delete(Service, KEY) is None
    assert await client.delete(Widget, KEY) is None
    assert events == [("begun", "orders/a"), ("deleted", "orders/a", "uid-a")] * 3


@virtual_time
@pytest.mark.parametrize("held", [deleting_object(finalizers=("x/y",)), deleting_object(grace=30)])
async def test_observer_deletion_with_finalizer_is_a_write(held: dict[str, Any]) -> None:
    client, events = recording_client(json_response(held))
    left = await client.delete(Widget, KEY)
    assert left is not None
    assert left.metadata.resource_version == "5"
    assert events == [("begun", "orders/a"), ("written", "orders/a", "5")]


@virtual_time
@pytest.mark.parametrize("grace", [0, None])
async def test_observer_last_finalizer_removal_is_a_deletion(grace: int | None) -> None:
    client, events = recording_client(
        json_response(deleting_object(grace=grace)), json_response(deleting_object(grace=30, finalizers=()))
    )
    await client.patch(Widget, KEY, MergePatch({"metadata": {"finalizers": None}}))
    await client.patch(Widget, KEY, MergePatch({"metadata": {"finalizers": None}}))
    assert events == [
        ("begun", "orders/a"),
        ("deleted", "orders/a", "uid-a"),
        ("begun", "orders/a"),
        ("written", "orders/a", "5"),
    ]


@virtual_time
async def test_observer_namespace_deletion_is_a_write_until_empty() -> None:
    name = ObjectKey("", "orders")
    document: dict[str, Any] = {
        "metadata": {
            "name": "orders",
            "uid": "u",
            "resourceVersion": "5",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"finalizers": ["kubernetes"]},
    }
    client, events = recording_client(json_response(document), json_response({**document, "spec": {}}))
    await client.delete(Namespace, name)
    await client.patch(Namespace, name, MergePatch({}))
    assert events == [
        ("begun", "orders"),
        ("written", "orders", "5"),
        ("begun", "orders"),
        ("deleted", "orders", "u"),
    ]


@virtual_time
async def test_observer_generated_name_is_reported_after_create() -> None:
    client, events = recording_client(json_response(widget_document("a-x7", 1), 201), error_response(422, "Invalid"))
    unnamed = Widget(metadata=ObjectMeta(generate_name="a-", namespace="orders"), spec=widget().spec)
    await client.create(unnamed)
    with pytest.raises(ApiError):
        await client.create(unnamed)
    assert events == [("written", "orders/a-x7", "1")]


@virtual_time
async def test_observer_unsent_write_is_reported_as_rejected() -> None:
    client, events = recording_client(ConnectionFailed("refused", sent=False))
    with pytest.raises(ConnectionFailed):
        await client.apply(CONFIG)
    assert events == [("begun", "orders/a"), ("refused", "orders/a")]


@virtual_time
async def test_observer_rejected_retry_is_uncertain() -> None:
    lost = replace(error_response(404, "NotFound"), uncertain=True)
    client, events = recording_client(lost)
    with pytest.raises(ApiError) as refused:
        await client.delete(Widget, KEY)
    assert refused.value.uncertain
    assert events == [("begun", "orders/a"), ("uncertain", "orders/a")]


@virtual_time
async def test_observer_response_without_object_is_uncertain() -> None:
    scale = json_response(
        {"kind": "Scale", "metadata": {"name": "a", "namespace": "orders"}, "spec": {"replicas": 2}}
    )
    done = json_response({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)
    client, events = recording_client(scale, done, error_response(429, "TooManyRequests"))
    await client.scale(Widget, KEY, 2)
    await client.evict(KEY)
    with pytest.raises(ApiError):
        await client.evict(KEY)
    assert [what for what, _ in events] == ["begun", "uncertain", "begun", "uncertain", "begun", "refused"]


@virtual_time
async def test_observer_delete_collection_marks_all_uncertain() -> None:
    client, events = recording_client(list_response(widget_document("a"), widget_document("b")))
    await client.delete_collection(Widget, namespace="orders")
    assert events == [
        ("begun", "orders/a"),
        ("uncertain", "orders/a"),
        ("begun", "orders/b"),
        ("uncertain", "orders/b"),
    ]


@pytest.mark.parametrize(
    ("response", "reported"),
    [
        (error_response(403, "Forbidden"), True),
        (error_response(500, "InternalError"), True),
        (ConnectionFailed("lost"), True),
        (ConnectionFailed("refused", sent=False), False),
    ],
    ids=("forbidden", "server error", "lost", "unsent"),
)
@virtual_time
async def test_observer_failed_delete_collection_is_reported(response: Any, reported: bool) -> None:
    client, events = recording_client(response)
    with pytest.raises((ApiError, ConnectionFailed)):
        await client.delete_collection(Widget, namespace="orders")
    assert events == ([("collection uncertain", "orders")] if reported else [])


@virtual_time
async def test_observer_ignores_failed_dry_run_of_collection() -> None:
    client, events = recording_client(ConnectionFailed("lost"))
    with pytest.raises(ConnectionFailed):
        await client.delete_collection(Widget, namespace="orders", dry_run=True)
    assert events == []


@virtual_time
async def test_observer_ignores_dry_runs_reviews_and_tokens() -> None:
    review = {"kind": "TokenReview", "metadata": {}, "spec": {}, "status": {"authenticated": True}}
    token = {"kind": "TokenRequest", "metadata": {"name": "a", "uid": "u"}, "status": {"token": "t"}}
    client, events = recording_client(
        *[json_response(widget_document())] * 4, json_response(review), json_response(token)
    )
    await client.apply(CONFIG, dry_run=True)
    await client.patch(Widget, KEY, MergePatch({}), dry_run=True)
    await client.delete(Widget, KEY, dry_run=True)
    await client.scale(Widget, KEY, 1, dry_run=True)
    await client.create(TokenReview(spec=TokenReviewSpec(token="t")))
    await client.create_token(KEY)
    assert events == []


@virtual_time
async def test_observer_named_review_is_not_a_write() -> None:
    client, events = recording_client(json_response({"kind": "TokenReview", "metadata": {"name": "a"}, "spec": {}}))
    await client.create(TokenReview(metadata=ObjectMeta(name="a"), spec=TokenReviewSpec(token="t")))
    assert events == [("begun", "a"), ("refused", "a")]


@virtual_time
async def test_observer_cluster_scoped_key_has_no_namespace() -> None:
    name = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "2"}}
    client, events = recording_client(json_response(name))
    await client.patch(Namespace, ObjectKey("orders", "n"), MergePatch({}))
    assert events == [("begun", "n"), ("written", "n", "2")]
