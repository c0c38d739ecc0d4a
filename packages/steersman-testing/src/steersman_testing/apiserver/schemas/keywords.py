"""Search for keywords in schemas.

It skips checks that a schema does not need.
"""

from __future__ import annotations

from typing import Any

from steersman_testing.apiserver.values import JsonObject, is_list, is_map

_MAX_CACHED_SCHEMAS = 10_000


class HasKeyword:
    """Predicate for schemas that have ``keyword`` at any depth.

    Results are cached, because schemas never change.
    """

    def __init__(self, keyword: str) -> None:
        self._keyword = keyword
        # The reference to the schema keeps its id unique.
        self._cache: dict[int, tuple[JsonObject, bool]] = {}

    def __call__(self, schema: JsonObject) -> bool:
        cached = self._cache.get(id(schema))
        if cached is None:
            if len(self._cache) == _MAX_CACHED_SCHEMAS:
                self._cache.clear()
            cached = self._cache[id(schema)] = schema, self._search(schema)
        return cached[1]

    def _search(self, value: Any) -> bool:
        if is_map(value):
            return self._keyword in value or any(self._search(v) for v in value.values())
        return is_list(value) and any(self._search(v) for v in value)
