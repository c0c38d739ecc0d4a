"""The key of the object to reconcile."""

from __future__ import annotations

from typing import Any, cast

from steersman.meta import ObjectKey

# Methods of the untyped tuple: they run without a call of Python code.
_new_tuple: Any = cast("Any", tuple).__new__
_equal_tuples: Any = cast("Any", tuple).__eq__
_hash_tuple: Any = cast("Any", tuple).__hash__


class Request(ObjectKey):
    """The key of the object to reconcile, and its cluster.

    It does not contain the change: a reconciler acts on the current state. A client accepts it as an ``ObjectKey``.
    Two requests are equal if their namespace, name and cluster are equal. A request equals an ``ObjectKey`` with the
    same namespace and name, whatever its cluster: do not put both into one set or dict.

    Args:
        namespace: empty for a cluster-scoped object.
        name: the name of the object.
        cluster: the name of the cluster in a manager of several clusters. Defaults to the only cluster.
    """

    __slots__ = ()

    cluster: str = ""
    """The name of the cluster. Empty for the only cluster of a manager."""

    def __new__(cls, namespace: str, name: str, cluster: str = "") -> Request:
        """Create a request."""
        if cluster:
            request = _new_tuple(_ClusterRequest, (namespace, name))
            request.cluster = cluster
            return request
        return _new_tuple(Request, (namespace, name))

    @classmethod
    def of(cls, key: ObjectKey) -> Request:
        """Return ``key`` as a request."""
        return key if isinstance(key, Request) else _new_tuple(Request, key)


class _ClusterRequest(Request):
    """A request with a cluster. Other requests compare as tuples, without a call of Python code."""

    def __eq__(self, other: object) -> bool:
        # The store of a cluster contains keys without a cluster.
        clusters_match = not isinstance(other, Request) or other.cluster == self.cluster
        return clusters_match and _equal_tuples(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return _hash_tuple(self)

    def _replace(self, **kwds: Any) -> Request:  # pyright: ignore[reportIncompatibleMethodOverride]
        return Request(**{"namespace": self.namespace, "name": self.name, "cluster": self.cluster} | kwds)

    def __str__(self) -> str:
        return f"{self.cluster}:{super().__str__()}"

    def __repr__(self) -> str:
        return f"Request(namespace={self.namespace!r}, name={self.name!r}, cluster={self.cluster!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Request, (self.namespace, self.name, self.cluster)
