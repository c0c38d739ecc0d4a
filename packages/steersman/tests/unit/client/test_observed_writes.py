"""What an observer hears of a client's writes."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from framework_support.buoy import Buoy, BuoyApply, BuoySpecApply, BuoyStatus, buoy, wire
from framework_support.scripted_transport import ScriptedTransport, answer, listed, refusal
from steersman.api.authentication_v1 import TokenReview, TokenReviewSpec
from steersman.api.core_v1 import Namespace, Service
from steersman.client import Client, HttpResponse, MergePatch
from steersman.errors import ApiError, ConnectionFailed
from steersman.meta import Object, ObjectKey, ObjectMeta, ObjectMetaApply
from steersman_testing import virtual_time

KEY = ObjectKey("sea", "a")
CONFIG = BuoyApply(metadata=ObjectMetaApply(name="a", namespace="sea"), spec=BuoySpecApply(depth=1))


@dataclass
class Heard:
    """Writes down what it is told."""

    told: list[tuple[Any, ...]] = field(default_factory=list[tuple[Any, ...]])

    def begun(self, kind: type[Object], key: ObjectKey) -> None:
        self.told.append(("begun", str(key)))

    def written(self, kind: type[Object], obj: Object, raw: bytes) -> None:
        assert raw
        self.told.append(("written", str(obj.key), obj.metadata.resource_version))

    def deleted(self, kind: type[Object], key: ObjectKey, uid: str) -> None:
        self.told.append(("deleted", str(key), uid))

    def uncertain(self, kind: type[Object], key: ObjectKey) -> None:
        self.told.append(("uncertain", str(key)))

    def refused(self, kind: type[Object], key: ObjectKey) -> None:
        self.told.append(("refused", str(key)))


def observed(*answers: HttpResponse | Exception) -> tuple[Client, list[tuple[Any, ...]]]:
    heard = Heard()
    return Client(ScriptedTransport(answers), field_manager="tester", observer=heard), heard.told


def marked(*, finalizers: tuple[str, ...] = (), grace: int | None = 0, version: int = 5) -> dict[str, Any]:
    """An object that is being deleted."""
    obj = wire("a", version)
    obj["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    if finalizers:
        obj["metadata"]["finalizers"] = list(finalizers)
    return obj


@virtual_time
async def test_every_kind_of_write_is_told() -> None:
    client, told = observed(answer(wire("a", 1), 201), *(answer(wire("a", v)) for v in (2, 3, 4)))
    await client.create(CONFIG)
    await client.apply(CONFIG)
    await client.apply_status(buoy(), BuoyStatus(depth=1))
    await client.patch(Buoy, KEY, MergePatch({}))
    assert told == [e for v in "1234" for e in (("begun", "sea/a"), ("written", "sea/a", v))]


@virtual_time
@pytest.mark.parametrize(
    "failure", [ConnectionFailed("lost"), refusal(504, "Timeout"), refusal(500, "InternalError"), answer({"spec": 1})]
)
async def test_without_a_clear_answer_the_outcome_is_uncertain(failure: HttpResponse | Exception) -> None:
    client, told = observed(failure, failure)
    with pytest.raises(Exception):  # noqa: B017 - whichever it is
        await client.apply(CONFIG)
    if not isinstance(failure, HttpResponse) or failure.status != 200:
        with pytest.raises((ApiError, ConnectionFailed)):
            await client.delete(Buoy, KEY)
    assert set(told) == {("begun", "sea/a"), ("uncertain", "sea/a")}


@virtual_time
@pytest.mark.parametrize("code", [400, 403, 404, 409, 422, 429])
async def test_refused_writes_are_told_as_such(code: int) -> None:
    client, told = observed(refusal(code, ""), refusal(code, ""))
    with pytest.raises(ApiError):
        await client.patch(Buoy, KEY, MergePatch({}))
    with pytest.raises(ApiError):
        await client.delete(Buoy, KEY)
    assert told == [("begun", "sea/a"), ("refused", "sea/a")] * 2


@virtual_time
async def test_a_write_that_is_cancelled_is_uncertain() -> None:
    client, told = observed()
    for write in (client.apply(CONFIG), client.delete(Buoy, KEY)):
        task = asyncio.create_task(write)
        await asyncio.sleep(1)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
    assert told == [("begun", "sea/a"), ("uncertain", "sea/a")] * 2


@virtual_time
async def test_a_deletion_that_is_carried_out_at_once() -> None:
    status = {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": {"name": "a", "uid": "uid-a"}}
    # Services, among others, are answered by their last state, which bears no mark.
    client, told = observed(answer(status), answer({**wire("a", 3), "kind": "Service", "spec": {}}), answer(marked()))
    assert await client.delete(Buoy, KEY) is None
    assert await client.delete(Service, KEY) is None
    assert await client.delete(Buoy, KEY) is None
    assert told == [("begun", "sea/a"), ("deleted", "sea/a", "uid-a")] * 3


@virtual_time
@pytest.mark.parametrize("held", [marked(finalizers=("x/y",)), marked(grace=30)])
async def test_a_deletion_that_something_holds_is_a_change(held: dict[str, Any]) -> None:
    client, told = observed(answer(held))
    left = await client.delete(Buoy, KEY)
    assert left is not None
    assert left.metadata.resource_version == "5"
    assert told == [("begun", "sea/a"), ("written", "sea/a", "5")]


@virtual_time
@pytest.mark.parametrize("grace", [0, None])
async def test_the_write_that_releases_the_last_finalizer_deletes(grace: int | None) -> None:
    client, told = observed(answer(marked(grace=grace)), answer(marked(grace=30, finalizers=())))
    await client.patch(Buoy, KEY, MergePatch({"metadata": {"finalizers": None}}))
    await client.patch(Buoy, KEY, MergePatch({"metadata": {"finalizers": None}}))
    assert told == [
        ("begun", "sea/a"),
        ("deleted", "sea/a", "uid-a"),
        ("begun", "sea/a"),
        ("written", "sea/a", "5"),
    ]


@virtual_time
async def test_a_namespace_is_held_by_its_content() -> None:
    name = ObjectKey("", "sea")
    document: dict[str, Any] = {
        "metadata": {"name": "sea", "uid": "u", "resourceVersion": "5", "deletionTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"finalizers": ["kubernetes"]},
    }
    client, told = observed(answer(document), answer({**document, "spec": {}}))
    await client.delete(Namespace, name)
    await client.patch(Namespace, name, MergePatch({}))
    assert told == [("begun", "sea"), ("written", "sea", "5"), ("begun", "sea"), ("deleted", "sea", "u")]


@virtual_time
async def test_a_name_that_the_server_generates_is_told_when_it_is_known() -> None:
    client, told = observed(answer(wire("a-x7", 1), 201), refusal(422, "Invalid"))
    unnamed = Buoy(metadata=ObjectMeta(generate_name="a-", namespace="sea"), spec=buoy().spec)
    await client.create(unnamed)
    with pytest.raises(ApiError):
        await client.create(unnamed)
    assert told == [("written", "sea/a-x7", "1")]


@virtual_time
async def test_what_was_not_sent_has_changed_nothing() -> None:
    client, told = observed(ConnectionFailed("refused", sent=False))
    with pytest.raises(ConnectionFailed):
        await client.apply(CONFIG)
    assert told == [("begun", "sea/a"), ("refused", "sea/a")]


@virtual_time
async def test_a_refusal_may_be_the_effect_of_our_own_first_try() -> None:
    lost = replace(refusal(404, "NotFound"), uncertain=True)
    client, told = observed(lost)
    with pytest.raises(ApiError) as refused:
        await client.delete(Buoy, KEY)
    assert refused.value.uncertain
    assert told == [("begun", "sea/a"), ("uncertain", "sea/a")]


@virtual_time
async def test_answers_that_do_not_tell_the_new_state() -> None:
    scale = answer({"kind": "Scale", "metadata": {"name": "a", "namespace": "sea"}, "spec": {"replicas": 2}})
    done = answer({"kind": "Status", "apiVersion": "v1", "status": "Success"}, 201)
    client, told = observed(scale, done, refusal(429, "TooManyRequests"))
    await client.scale(Buoy, KEY, 2)
    await client.evict(KEY)
    with pytest.raises(ApiError):
        await client.evict(KEY)
    assert [what for what, _ in told] == ["begun", "uncertain", "begun", "uncertain", "begun", "refused"]


@virtual_time
async def test_of_a_collection_nobody_knows_what_is_held() -> None:
    client, told = observed(listed(wire("a"), wire("b")), refusal(403, "Forbidden"))
    await client.delete_collection(Buoy, namespace="sea")
    with pytest.raises(ApiError):
        await client.delete_collection(Buoy, namespace="sea")
    assert told == [("begun", "sea/a"), ("uncertain", "sea/a"), ("begun", "sea/b"), ("uncertain", "sea/b")]


@virtual_time
async def test_nobody_hears_of_dry_runs_reviews_and_tokens() -> None:
    review = {"kind": "TokenReview", "metadata": {}, "spec": {}, "status": {"authenticated": True}}
    token = {"kind": "TokenRequest", "metadata": {"name": "a", "uid": "u"}, "status": {"token": "t"}}
    client, told = observed(*[answer(wire())] * 4, answer(review), answer(token))
    await client.apply(CONFIG, dry_run=True)
    await client.patch(Buoy, KEY, MergePatch({}), dry_run=True)
    await client.delete(Buoy, KEY, dry_run=True)
    await client.scale(Buoy, KEY, 1, dry_run=True)
    await client.create(TokenReview(spec=TokenReviewSpec(token="t")))
    await client.create_token(KEY)
    assert told == []


@virtual_time
async def test_a_review_that_has_a_name_changes_nothing() -> None:
    client, told = observed(answer({"kind": "TokenReview", "metadata": {"name": "a"}, "spec": {}}))
    await client.create(TokenReview(metadata=ObjectMeta(name="a"), spec=TokenReviewSpec(token="t")))
    assert told == [("begun", "a"), ("refused", "a")]


@virtual_time
async def test_objects_without_a_namespace_are_told_without_one() -> None:
    name = {"metadata": {"name": "n", "uid": "u", "resourceVersion": "2"}}
    client, told = observed(answer(name))
    await client.patch(Namespace, ObjectKey("sea", "n"), MergePatch({}))
    assert told == [("begun", "n"), ("written", "n", "2")]
