"""An archive in memory, by the object store client that the images have."""

from __future__ import annotations

from obstore.store import MemoryStore

from steersman_instance.archive.objects import Objects
from steersman_instance.archive.store_file import parse_store
from steersman_instance.backup.mysql_catalog import MysqlCatalog
from steersman_instance.binlog.chunk_store import ChunkStore
from steersman_instance.binlog.chunks import ChunkCipher

STORE = parse_store(
    {
        "format": 1,
        "engine": "mysql",
        "cluster_uid": "u",
        "path": "default/mysqlcluster.orders/u",
        "bucket": "backups",
        "accessKeyId": "id",
        "secretAccessKey": "key",
    }
)


class MemoryArchive:
    """The objects of one cluster. Connections share them."""

    def __init__(self) -> None:
        self._client = MemoryStore()

    def objects(self, directory: str) -> Objects:
        """Return a connection to a directory of the cluster's path."""
        return Objects(STORE, f"{STORE.root}/{directory}", self._client)

    def chunks(self) -> ChunkStore:
        """Return a connection to the archive of binary logs."""
        return ChunkStore(self.objects("mysql/binlog"), ChunkCipher(""))

    def catalog(self) -> MysqlCatalog:
        """Return a connection to the catalog of base backups."""
        return MysqlCatalog(self.objects("mysql/catalog"))
