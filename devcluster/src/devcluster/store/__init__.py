"""An S3 object store on this machine, with TLS and faults.

The server is versitygw. Its objects are files, so that a test can change or delete them. All connections pass
toxiproxy, which refuses, delays or swallows them. Both are built from a Go module on first use.
"""

from devcluster.store.directory import Credentials
from devcluster.store.local import local_store
from devcluster.store.object_store import ObjectStore

__all__ = ["Credentials", "ObjectStore", "local_store"]
