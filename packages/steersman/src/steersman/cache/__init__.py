"""Local copies of API objects, kept current by list and watch.

``CachedClient`` is the client of reconcilers. It reads cached kinds from memory and sends writes to the API server.

``Cache`` creates and runs one ``Informer`` per kind, shared by all controllers of a manager. It also observes the
writes of its clients and passes each response on, so that a read never returns less than our own last write.

``Informer`` owns the store of one kind. For each scope (a namespace and a selector) it has an ``InformerSink`` and a
``Reflector``, which lists and watches.

``WriteThrough`` decides for a sink which list items, watch events and responses are newer than the store. It tracks
our own writes until their watch events arrive.

``IndexedStore`` holds the objects by key and by index, and notifies subscribers of each change with an
``InformerEvent``.
"""

from steersman.cache.cache import Cache
from steersman.cache.cached_client import CachedClient
from steersman.cache.informer import Informer
from steersman.cache.options import InformerOptions, Selection, Transform
from steersman.cache.reflector import Reflector, ReflectorState
from steersman.cache.store import IndexedStore, InformerEvent

__all__ = [
    "Cache",
    "CachedClient",
    "IndexedStore",
    "Informer",
    "InformerEvent",
    "InformerOptions",
    "Reflector",
    "ReflectorState",
    "Selection",
    "Transform",
]
