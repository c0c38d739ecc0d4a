"""The local object store is an S3 service with faults."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, GenericError, PermissionDeniedError
from obstore.store import S3Store

from devcluster.errors import DevclusterError
from devcluster.process import Process
from devcluster.store import Credentials, ObjectStore, local_store, programs
from devcluster.store.local import supports_limited_volumes

pytestmark = [
    pytest.mark.skipif(
        not programs.are_built(), reason="the object store is not built: run python -m devcluster store build"
    ),
    pytest.mark.xdist_group("object-store"),
]
KEY = "orders/archive/1"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """Run a store; obstore trusts its CA."""
    with pytest.MonkeyPatch.context() as environment, local_store(tmp_path_factory.mktemp("store")) as running:
        environment.setenv("SSL_CERT_FILE", str(running.ca_file))
        yield running


@pytest.fixture
def bucket(store: ObjectStore) -> Iterator[S3Store]:
    """Return a client with one object; end all faults afterwards."""
    client = connect(store)
    obstore.put(client, KEY, b"content")
    yield client
    store.start()
    store.end_faults()


def connect(store: ObjectStore, credentials: Credentials | None = None, *, timeout: str = "30s") -> S3Store:
    """Return a client that does not retry."""
    credentials = credentials or store.credentials
    return S3Store(
        store.bucket,
        endpoint=store.host_endpoint,
        region=store.region,
        access_key_id=credentials.access_key_id,
        secret_access_key=credentials.secret_access_key,
        virtual_hosted_style_request=False,
        client_options={"timeout": timeout, "connect_timeout": timeout},
        retry_config={"max_retries": 0, "retry_timeout": timedelta(seconds=1)},
    )


def content(client: S3Store) -> bytes:
    return bytes(client.get(KEY).bytes())


def test_certificate_is_trusted_only_with_the_ca(store: ObjectStore) -> None:
    trusting = ssl.create_default_context(cafile=str(store.ca_file))
    with urllib.request.urlopen(f"{store.host_endpoint}/healthz", context=trusting) as response:
        assert response.status == 200
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{store.host_endpoint}/healthz", context=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def test_wrong_credentials_are_refused(store: ObjectStore, bucket: S3Store) -> None:
    with pytest.raises(PermissionDeniedError, match="InvalidAccessKeyId"):
        content(connect(store, Credentials("WRONG", "x" * 30)))
    with pytest.raises(PermissionDeniedError, match="SignatureDoesNotMatch"):
        content(connect(store, Credentials(store.credentials.access_key_id, "x" * 30)))


def test_second_create_of_a_key_is_refused(bucket: S3Store) -> None:
    with pytest.raises(AlreadyExistsError):
        obstore.put(bucket, KEY, b"other", mode="create")
    assert content(bucket) == b"content"


def test_blackhole_hangs_until_faults_end(store: ObjectStore, bucket: S3Store) -> None:
    with store.blackholed():
        assert store.faults() == ["blackhole"]
        with pytest.raises(GenericError, match="TimedOut"):
            content(connect(store, timeout="1s"))
    assert content(bucket) == b"content"
    assert store.faults() == []


def test_stopped_store_refuses_connections(store: ObjectStore, bucket: S3Store) -> None:
    with store.stopped():
        assert store.faults() == ["stopped"]
        with pytest.raises(GenericError, match="ConnectionRefused"):
            content(bucket)
    assert content(bucket) == b"content"


def test_throttle_of_one_byte_per_second_times_out(store: ObjectStore, bucket: S3Store) -> None:
    store.throttle(bytes_per_second=1)
    with pytest.raises(GenericError, match="TimedOut"):
        content(connect(store, timeout="1s"))
    store.end_faults()
    assert content(bucket) == b"content"


def test_throttle_delays_each_response(store: ObjectStore, bucket: S3Store) -> None:
    content(bucket)
    store.throttle(latency_milliseconds=50, bytes_per_second=1_000_000)
    assert store.faults() == ["bandwidth", "latency"]
    started = time.monotonic()
    content(bucket)
    assert time.monotonic() - started >= 0.05


@pytest.mark.skipif(not supports_limited_volumes(), reason="mounts are not permitted, as in most containers")
def test_full_store_refuses_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_store(tmp_path, volume_mebibytes=16) as store:
        monkeypatch.setenv("SSL_CERT_FILE", str(store.ca_file))
        bucket = connect(store)
        obstore.put(bucket, KEY, b"content")
        store.fill()
        assert store.faults() == ["full"]
        with pytest.raises(GenericError, match="InsufficientStorage"):
            obstore.put(bucket, KEY, bytes(100_000))
        assert content(bucket) == b"content"
        store.end_faults()
        obstore.put(bucket, KEY, bytes(100_000))


def test_corrupt_object_differs_in_one_bit(store: ObjectStore, bucket: S3Store) -> None:
    store.corrupt(KEY)
    assert content(bucket) == b"conuent"
    with pytest.raises(DevclusterError, match=rf"no object orders/9\. It has: {KEY}"):
        store.corrupt("orders/9")


def test_deleted_object_is_not_listed(store: ObjectStore, bucket: S3Store) -> None:
    assert store.keys("orders/") == [KEY]
    store.delete(KEY)
    assert store.keys() == []
    with pytest.raises(FileNotFoundError):
        content(bucket)


def test_rotation_refuses_previous_credentials(store: ObjectStore, bucket: S3Store) -> None:
    first = store.credentials
    store.rotate_credentials(keep_previous=True)
    assert content(connect(store, first)) == content(connect(store)) == b"content"
    store.rotate_credentials()
    with pytest.raises(PermissionDeniedError, match="InvalidAccessKeyId"):
        content(connect(store, first))
    assert content(connect(store)) == b"content"


PROGRAM = """
import sys, time
from pathlib import Path
from devcluster.store import local_store
with local_store(Path(sys.argv[1])) as store:
    print(store.server.pid, store.server.start_time, store.proxy.pid, store.proxy.start_time, flush=True)
    time.sleep(60)
"""


def test_processes_end_when_their_owner_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        numbers = list(map(int, owner.stdout.readline().split()))
        server, proxy = Process(*numbers[:2]), Process(*numbers[2:])
        assert server.alive()
        assert proxy.alive()
        os.kill(owner.pid, signal.SIGKILL)
        assert server.wait(5)
        assert proxy.wait(5)
