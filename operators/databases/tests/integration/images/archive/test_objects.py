"""The object store client on a real store, and on the store in memory that unit tests use instead."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from database_support.servers.mysql_archive import store_of
from database_support.unit.memory_archive import MemoryArchive
from devcluster.store import local_store, programs
from steersman_instance.archive.objects import ObjectExists, ObjectNotFound, Objects, open_objects
from steersman_instance.paths import InstancePaths

pytestmark = pytest.mark.xdist_group("objects")


@pytest.fixture(scope="module", params=["memory", "store"])
def objects(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Objects]:
    if request.param == "memory":
        yield MemoryArchive().objects("archive")
        return
    if not programs.are_built():
        pytest.skip("the object store is not built: run devcluster store build")
    directory = tmp_path_factory.mktemp("store")
    with local_store(directory) as running, pytest.MonkeyPatch.context() as patch:
        # open_objects sets it.
        patch.setenv("SSL_CERT_FILE", "")
        yield open_objects(store_of(running), "archive", InstancePaths(volume=directory, run=directory))


def test_object_is_created_once(objects: Objects) -> None:
    objects.create("once/1", b"first")
    with pytest.raises(ObjectExists):
        objects.create("once/1", b"second")
    assert objects.read("once/1") == b"first"


def test_start_of_object_is_read(objects: Objects) -> None:
    objects.create("start/long", b"0123456789")
    objects.create("start/short", b"01")
    assert objects.read_start("start/long", 4) == b"0123"
    assert objects.read_start("start/short", 4) == b"01"


def test_missing_object_is_reported(objects: Objects) -> None:
    with pytest.raises(ObjectNotFound):
        objects.read("nothing/1")
    with pytest.raises(ObjectNotFound):
        objects.read_start("nothing/1", 4)
    assert not list(objects.names("nothing"))
    assert objects.directories("nothing") == []


def test_names_are_sorted_below_whole_path_elements(objects: Objects) -> None:
    for name in ("a/2", "a/10", "a/b/1", "ab/1", "a/1"):
        objects.create(f"listed/{name}", b"content")
    assert list(objects.names("listed/a")) == [f"listed/a/{each}" for each in ("1", "10", "2", "b/1")]
    assert objects.directories("listed") == ["a", "ab"]


def test_more_names_than_a_page_are_listed(objects: Objects) -> None:
    names = [f"paged/{number:05d}" for number in range(1100)]
    for name in names:
        objects.create(name, b"")
    assert list(objects.names("paged")) == names


def test_deletion_repeats(objects: Objects) -> None:
    objects.create("deleted/1", b"content")
    objects.create("deleted/2", b"content")
    for _ in range(2):
        objects.delete(["deleted/1", "deleted/3"])
    assert list(objects.names("deleted")) == ["deleted/2"]
