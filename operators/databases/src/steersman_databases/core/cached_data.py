"""Data of ConfigMaps and Secrets in the cache."""

from __future__ import annotations

import msgspec

from steersman.api.core_v1 import ConfigMap, Secret
from steersman.meta import FrozenDict

MAX_UNOWNED_BYTES = 16 * 1024


def without_unowned_data(obj: ConfigMap | Secret) -> ConfigMap | Secret:
    """Return the object to cache, without large data that have no owner.

    Anybody may set the label by which the cache selects, and a few hundred objects could fill the memory. Large
    objects of the operator have owners. The garbage collector deletes objects with owners that do not exist.
    """
    if obj.metadata.owner_references or _size(obj) <= MAX_UNOWNED_BYTES:
        return obj
    if isinstance(obj, ConfigMap):
        return msgspec.structs.replace(obj, data=FrozenDict[str, str](), binary_data=FrozenDict[str, bytes]())
    return msgspec.structs.replace(obj, data=FrozenDict[str, bytes]())


def _size(obj: ConfigMap | Secret) -> int:
    binary = sum(map(len, obj.binary_data.values())) if isinstance(obj, ConfigMap) else 0
    return binary + sum(map(len, obj.data.values()))
