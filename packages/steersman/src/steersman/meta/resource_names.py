"""Names of kinds and objects in the API, and their URL paths."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote


class ObjectKey(NamedTuple):
    """Namespace and name. A cluster-scoped object has an empty namespace."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ApiResource(NamedTuple):
    """Names and scope of a kind in the API. The core group is empty."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The apiVersion, such as ``apps/v1``, or ``v1`` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def group_resource(self) -> tuple[str, str]:
        """Group and plural, the same for all versions of a kind."""
        return self.group, self.plural

    def path(self, key: ObjectKey | None = None, *, namespace: str = "", subresource: str = "") -> str:
        """Return the URL path of an object or of a collection.

        Args:
            key: object. Defaults to the collection.
            namespace: namespace of the collection. Defaults to all namespaces.
            subresource: subresource of the object, such as ``status``.

        Raises:
            ValueError: the name is empty or would change the path. Names often come from the spec of a user, and a
                DELETE request with an empty name would delete the whole collection.
        """
        if key is None:
            return _collection_path(self, namespace)
        name = key.name
        if not _PLAIN_NAME(name):
            if name in ("", ".", "..") or "/" in name or "%" in name:
                raise ValueError(f"{name!r} is not a valid name of a {self.kind}")
            name = quote(name, safe=":@")
        path = f"{_collection_path(self, key.namespace)}/{name}"
        return f"{path}/{subresource}" if subresource else path


_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*").fullmatch


@lru_cache(maxsize=4096)
def _collection_path(resource: ApiResource, namespace: str) -> str:
    prefix = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    scope = f"/namespaces/{quote(namespace, safe='')}" if namespace and resource.namespaced else ""
    return f"{prefix}{scope}/{resource.plural}"
