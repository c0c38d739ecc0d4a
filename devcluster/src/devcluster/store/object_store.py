"""A running object store: its addresses, its objects, and its faults."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from devcluster.errors import DevclusterError, NotRunning
from devcluster.process import Process
from devcluster.store.directory import Credentials, StoreDirectory
from devcluster.store.servers import REGION
from devcluster.store.toxiproxy import Toxiproxy

BUCKET = "backups"
_FILLER = "filler"
# versitygw's directory for uploads in progress
_UPLOADS = ".sgwtmp"
_MIN_FILL_BYTES = 4096


class VolumeUsage(NamedTuple):
    """Usage of a file system in bytes."""

    used: int
    free: int


@dataclass(frozen=True)
class ObjectStore:
    """An S3 server and the proxy in front of it.

    Args:
        directory: its files, which outlive its processes.
        server: versitygw.
        proxy: toxiproxy.
        host_endpoint: the URL for programs of this machine.
        endpoint: the URL for its other clients, the pods of the devcluster. Locally both are the same.
        toxiproxy: API of the proxy.
        volume_limited: True if the objects have a file system of their own, which `fill` needs.
    """

    directory: StoreDirectory
    server: Process
    proxy: Process
    host_endpoint: str
    endpoint: str
    toxiproxy: Toxiproxy
    volume_limited: bool

    @property
    def bucket(self) -> str:
        """The bucket that exists from the start."""
        return BUCKET

    @property
    def region(self) -> str:
        """The only region that the server accepts in signatures."""
        return REGION

    @property
    def ca_file(self) -> Path:
        """PEM file of the CA that issued the server's certificate."""
        return self.directory.ca_certificate

    @property
    def credentials(self) -> Credentials:
        """The current credentials; `rotate_credentials` replaces them."""
        return self.directory.credentials()

    def is_running(self) -> bool:
        """Return True if both processes run; connections may be refused nevertheless."""
        return self.server.alive() and self.proxy.alive()

    def terminate(self) -> None:
        """End both processes; the files stay."""
        for process in (self.proxy, self.server):
            process.terminate(grace=2)

    # Outages: all clients are affected.

    def stop(self) -> None:
        """Refuse connections, and end those that exist, until `start`."""
        self.toxiproxy.set_listening(False)

    def start(self) -> None:
        """Accept connections again, on the same port."""
        self.toxiproxy.set_listening(True)

    def blackhole(self) -> None:
        """Accept connections, but never respond, until `end_faults`. Existing connections hang as well."""
        self.toxiproxy.swallow_all()

    def throttle(self, *, bytes_per_second: int | None = None, latency_milliseconds: int | None = None) -> None:
        """Limit the bandwidth of each connection, or delay responses, until `end_faults`.

        Raises DevclusterError for a rate below 1 byte a second, or if both are None.
        """
        if bytes_per_second is None and latency_milliseconds is None:
            raise DevclusterError("throttle needs a rate, a latency, or both")
        if bytes_per_second is not None and bytes_per_second < 1:
            raise DevclusterError(
                f"{bytes_per_second} bytes per second: the least is 1. For no data at all, use blackhole."
            )
        if latency_milliseconds is not None and latency_milliseconds < 0:
            raise DevclusterError(f"a latency of {latency_milliseconds} ms: use 0 or more")
        if bytes_per_second is not None:
            self.toxiproxy.set_bandwidth(bytes_per_second)
        if latency_milliseconds is not None:
            self.toxiproxy.set_latency(latency_milliseconds)

    def fill(self) -> None:
        """Fill the volume, so that writes fail until `end_faults`.

        Raises DevclusterError if the volume has no limit.
        """
        if not self.volume_limited:
            raise DevclusterError(
                "the volume of this store has no limit, and to fill it would fill the machine's disk: "
                "start the store with a volume size"
            )
        with (self._volume / _FILLER).open("ab") as filler:
            size = filler.tell()
            step = self.usage().free
            while step >= _MIN_FILL_BYTES:
                try:
                    os.posix_fallocate(filler.fileno(), size, step)
                    size += step
                except OSError:  # ENOSPC: the file system needs some blocks for itself
                    step //= 2

    def end_faults(self) -> None:
        """End `blackhole`, `throttle` and `fill`."""
        self.toxiproxy.end_faults()
        filler = self._volume / _FILLER
        if filler.exists():
            os.truncate(filler, 0)  # XFS frees the blocks of a deleted file later
            filler.unlink()

    def faults(self) -> list[str]:
        """Return the active faults: `stopped`, `blackhole`, `bandwidth`, `latency`, `full`."""
        found = [] if self.toxiproxy.is_listening() else ["stopped"]
        found += self.toxiproxy.faults()
        return [*found, "full"] if (self._volume / _FILLER).exists() else found

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Refuse connections during the block."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def blackholed(self) -> Generator[None]:
        """Never respond during the block; afterwards end all faults."""
        self.blackhole()
        try:
            yield
        finally:
            self.end_faults()

    # Objects

    def has_bucket(self) -> bool:
        """Return True if the bucket exists."""
        return self._bucket_directory.is_dir()

    def usage(self) -> VolumeUsage:
        """Return the usage of the file system with the objects."""
        statistics = os.statvfs(self._volume)
        free = statistics.f_bfree * statistics.f_frsize
        return VolumeUsage(statistics.f_blocks * statistics.f_frsize - free, free)

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects, read from the files."""
        bucket = self._bucket_directory
        files = (path.relative_to(bucket) for path in bucket.rglob("*") if path.is_file())
        return sorted(str(path) for path in files if path.parts[0] != _UPLOADS and str(path).startswith(prefix))

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raises DevclusterError if there is none."""
        return self._object(key).read_bytes()

    def corrupt(self, key: str) -> None:
        """Change one bit in the middle of an object.

        Size and modification time stay. Raises DevclusterError if there is no such object, or if it is empty.
        """
        path = self._object(key)
        status = path.stat()
        if status.st_size == 0:
            raise DevclusterError(f"object {key} is empty: choose another one, or delete it")
        with path.open("r+b") as file:
            file.seek(status.st_size // 2)
            byte = file.read(1)[0]
            file.seek(status.st_size // 2)
            file.write(bytes([byte ^ 1]))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    @contextmanager
    def corrupted(self, key: str) -> Generator[None]:
        """Change one bit of an object during the block."""
        self.corrupt(key)
        try:
            yield
        finally:
            self.corrupt(key)

    @contextmanager
    def missing(self, key: str) -> Generator[None]:
        """Remove an object during the block. Raises DevclusterError if there is none."""
        path = self._object(key)
        hidden = self._volume / f".missing-{path.name}"
        path.rename(hidden)
        try:
            yield
        finally:
            hidden.rename(path)

    def delete(self, key: str) -> None:
        """Remove an object, even if it is locked.

        Raises DevclusterError if there is no such object.
        """
        path = self._object(key)
        path.unlink()
        for parent in path.relative_to(self._bucket_directory).parents:
            directory = self._bucket_directory / parent
            if directory == self._bucket_directory or any(directory.iterdir()):
                return
            directory.rmdir()

    # Credentials

    def rotate_credentials(self, *, keep_previous: bool = False) -> Credentials:
        """Replace the credentials; connections stay.

        With `keep_previous` the store accepts both until the next rotation, as during a rotation without failures.
        """
        new = Credentials.generate()
        self.directory.save_credentials(new, *([self.credentials] if keep_previous else []))
        return new

    # State file

    def save(self) -> None:
        """Write the state file, for other processes."""
        content = {
            "server": [self.server.pid, self.server.start_time],
            "proxy": [self.proxy.pid, self.proxy.start_time],
            "hostEndpoint": self.host_endpoint,
            "endpoint": self.endpoint,
            "toxiproxy": [self.toxiproxy.host, self.toxiproxy.port],
            "volumeLimited": self.volume_limited,
        }
        unfinished = self.directory.state.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(content))
        unfinished.rename(self.directory.state)

    @classmethod
    def load(cls, directory: Path) -> "ObjectStore | None":
        """Return the store of a directory that was started last, or None."""
        paths = StoreDirectory(directory)
        try:
            content: dict[str, Any] = json.loads(paths.state.read_text())
        except FileNotFoundError:
            return None
        return cls(
            directory=paths,
            server=Process(*content["server"]),
            proxy=Process(*content["proxy"]),
            host_endpoint=content["hostEndpoint"],
            endpoint=content["endpoint"],
            toxiproxy=Toxiproxy(*content["toxiproxy"]),
            volume_limited=content["volumeLimited"],
        )

    @property
    def _volume(self) -> Path:
        """The volume as the server sees it.

        A limited volume is mounted in the mount namespace of the server only.
        """
        if not self.server.alive():
            raise NotRunning(f"the object store has ended; see {self.directory.log('versitygw')}")
        return Path(f"/proc/{self.server.pid}/root{self.directory.volume}")

    @property
    def _bucket_directory(self) -> Path:
        return self._volume / "objects" / BUCKET

    def _object(self, key: str) -> Path:
        path = self._bucket_directory / key
        if ".." in path.parts or not path.is_file():
            some = ", ".join(self.keys()[:5]) or "none"
            raise DevclusterError(f"bucket {BUCKET} has no object {key}. It has: {some}")
        return path
