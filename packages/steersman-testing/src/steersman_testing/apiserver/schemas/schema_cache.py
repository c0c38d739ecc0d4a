"""Values that are derived from schemas once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from steersman_testing.apiserver.values import JsonObject, is_list, is_map

T = TypeVar("T")
_MAX_CACHED_SCHEMAS = 10_000


class SchemaCache(Generic[T]):
    """Caches the results of ``derive`` by the identity of schemas.

    Schemas never change.
    """

    def __init__(self, derive: Callable[[JsonObject], T]) -> None:
        self._derive = derive
        # The reference to the schema keeps its id unique.
        self._cache: dict[int, tuple[JsonObject, T]] = {}

    def __call__(self, schema: JsonObject) -> T:
        cached = self._cache.get(id(schema))
        if cached is None:
            if len(self._cache) == _MAX_CACHED_SCHEMAS:
                self._cache.clear()
            cached = self._cache[id(schema)] = schema, self._derive(schema)
        return cached[1]


def has_keyword(keyword: str) -> SchemaCache[bool]:
    """Return a predicate for schemas that have ``keyword`` at any depth.

    It skips checks that a schema does not need.
    """

    def search(value: Any) -> bool:
        if is_map(value):
            return keyword in value or any(search(v) for v in value.values())
        return is_list(value) and any(search(v) for v in value)

    return SchemaCache(search)
