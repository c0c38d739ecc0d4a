"""Local copies of API objects, kept by list and watch, shared by all controllers of a manager."""

from steersman.cache.cache import Cache
from steersman.cache.informer import Informer, InformerEvent
from steersman.cache.options import InformerOptions, Selection, Transform
from steersman.cache.reflector import Reflector, ReflectorState
from steersman.cache.store import Store

__all__ = [
    "Cache",
    "Informer",
    "InformerEvent",
    "InformerOptions",
    "Reflector",
    "ReflectorState",
    "Selection",
    "Store",
    "Transform",
]
