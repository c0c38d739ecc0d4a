"""Objects are files, and the state file finds a running store."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from devcluster.errors import DevclusterError, NotRunning
from devcluster.process import Process
from devcluster.store.directory import StoreDirectory
from devcluster.store.object_store import ObjectStore
from devcluster.store.toxiproxy import Toxiproxy

KEY = "shop/archive/1"


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    """Return a store of one object, whose processes are this one."""
    this = Process.of(os.getpid())
    assert this is not None
    directory = StoreDirectory(tmp_path)
    directory.create(["localhost"])
    path = directory.volume / "objects" / "backups" / KEY
    path.parent.mkdir(parents=True)
    path.write_bytes(b"content")
    endpoint = "https://localhost:9000"
    return ObjectStore(directory, this, this, endpoint, endpoint, Toxiproxy("127.0.0.1", 1), volume_limited=False)


def test_keys_exclude_uploads_in_progress(store: ObjectStore) -> None:
    upload = store.directory.volume / "objects" / "backups" / ".sgwtmp" / "multipart" / "1"
    upload.parent.mkdir(parents=True)
    upload.touch()
    assert store.keys() == [KEY]
    assert store.keys("shop/") == [KEY]
    assert store.keys("other/") == []


def test_corrupt_changes_one_bit_and_keeps_the_time(store: ObjectStore) -> None:
    path = store.directory.volume / "objects" / "backups" / KEY
    os.utime(path, (1, 1))
    store.corrupt(KEY)
    assert store.read(KEY) == b"conuent"
    assert path.stat().st_mtime == 1
    store.corrupt(KEY)
    assert store.read(KEY) == b"content"


def test_corrupt_of_empty_object_is_refused(store: ObjectStore) -> None:
    (store.directory.volume / "objects" / "backups" / "empty").touch()
    with pytest.raises(DevclusterError, match="object empty is empty"):
        store.corrupt("empty")


@pytest.mark.parametrize("key", ["other", "shop", "../../../root.env"])
def test_key_without_object_is_refused(store: ObjectStore, key: str) -> None:
    with pytest.raises(DevclusterError, match=rf"has no object .*\. It has: {KEY}"):
        store.delete(key)


def test_deleted_object_leaves_no_empty_directory(store: ObjectStore) -> None:
    sibling = store.directory.volume / "objects" / "backups" / "shop" / "steersman.json"
    sibling.touch()
    store.delete(KEY)
    assert store.keys() == ["shop/steersman.json"]
    assert [path.name for path in sibling.parent.iterdir()] == ["steersman.json"]
    store.delete("shop/steersman.json")
    assert store.has_bucket()
    assert not sibling.parent.exists()


def test_fill_without_limit_is_refused(store: ObjectStore) -> None:
    with pytest.raises(DevclusterError, match="start the store with a volume size"):
        store.fill()


@pytest.mark.parametrize("rate", [0, -1])
def test_throttle_below_one_byte_is_refused(store: ObjectStore, rate: int) -> None:
    with pytest.raises(DevclusterError, match="use blackhole"):
        store.throttle(bytes_per_second=rate)


def test_saved_store_is_loaded(store: ObjectStore) -> None:
    assert ObjectStore.load(store.directory.path) is None
    store.save()
    assert ObjectStore.load(store.directory.path) == store


def test_ended_store_names_its_log(store: ObjectStore) -> None:
    ended = ObjectStore(
        store.directory, Process(store.server.pid, 1), store.proxy, "", "", store.toxiproxy, volume_limited=False
    )
    assert not ended.is_running()
    with pytest.raises(NotRunning, match=r"versitygw\.log"):
        ended.keys()
