"""Run the operator of "Coming from Kopf" and check links to tests."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from framework_support.documented_code import DOCS, Pages
from steersman.api.core_v1 import ConfigMap
from steersman.client import Client, MergePatch
from steersman.controller import Channel
from steersman.errors import TerminalError
from steersman.manager import Manager
from steersman.meta import ObjectKey, ObjectMeta, find_condition
from steersman_testing import InMemoryApiServer, virtual_runtime, virtual_time

PAGE = "how-to/coming-from-kopf.md"
ROOT = DOCS.parent
PHOTOS = ObjectKey("default", "photos")


class FakeObjectStore:
    def __init__(self) -> None:
        self.buckets: dict[str, int] = {}
        self.calls = 0
        self.error: Exception | None = None

    async def ensure(self, name: str, region: str, size_gib: int) -> None:
        self.calls += 1
        if self.error:
            raise self.error
        self.buckets[name] = size_gib

    async def used_gib(self, name: str) -> int:
        return self.calls

    async def remove(self, name: str) -> None:
        if self.error:
            raise self.error
        del self.buckets[name]


@pytest.fixture
def buckets(pages: Pages) -> Any:
    return pages(PAGE)("buckets")


class OperatorHarness:
    """The page's operator at work."""

    def __init__(self, buckets: Any) -> None:
        self.buckets, self.store, self.start_time = buckets, FakeObjectStore(), Channel()
        self.runtime = virtual_runtime()
        self.server = InMemoryApiServer(self.runtime)
        self.server.register(buckets.Bucket)
        self.user = Client(self.server, field_manager="user")

    async def start(self, **metadata: Any) -> None:
        name = ObjectMeta(name=PHOTOS.name, namespace=PHOTOS.namespace, **metadata)
        await self.user.create(self.buckets.Bucket(metadata=name, spec=self.buckets.BucketSpec(region="north")))
        self.manager = Manager(self.server, runtime=self.runtime)
        self.buckets.setup(self.manager, self.store, self.start_time)
        self.running = asyncio.create_task(self.manager.run())
        await self.runtime.clock.sleep(1)

    async def stop(self) -> None:
        self.manager.stop()
        await self.running

    @property
    def bucket(self) -> Any:
        return self.server.read(self.buckets.Bucket, PHOTOS)


@virtual_time
async def test_buckets_are_measured_on_timer_and_push(buckets: Any) -> None:
    operator = OperatorHarness(buckets)
    await operator.start()
    first = operator.store.calls
    assert operator.bucket.status.used_gib == first
    await operator.runtime.clock.sleep(61)
    assert operator.bucket.status.used_gib == operator.store.calls == first + 1

    async def said() -> Any:
        yield PHOTOS

    await buckets.listen(said(), operator.start_time)
    await operator.runtime.clock.sleep(1)
    assert operator.store.calls == first + 2
    await operator.stop()


@virtual_time
async def test_buckets_terminal_error_is_retried_after_change(buckets: Any) -> None:
    operator = OperatorHarness(buckets)
    operator.store.error = buckets.RegionUnknown("no region north")
    await operator.start()
    condition = find_condition(operator.bucket.status.conditions, "Ready")
    assert condition is not None and condition.message == "spec.region: no region north"
    tried = operator.store.calls
    await operator.runtime.clock.sleep(3600)
    assert operator.store.calls == tried
    operator.store.error = None
    await operator.user.patch(buckets.Bucket, PHOTOS, MergePatch({"spec": {"region": "south"}}))
    await operator.runtime.clock.sleep(1)
    assert operator.store.buckets == {"default-photos": 10}
    await operator.stop()


@pytest.mark.requirement("user/finalizer-order")
@pytest.mark.parametrize("error", [TerminalError("for good"), RuntimeError("for now")])
@virtual_time
async def test_buckets_finalizer_stays_while_cleanup_fails(buckets: Any, error: Exception) -> None:
    operator = OperatorHarness(buckets)
    await operator.start(finalizers=("example.com/of-others",))
    operator.store.error = error
    await operator.user.delete(buckets.Bucket, PHOTOS)
    await operator.runtime.clock.sleep(60)
    assert operator.bucket.metadata.finalizers == ("example.com/of-others", buckets.FINALIZER)
    assert operator.store.buckets == {"default-photos": 10}
    operator.store.error = None
    operator.start_time.enqueue(PHOTOS)
    await operator.runtime.clock.sleep(60)
    assert operator.bucket.metadata.finalizers == ("example.com/of-others",)
    assert operator.store.buckets == {}
    await operator.stop()


@virtual_time
async def test_large_annotations_do_not_block_reconcile(buckets: Any) -> None:
    operator = OperatorHarness(buckets)
    # Nearly as many bytes of annotations as the API server takes.
    annotations = {"example.com/notes": "n" * 262_000}
    await operator.start(annotations=annotations)
    assert dict(operator.bucket.metadata.annotations) == annotations
    assert operator.store.buckets == {"default-photos": 10}
    made = operator.server.read(ConfigMap, PHOTOS)
    assert made is not None and dict(made.metadata.annotations) == {}
    kept: Any = operator.server.manifest(buckets.Bucket, PHOTOS)
    assert set(kept["status"]) == {"observedGeneration", "conditions", "usedGib"}
    await operator.stop()


def test_buckets_page_test_passes(pages: Pages, buckets: Any) -> None:
    pages(PAGE)("test_buckets").test_a_bucket_lives_grows_and_goes()
    assert inspect.iscoroutinefunction(pages(PAGE)("main").run)


def referenced_tests() -> list[str]:
    return re.findall(r"`(tests/[\w/]+\.py::\w+)`", (DOCS / PAGE).read_text())


def test_page_covers_each_kopf_complaint() -> None:
    rows = re.findall(r"^\| (\d)\. .*$", (DOCS / PAGE).read_text(), re.MULTILINE)
    assert rows == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.parametrize("named", referenced_tests())
def test_page_refers_to_existing_tests(named: str) -> None:
    file, _, test = named.partition("::")
    tree = ast.parse(Path(ROOT / file).read_text())
    assert test in {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)}
